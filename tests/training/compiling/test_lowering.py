"""A train step traced without values: the very step that `fit` would compile, and none of its memory."""

import re
import resource
from collections import Counter
from functools import partial

import keras
import numpy as np
import pytest

from rembed_keras import compat
from rembed_keras.adaptation import Distillation
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.programs.counting import traffic_of
from rembed_keras.analysis.programs.text import read
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Global, Local
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from rembed_keras.training.compiling import fitting
from rembed_keras.training.compiling.lowering import lowered_step
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.optimizers.adamw import AdamW
from rembed_keras.training.stages.pretrain import made_learner

pytestmark = pytest.mark.skipif(keras.config.backend() != "jax", reason="only JAX compiles for what is not there")
SIZES = {
    "vocabulary_size": 48,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 24,
    "input_embedding_dim": 6,
    "max_sequence_length": 12,
}
PUBLISHED = {
    "vocabulary_size": 250_300,
    "num_layers": 2,
    "num_heads": 18,
    "hidden_dim": 1152,
    "intermediate_dim": 4608,
    "input_embedding_dim": 256,
}
BATCH = Mixture.blank(4, 12)
KERNELS = ("tpu_custom_call", "__cudnn$fmhaScaleBiasSoftmax", "__cudnn$fmhaScaleBiasSoftmaxBackward")


def make(micro_batches=1, **changes):
    return MaskedLM(Encoder(**(SIZES | changes), name="encoder"), 20, micro_batches=micro_batches, name="model")


@pytest.mark.parametrize("strategy", ["data_parallel", "model_parallel", "fully_sharded"])
def test_it_is_the_step_of_a_model_that_is_there(strategy):
    keras.utils.clear_session()
    build = partial(make, num_layers=1)
    traced = lowered_step(build, lambda: AdamW(1e-3), BATCH, strategy=strategy).lowered.as_text()
    keras.utils.clear_session()
    placement = place(strategy, batch_size=4)
    learner = made_learner(build, lambda: AdamW(1e-3), [], ["all"], placement, 1.0, 0)
    import jax

    with placement.scope():
        step, state = compat.compiled_train_step(learner)
        layout = keras.distribution.distribution().get_data_layout
        data = keras.tree.map_structure(lambda each: jax.device_put(each, layout(each.shape).backend_layout), BATCH)
        assert step.lower(state, data).as_text() == traced


def test_parameters_and_slots_of_a_device_are_those_of_the_ledger():
    whole = lowered_step(make, lambda: AdamW(1e-3), BATCH, strategy="data_parallel")
    counted = ledger(make())
    pooler = 16 * 16 + 16  # which no step reads
    scalars = 16  # the seed and other state of layers, and the optimizer's clock, rate and counts
    assert 0 <= whole.parameter_bytes - 4 * (counted.total - pooler) <= 4 * scalars
    assert 0 <= whole.slot_bytes - 4 * sum(counted.slots) <= 4 * scalars
    spread = lowered_step(make, lambda: AdamW(1e-3), BATCH, strategy="model_parallel")
    tables = 48 * (6 + 20)
    assert whole.parameter_bytes - spread.parameter_bytes == 4 * tables // 2
    sizes = fitting.Sizes.of(counted, SIZES, 4)
    assert (sizes.tables, sizes.table_slots) == (tables, 2 * tables)


def test_each_block_is_gathered_for_each_pass_and_no_hidden_state_is():
    """On a CPU: gradients are summed whole, and then cut. `make test-tpu` has the compiler that scatters them."""
    one, two = (_traffic_on_two(num_layers=count) for count in (1, 2))
    kernels, biases = 4 * 16 * 16 + 2 * 16 * 24, 3 * 16  # of attention, [H, K]; added again to products that are kept
    assert two.results["all-gather"] - one.results["all-gather"] == 4 * 2 * (kernels + biases)
    vectors = 4 * 16 + 24 + 2 * 16  # norms' and biases
    reduced = two.results["all-reduce"] - one.results["all-reduce"]
    assert reduced == pytest.approx(4 * (kernels + biases + vectors), abs=200)


def _traffic_on_two(**changes):
    """What two devices move in a step whose matrices they share."""
    step = lowered_step(partial(make, **changes), AdamW, BATCH, strategy="fully_sharded")
    return traffic_of(read(step.lowered.compile().as_text()), 2)


def test_products_are_counted_as_often_as_they_run():
    once, parts = (lowered_step(lambda n=n: make(n), lambda: AdamW(1e-3), BATCH).flops for n in (1, 2))
    per_token = ledger(make(), sequence_length=12, mask_rate=2 / 12).training_flops["total"]
    assert once == parts  # a loop over two halves of the batch
    assert once == pytest.approx(4 * 12 * per_token, rel=0.06)  # the ledger spares what the first layer need not send


def test_products_of_kernels_are_counted_for_each_row_head_and_device():
    batch = Mixture.blank(4, 256)

    def flops(kernel, strategy="one_device"):
        build = partial(make, block=PreNorm, attention=Global(kernel=kernel), max_sequence_length=256)
        return lowered_step(build, AdamW, batch, strategy=strategy, platform="tpu").flops

    product = 4 * 2 * 2 * 256 * 256 * 8  # of all pairs of tokens in four rows and two heads of width 8
    # forward, back by queries, back by keys; the 20 queries of the last layer count as 128
    kernels = (2 + 3 + 4) * (1 + 128 / 256) * product
    dense = (2 + 4) * (1 + 20 / 256) * product
    masked = flops("dense")
    for strategy in ("one_device", "data_parallel"):
        assert flops("auto", strategy) - masked == pytest.approx(kernels - dense, rel=0.1)


