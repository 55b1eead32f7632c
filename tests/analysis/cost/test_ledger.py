import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rembed_keras.analysis import ledger
from rembed_keras.modeling import Encoder, LateMaskedLM, MaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.attention import Global, Local, Nystrom
from rembed_keras.modeling.blocks import Bottleneck, PostNorm, PreNorm
from rembed_keras.modeling.input_embeddings import Projected, Trigrams
from rembed_keras.training.optimizers.training_optimizer import TrainingOptimizer

SMALL = {
    "vocabulary_size": 97,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_dim": 12,
    "intermediate_dim": 20,
    "input_embedding_dim": 6,
    "max_sequence_length": 17,
    "num_segments": 3,
}


@st.composite
def shapes(draw):
    """Any model that can be built, small."""

    def number(low, high):
        return draw(st.integers(low, high))

    heads, layers, width = number(1, 3), number(1, 4), draw(st.sampled_from([16, 18, 24]))
    vocabulary = number(40, 99)
    cutoffs = st.lists(st.integers(1, vocabulary - 1), max_size=2, unique=True).map(sorted)
    encoder = {
        "vocabulary_size": vocabulary,
        "num_layers": layers,
        "num_heads": heads,
        "hidden_dim": heads * 2 * number(2, 5),
        "intermediate_dim": number(1, 30),
        "input_embedding_dim": width,
        "max_sequence_length": number(1, 40),
        "num_segments": number(0, 3),
        "head_dim": draw(st.sampled_from([None, 2, 4])),
        "block": draw(st.sampled_from([PostNorm, PreNorm])),
        "layer_sharing": draw(st.sampled_from(["none", "attention", "feed_forward", "all"])),
        "layer_groups": number(1, layers),
        "input_cutoffs": draw(cutoffs),
        "always_project": draw(st.booleans()),
        "scalar_mix": draw(st.booleans()),
        "freeze_input_embedding": draw(st.booleans()),
    }
    coupling = draw(st.sampled_from(["coupled", "decoupled", "gdes"]))
    if coupling == "gdes":
        encoder["input_cutoffs"] = []
    own = coupling == "decoupled"
    choices = ["bottom", "symmetric", "alternate"] + ["top"] * (encoder["block"] is PostNorm)
    return {
        "encoder": encoder,
        "output_embedding_dim": number(16, 50) if own else width,
        "coupling": coupling,
        "output_cutoffs": draw(cutoffs) if own else [],
        "kept_layers": None if encoder["scalar_mix"] else number(1, layers),
        "keep": draw(st.sampled_from(choices)),
    }


@pytest.mark.any_backend
@settings(max_examples=50, deadline=None, derandomize=True)
@given(shapes())
def test_it_counts_what_keras_counts(config):
    keras.backend.clear_session(free_memory=False)
    model = MaskedLM(Encoder(**config["encoder"]), **{key: value for key, value in config.items() if key != "encoder"})
    breakdown = ledger(model)
    kept = model.drop_heads()
    assert breakdown.kept == kept.count_params()
    assert breakdown.total == model.count_params()
    assert breakdown.dropped == breakdown.total - breakdown.kept
    assert ledger(kept).total == ledger(kept).kept == breakdown.kept
    assert ledger(config).to_json() == breakdown.to_json()
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    assert breakdown.optimizer_bytes["total"] == 2 * 4 * trained


