"""Any Keras optimizer trains: its run ends, is resumed to the same bits, and a step that is skipped changes nothing."""

import itertools
import shutil
from functools import partial

import keras
import numpy as np
import pytest

from own_parts.training.optimizer import SignMomentum
from own_parts.training.schedule import InverseSquareRoot
from rembed_keras.adaptation.projections import Rotations
from rembed_keras.errors import UserError
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.layers.scalar_mix import ScalarMix
from rembed_keras.modeling.saving.configuration import made
from rembed_keras.training import AdamW, GaLore, Muon, TrainingOptimizer
from tests.training.pretraining import RATE, files_of, learn, make_encoder
from tests.training.pretraining import rows as log

OPTIMIZERS = {
    "AdamW": lambda: AdamW(RATE),
    "Lion": lambda: keras.optimizers.Lion(RATE, weight_decay=0.1),
    "Muon": lambda: Muon(RATE),
    "Keras's Muon": lambda: keras.optimizers.Muon(RATE),
    "Adafactor": lambda: keras.optimizers.Adafactor(RATE),
    "SGD": lambda: keras.optimizers.SGD(RATE, momentum=0.9, nesterov=True),
    "ScheduleFreeAdamW": lambda: keras.optimizers.ScheduleFreeAdamW(RATE, warmup_steps=2, weight_decay=0.1),
    "Nadam": lambda: keras.optimizers.Nadam(RATE),
    "GaLore": lambda: GaLore(RATE, rank=3, update_proj_gap=2),
}
NAMES = ("table/embeddings", "heads/kernel", "dense/kernel", "dense/bias", "norm/gamma")
SHAPES = ((9, 4), (6, 2, 3), (6, 5), (5,), (5,))


class Lookahead(keras.optimizers.Optimizer):
    """One of a user's own around Lion, whose slots begin as copies of weights. Source: Zhang et al. 2019."""

    def __init__(self, learning_rate=RATE, has_all=True):
        super().__init__(learning_rate=learning_rate)
        self.fast, self.has_all = keras.optimizers.Lion(learning_rate), has_all

    @property
    def variables(self):
        return [*super().variables, *(self.fast.variables if self.has_all else [])]

    def build(self, variables):
        super().build(variables)
        self.fast.build(variables)
        self.slow = self.add_optimizer_variables(variables, "slow")
        for slow, variable in zip(self.slow, variables, strict=True):
            slow.assign(variable)

    def update_step(self, gradient, variable, learning_rate):
        self.fast.update_step(gradient, variable, learning_rate)
        slow = self.slow[self._get_variable_index(variable)]
        self.assign(slow, 0.5 * (slow + variable))
        self.assign(variable, slow)


@pytest.mark.parametrize("kind", [AdamW, GaLore, Muon])
@pytest.mark.parametrize("name", ["beta_1", "beta_2"])
def test_moments_that_never_begin_are_refused(kind, name):
    with pytest.raises(
        UserError, match=f"{kind.__name__}.{name} is 1.0; it must be a number of at least 0 and below 1"
    ):
        kind(RATE, **{name: 1.0})


def test_an_optimizer_around_another_whose_state_would_be_lost_is_refused():
    with pytest.raises(UserError, match="Lookahead holds Lion, whose state no checkpoint would have: let its property"):
        TrainingOptimizer(Lookahead(has_all=False))


def values_of(variables):
    return [np.asarray(keras.ops.convert_to_numpy(variable.value)).copy() for variable in variables]


def number(variable):
    return float(keras.ops.convert_to_numpy(variable.value))


def make_variables():
    rng = np.random.default_rng(1)
    variables = [
        keras.Variable(rng.normal(size=shape).astype("float32"), name=name.split("/")[1])
        for name, shape in zip(NAMES, SHAPES, strict=True)
    ]
    zero = values_of(variables[:1])[0]
    zero[0, 0] = -0.0
    variables[0].assign(zero)
    return variables


def gradients(seed):
    rng = np.random.default_rng(seed)
    return [keras.ops.convert_to_tensor(rng.normal(size=shape).astype("float32")) for shape in SHAPES]