def test_the_published_shape_takes_no_memory_and_lowers_for_gpus():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch = Mixture.blank(64, 512)
    step = lowered_step(
        lambda: MaskedLM(Encoder(**PUBLISHED, dtype="mixed_bfloat16"), 1664), AdamW, batch, platform="cuda"
    )
    assert step.parameter_bytes > 4 * 480_000_000 and step.slot_bytes > 8 * 480_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # kilobytes
    assert "tensor<250300x1664xf32>" in step.lowered.as_text()


def test_slots_that_begin_as_copies_are_traced_and_variables_have_values_again_afterwards():
    """As tables of replaced-token detection do too."""
    lowered_step(make, keras.optimizers.ScheduleFreeAdamW, BATCH)
    assert np.asarray(keras.Variable(np.ones(3, "float32")).value).sum() == 3.0


def test_what_cannot_be_compiled_is_said():
    with pytest.raises(UserError, match="BATCH_SIZE is 3, which 2 replicas cannot share evenly"):
        lowered_step(make, AdamW, Mixture.blank(3, 12), strategy="data_parallel")
    with pytest.raises(UserError, match="BATCH_SIZE is 4, which 8 replicas and micro-batches cannot share evenly"):
        lowered_step(partial(make, 4), AdamW, BATCH, strategy="data_parallel")
    with pytest.raises(UserError, match="STRATEGY mirrored needs KERAS_BACKEND=tensorflow"):
        lowered_step(make, AdamW, BATCH, strategy="mirrored")
    with pytest.raises(UserError, match="a step that asks a teacher cannot be compiled"):
        lowered_step(lambda: Distillation(Encoder(**SIZES, name="encoder"), Teacher("none")), AdamW, BATCH)


def pretend_cudnn(monkeypatch):
    """Has Keras and JAX find a cuDNN, which is where a GPU is and which lowering asks nothing else."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn
    from keras.src.backend.jax import nn

    monkeypatch.setattr(nn, "_can_use_flash_attention", lambda *args, **kwargs: True)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)


@pytest.mark.parametrize(
    ("platform", "kernel", "calls"),
    [
        ("tpu", "auto", {"tpu_custom_call": 3 * 2}),  # forward, and backward by queries and by keys; the last one picks
        ("cuda", "auto", {"__cudnn$fmhaScaleBiasSoftmax": 3, "__cudnn$fmhaScaleBiasSoftmaxBackward": 3}),
        ("tpu", "dense", {}),
        ("cpu", "auto", {}),
    ],
)
def test_a_device_with_kernels_has_no_scores_of_all_pairs_of_tokens(platform, kernel, calls, monkeypatch):
    if platform == "cuda":
        pretend_cudnn(monkeypatch)
    length = 130
    kinds = [Local(32, kernel=kernel), Global(kernel=kernel)]
    sizes = SIZES | {"num_layers": 3, "max_sequence_length": length, "dtype": "mixed_bfloat16"}

    def make():
        return MaskedLM(Encoder(**sizes, block=PreNorm, attention=kinds, name="encoder"), 20, name="model")

    text = lowered_step(make, AdamW, Mixture.blank(2, length), platform=platform).lowered.as_text()
    found = Counter(re.findall(r"custom_call @([\w.$]+)", text))
    assert {name: count for name, count in found.items() if name in KERNELS} == calls
    scores = re.findall(rf"tensor<2x2x{length}x{length}x(?:f32|bf16)>", text)  # [B, H, S, S]
    assert bool(scores) == (not calls)


@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_the_decoder_of_late_masking_whose_rows_are_whole_has_kernels_too(block):
    sizes = SIZES | {"max_sequence_length": 130, "block": block}

    def make():
        return LateMaskedLM(Encoder(**sizes, name="encoder"), 20, decoder_layers=1, name="model")

    text = lowered_step(make, AdamW, Mixture.blank(2, 130), platform="tpu").lowered.as_text()
    assert text.count("custom_call @tpu_custom_call") == 3
    assert "tensor<2x2x130x130xf32>" not in text and "tensor<2x2x110x110xf32>" in text  # of the encoder, with gaps


@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_rows_and_masked_tokens_of_odd_numbers_are_cudnns_too(block, monkeypatch):
    """Where blocks are computed again for the backward pass, nothing else could take its place."""
    pretend_cudnn(monkeypatch)
    changes = {"block": block, "max_sequence_length": 129, "dtype": "mixed_bfloat16", "rematerialize": True}
    batch = Mixture.blank(2, 129)
    assert batch[1].shape == (2, 19)
    text = lowered_step(partial(make, **changes), AdamW, batch, platform="cuda").lowered.as_text()
    found = Counter(re.findall(r"custom_call @([\w.$]+)", text))
    assert found["__cudnn$fmhaScaleBiasSoftmaxBackward"] == SIZES["num_layers"]