OBJECTIVES = {
    "late": (LateMaskedLM, {"output_embedding_dim": 10, "decoder_layers": 2}),
    "late, coupled": (LateMaskedLM, {"output_embedding_dim": 6, "decoder_layers": 1, "coupling": "coupled"}),
    "detection": (ReplacedTokenDetection, {"output_embedding_dim": 10}),
    "detection, apart": (
        ReplacedTokenDetection,
        {"output_embedding_dim": 10, "sharing": "none", "generator_layers": 1, "generator_scale": 0.5},
    ),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("block", [PostNorm, PreNorm])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_counts_other_objectives(name, block):
    make, arguments = OBJECTIVES[name]
    model = make(Encoder(**(SMALL | {"block": block})), **arguments)
    breakdown = ledger(model)
    assert breakdown.kept == model.drop_heads().count_params()
    assert breakdown.total == model.count_params() - sum("seed" in weight.path for weight in model.weights) * 2
    trained = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    assert breakdown.optimizer_bytes["total"] == 2 * 4 * trained


@pytest.mark.any_backend
def test_the_published_model():
    encoder = {
        "vocabulary_size": 250_300,
        "num_layers": 32,
        "num_heads": 18,
        "hidden_dim": 1152,
        "intermediate_dim": 4608,
        "input_embedding_dim": 256,
    }
    breakdown = ledger({"encoder": encoder, "output_embedding_dim": 1664})
    assert (breakdown.kept, breakdown.total) == (575_920_384, 994_591_804)
    assert breakdown.bytes["kept"] == 4 * 575_920_384


MOBILE = {"block": Bottleneck(2), "input_embedding": Trigrams, "activation": "relu", "head_dim": 4}
ATTENTIONS = [  # of 20 tokens: in blocks that fill the row or not, and last, where some queries are picked
    (MaskedLM, {"block": PreNorm, "attention": [Local(8), Global(), Local(6)]}),
    (LateMaskedLM, {"attention": [Global(), Local(6)], "max_sequence_length": 20}),
    (MaskedLM, {"attention": [Nystrom(4, iterations=3), Global(), Nystrom(3)]}),
    (LateMaskedLM, {"block": PreNorm, "attention": [Nystrom(6), Nystrom(19)]}),
]

FROZEN = {"freeze_input_embedding": True, "input_embedding_dim": 16}
COUPLED, BARE = {"coupling": "coupled"}, {"block": PreNorm, "num_segments": 0}  # nothing beside a table
HELD = [{"block": PostNorm}, {"block": PreNorm}, {"block": Bottleneck, "activation": "relu"}]
HELD += [{"block": PreNorm, "attention": kind} for kind in (Local(16), Nystrom(8))]


def count_products(jaxpr):
    """FLOPs of all matrix products of a traced program."""
    flops = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            flops += 2 * equation.outvars[0].aval.size * int(np.prod([shape[axis] for axis in contracted]))
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                flops += count_products(inner)
    return flops


@pytest.mark.skipif(keras.config.backend() != "jax", reason="counted in JAX's traces, in the run on JAX")
@pytest.mark.parametrize(
    ("make", "changes", "arguments"),
    [
        (MaskedLM, {"block": PreNorm, "head_dim": 4}, {"output_embedding_dim": 10}),
        (MaskedLM, {"input_cutoffs": (40,)}, {"output_embedding_dim": 16, "output_cutoffs": (20, 60)}),
        (
            MaskedLM,
            {"layer_sharing": "all", "input_embedding": Projected},
            {"output_embedding_dim": 10, "kept_layers": 1, "keep": "top"},
        ),
        (
            MaskedLM,
            {"block": PreNorm, "layer_sharing": "attention", "layer_groups": 2},
            {"output_embedding_dim": 10, "kept_layers": 2, "keep": "alternate"},
        ),
        (LateMaskedLM, {"block": PreNorm, "scalar_mix": True}, {"output_embedding_dim": 10, "decoder_layers": 2}),
        (ReplacedTokenDetection, {"input_cutoffs": (20, 40)}, {"output_embedding_dim": 16, "coupling": "coupled"}),
        *((make, changes, {"output_embedding_dim": 10}) for make, changes in ATTENTIONS),
        (MaskedLM, MOBILE, {"output_embedding_dim": 20, "coupling": "extended"}),
    ],
)
def test_flops_are_those_of_the_traced_program(make, changes, arguments):
    import jax

    length, predictions = 20, 3
    config = SMALL | {"max_sequence_length": length, "input_embedding_dim": 16} | changes
    model = make(Encoder(**config), **arguments)
    rows = np.ones((1, length), "int32")
    positions = np.arange(1, 1 + predictions, dtype="int32")[None]
    x = {"token_ids": rows, "segment_ids": rows * 0, "padding_mask": rows, "mask_positions": positions}
    traced = jax.make_jaxpr(model)(x)
    breakdown = ledger(model, sequence_length=length, mask_rate=predictions / length)
    # the pooler is no part of what the loss needs, but is of the encoder's outputs; rounding is to whole FLOPs a token
    pooler = next(entry.flops for entry in breakdown.entries if entry.name == "pooler") if make is LateMaskedLM else 0
    counted = count_products(traced.jaxpr)
    assert (breakdown.flops["total"] - pooler) * length == pytest.approx(counted, rel=2e-3)
    if make is not LateMaskedLM:  # whose encoder reads less than it will when it is alone
        kept = model.drop_heads()
        traced = jax.make_jaxpr(kept)({key: x[key] for key in kept.input})
        assert breakdown.flops["kept"] * length == pytest.approx(count_products(traced.jaxpr), rel=2e-3)


@pytest.mark.skipif(keras.config.backend() != "jax", reason="counted in JAX's traces, in the run on JAX")
@pytest.mark.parametrize(
    ("make", "changes", "arguments"),
    [
        (MaskedLM, {"block": PreNorm, "head_dim": 4}, {"kept_layers": 1, "keep": "bottom"}),
        (MaskedLM, {"scalar_mix": True}, {}),
        (MaskedLM, {}, {"kept_layers": 2, "keep": "top"}),
        (MaskedLM, {"layer_sharing": "all", "layer_groups": 2}, {"kept_layers": 1, "keep": "alternate"}),
        (LateMaskedLM, {"block": PreNorm, "scalar_mix": True, "layer_sharing": "all"}, {"decoder_layers": 2}),
        (ReplacedTokenDetection, {"input_cutoffs": (40,)}, {"generator_layers": 1}),
        (MaskedLM, FROZEN, {}),
        (MaskedLM, FROZEN | {"input_cutoffs": (20, 40)}, COUPLED),
        (LateMaskedLM, FROZEN, COUPLED),
        *((ReplacedTokenDetection, FROZEN, arguments) for arguments in ({}, COUPLED)),
        (MaskedLM, FROZEN | {"input_cutoffs": (20, 40)}, {"output_cutoffs": (40,)}),
        (MaskedLM, FROZEN, {"coupling": "gdes"}),
        *((MaskedLM, FROZEN | BARE | {"input_embedding": each}, {}) for each in (Trigrams, Projected)),
        (ReplacedTokenDetection, FROZEN, COUPLED | {"sharing": "none"}),
        *((make, changes, {}) for make, changes in ATTENTIONS),
        (MaskedLM, MOBILE, {"coupling": "extended"}),
    ],
)
def test_training_flops_are_those_of_a_traced_step(make, changes, arguments):
    import jax
    from jax.interpreters import partial_eval

    length, predictions = 20, 3
    width = 16 if "coupling" in arguments else 10
    model = make(Encoder(**(SMALL | {"max_sequence_length": length} | changes)), width, **arguments)
    ids, positions = np.ones((1, length), "int32"), np.arange(1, 1 + predictions, dtype="int32")[None]
    x = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids, "mask_positions": positions}
    x, _, _ = model._completed((x, positions, None), model.step_numbers(training=False))  # as a step does
    variables = model.trainable_variables

    def loss(values):
        with keras.StatelessScope([*zip(variables, values, strict=True)]):
            return model.compute_loss(x, positions, model(x, training=True))

    traced = jax.make_jaxpr(jax.grad(loss))([variable.value for variable in variables]).jaxpr
    needed, _ = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))  # without what nothing reads
    breakdown = ledger(model, sequence_length=length, mask_rate=predictions / length)
    assert breakdown.training_flops["total"] * length == pytest.approx(count_products(needed), rel=2e-3)