@pytest.mark.parametrize("name", [*OPTIMIZERS, "Lookahead"])
def test_a_skipped_step_changes_no_bit(name):
    variables = make_variables()
    optimizer = TrainingOptimizer((OPTIMIZERS | {"Lookahead": Lookahead})[name](), skip_nonfinite=2)
    optimizer.build(variables)
    counts = {id(optimizer.iterations), id(optimizer.gradient_norm), id(optimizer.skipped_steps)}
    held = [*variables, *(each for each in optimizer.variables if id(each) not in counts)]
    assert len(held) >= 2 * len(variables)
    bad = gradients(2)
    bad[1] = bad[1] * np.float32(np.nan)
    before = values_of(held)
    optimizer.apply(bad)  # the very first
    assert [each.tobytes() for each in values_of(held)] == [each.tobytes() for each in before]
    optimizer.apply(gradients(3))
    moved = values_of(held)
    assert all((now != then).any() for now, then in zip(moved[: len(variables)], before, strict=False))
    optimizer.apply(bad)
    assert [each.tobytes() for each in values_of(held)] == [each.tobytes() for each in moved]
    assert (number(optimizer.skipped_steps), number(optimizer.iterations)) == (2, 3)
    optimizer.apply(gradients(4))
    assert all(np.isfinite(value).all() for value in values_of(held))


OTHERS_STEP = {"ScheduleFreeAdamW"} if keras.config.backend() == "tensorflow" else set()  # see test_schedule_free.py


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - OTHERS_STEP))
def test_a_step_is_the_optimizers_own_on_clipped_gradients(name):
    """Against Keras's own `apply` on gradients that NumPy clipped, where nothing is decayed."""
    ours, theirs = make_variables(), make_variables()
    wrapped, alone = TrainingOptimizer(OPTIMIZERS[name](), clip_norm=0.5), OPTIMIZERS[name]()
    for optimizer in (wrapped.inner_optimizer, alone):
        optimizer.weight_decay = optimizer.adam_weight_decay = None
    for seed in range(3):
        arrays = [keras.ops.convert_to_numpy(each) for each in gradients(seed)]
        norm = np.sqrt(sum((array.astype("float64") ** 2).sum() for array in arrays))
        wrapped.apply(gradients(seed), ours)
        alone.apply([keras.ops.convert_to_tensor((each * (0.5 / norm)).astype("float32")) for each in arrays], theirs)
        np.testing.assert_allclose(number(wrapped.gradient_norm), norm, rtol=1e-6)
    for one, other in zip(values_of(ours), values_of(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_decay_leaves_norms_and_biases():
    variables = make_variables()
    before = values_of(variables)
    optimizer = TrainingOptimizer(keras.optimizers.Lion(0.1, weight_decay=0.2), clip_norm=None)
    optimizer.apply([keras.ops.zeros(shape) for shape in SHAPES], variables)
    for then, now, decay in zip(before, values_of(variables), (0.2, 0.2, 0.2, 0.0, 0.0), strict=True):
        np.testing.assert_allclose(now, then * (1 - 0.1 * decay), rtol=1e-6)


def test_decay_leaves_what_outputs_are_multiplied_by():
    """Of a mix of layers, and of RoAd: decayed, they would go from 1 to 0."""
    layers = [ScalarMix(2), Rotations()]
    layers[0].build()
    layers[1].build((1, 4), (1, 4))
    variables = [variable for layer in layers for variable in layer.trainable_variables]
    optimizer = TrainingOptimizer(keras.optimizers.Lion(0.1, weight_decay=0.2), clip_norm=None)
    optimizer.apply([keras.ops.zeros(each.shape) for each in variables], variables)
    scales = [values_of([each])[0] for each in variables if each.name == "scale"]
    assert len(scales) == 2 and all((scale == 1).all() for scale in scales)


def run(folder, corpus, name, steps):
    encoder = partial(make_encoder, dropout=0.2, block=PreNorm)  # of few variables
    learn(folder, corpus, encoder, optimizer=OPTIMIZERS[name], steps=steps, log_every=2, checkpoint_every=1)


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - {"SGD"}))  # whose runs tests/training/loop resumes
def test_a_run_ends_and_is_resumed_to_the_same_bits(name, corpus, tmp_path):
    run(tmp_path / "whole", corpus, name, 2)
    shutil.copytree(
        tmp_path / "whole", tmp_path / "stopped"
    )  # as it was after a step, whose projections are still used
    shutil.rmtree(tmp_path / "stopped/checkpoints/step-00000002")
    run(tmp_path / "stopped", corpus, name, 2)
    rows = log(tmp_path / "whole")
    assert rows == log(tmp_path / "stopped") and all(row["grad_norm"] > 0 for row in rows)
    assert files_of(tmp_path / "whole", 2) == files_of(tmp_path / "stopped", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("without_graphs")
def test_a_run_is_not_resumed_with_another_optimizer(corpus, tmp_path):
    run(tmp_path, corpus, "AdamW", 1)
    with pytest.raises(UserError, match=r"optimizer\.safetensors has no lion/.*: it is of another optimizer"):
        run(tmp_path, corpus, "Lion", 2)


def take_steps(name, strategy=None):
    """Variables and slots after three steps, before whose last GaLore makes new projections.

    Two replicas have parts of each gradient, which differ.
    """
    import tensorflow as tf

    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        variables = make_variables()
        optimizer = TrainingOptimizer(OPTIMIZERS[name](), clip_norm=0.5)
        optimizer.build(variables)
    parts = [1.0] if strategy.num_replicas_in_sync == 1 else [0.25, 0.75]

    def step(*whole):
        part = tf.gather(parts, tf.distribute.get_replica_context().replica_id_in_sync_group)
        optimizer.apply([part * gradient for gradient in whole], variables)

    run = tf.function(strategy.run) if name == "GaLore" and len(parts) == 2 else strategy.run  # a graph branches in it
    for seed in range(3):
        run(step, gradients(seed))
    return values_of([*variables, *optimizer.variables])


@pytest.mark.parametrize("name", ["Lion", "Muon", "GaLore", "Adafactor", "ScheduleFreeAdamW"])
def test_replicas_take_the_steps_of_one_device(name, mirrored):
    ours, theirs = take_steps(name, mirrored), take_steps(name)
    assert len(ours) > 2 * len(SHAPES)  # and slots
    for value, expected, start in itertools.zip_longest(ours, theirs, values_of(make_variables())):
        np.testing.assert_allclose(value, expected, atol=2e-4)
        assert start is None or np.abs(value - start).max() > 1e-3


REFUSED = {
    "clipping of its own": (lambda: keras.optimizers.SGD(0.1, global_clipnorm=1.0), "SGD.global_clipnorm is 1.0: it"),
    "accumulation": (
        lambda: keras.optimizers.SGD(0.1, gradient_accumulation_steps=2),
        "SGD.gradient_accumulation_steps is 2: split batches with the objective's micro_batches",
    ),
    "averages": (lambda: keras.optimizers.SGD(0.1, use_ema=True), "SGD.use_ema is True: averages of weights"),
    "a wrapper": (
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        "LossScaleOptimizer applies gradients in a way of its own",
    ),
    "two decays": (lambda: keras.optimizers.Muon(0.1, weight_decay=0.1), "Muon has two decays, 0.1 and 0.004"),
    "no optimizer": (lambda: 3, "3 is no optimizer"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_wrapped_is_refused_in_one_line(what):
    make, message = REFUSED[what]
    with pytest.raises(UserError, match=message) as caught:
        TrainingOptimizer(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_comes_back_from_its_config(name):
    optimizer = TrainingOptimizer(OPTIMIZERS[name](), clip_norm=0.7, skip_nonfinite=3)
    again = made(keras.saving.serialize_keras_object(optimizer), TrainingOptimizer)
    assert again.get_config() == optimizer.get_config()
    assert type(again.inner_optimizer) is type(optimizer.inner_optimizer)


def test_the_examples_optimizer_and_learning_rate_are_made_again_of_their_configuration():
    optimizer = TrainingOptimizer(SignMomentum(InverseSquareRoot(RATE, warmup_steps=3), momentum=0.5))
    again = made(keras.saving.serialize_keras_object(optimizer), TrainingOptimizer).inner_optimizer
    assert type(again) is SignMomentum and again.momentum == 0.5
    assert float(again.learning_rate) == float(optimizer.inner_optimizer.learning_rate)


def test_the_examples_learning_rate_refuses_a_warmup_of_no_steps():
    with pytest.raises(UserError, match="warmup_steps is 0; it must be a positive whole number"):
        InverseSquareRoot(RATE, warmup_steps=0)