@pytest.mark.skipif(keras.config.backend() != "jax", reason="JAX shows what a backward pass holds, in the run on JAX")
@pytest.mark.parametrize("changes", HELD)
def test_activations_are_what_a_backward_pass_holds(changes):
    import jax

    rows, length, predictions = 4, 64, 10
    model = MaskedLM(Encoder(1000, 3, 4, 64, 256, 32, max_sequence_length=length, **changes), 96)
    ids = np.ones((rows, length), "int32")
    x = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids, "mask_positions": ids[:, :predictions]}
    frozen = [variable.value for variable in model.non_trainable_variables]

    def loss(weights):
        logits, _ = model.stateless_call(weights, frozen, x)
        return jax.nn.log_softmax(logits)[..., 0].mean()

    weights = [variable.value for variable in model.trainable_variables]
    backward = jax.eval_shape(lambda values: jax.vjp(loss, values)[1], weights)  # holds the same as if it ran
    held = sum(x.size * x.dtype.itemsize for x in jax.tree_util.tree_leaves(backward) if x.shape[:1] == (rows,))
    predicted = ledger(model, sequence_length=length, mask_rate=predictions / length).activation_bytes["total"]
    # uncompiled, JAX also holds what is cheap to have again: squares, means, the inner part of GELU
    assert 1.0 < held / (rows * length) / predicted < 1.5


@pytest.mark.any_backend
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("make", [MaskedLM, ReplacedTokenDetection])
def test_bytes_are_those_of_the_variables_in_any_precision(make, dtype):
    model = make(Encoder(**SMALL, dtype=dtype), 10)
    optimizer = TrainingOptimizer(keras.optimizers.Adam())
    optimizer.build(model.trainable_variables)

    def size(variables):  # of an optimizer without its numbers of steps and rates
        widths = {"float32": 4, "bfloat16": 2}
        return sum(widths[v.dtype] * int(np.prod(v.shape)) for v in variables if len(v.shape))

    counted = ledger(model)
    assert counted.bytes["total"] == size(model.weights) == counted.bytes["kept"] + size(model.droppable_variables)
    assert counted.optimizer_bytes["total"] == size(optimizer.variables)
    assert counted.activation_bytes["total"] == (4 if dtype == "float32" else 2) * counted.activations
    sizes = {"encoder": SMALL | {"dtype": dtype}, "output_embedding_dim": 10}
    plain = ledger(sizes, entries=make.ledger_entries)
    assert plain.to_json() == counted.to_json()
    assert f"bytes in {model.encoder.dtype_policy.variable_dtype}" in [*plain.table().columns[0].cells]


@pytest.mark.any_backend
def test_the_table_shows_both_columns():
    from rich.console import Console

    console = Console(width=100)
    with console.capture() as printed:
        console.print(ledger({"encoder": SMALL, "output_embedding_dim": 10}).table())
    text = printed.get()
    assert all(word in text for word in ("kept", "dropped", "input embedding", "output embedding", "FLOPs", "bytes"))


@pytest.mark.any_backend
def test_a_missing_size_is_named():
    with pytest.raises(KeyError, match="hidden_dim"):
        ledger({key: value for key, value in SMALL.items() if key != "hidden_dim"})
