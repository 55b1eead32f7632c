import keras
import numpy as np
import pytest

from rembed_keras.analysis import ledger
from rembed_keras.modeling import Encoder, MaskedLM

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


@pytest.mark.parametrize(("coupling", "width"), [("decoupled", 10), ("decoupled", 6), ("coupled", 6)])
def test_it_counts_what_keras_counts(coupling, width):
    encoder = Encoder(**SMALL)
    model = MaskedLM(encoder, width, coupling=coupling)
    account = ledger(model)
    assert account.kept == encoder.count_params()
    assert account.total == model.count_params()
    assert account.dropped == account.total - account.kept
    assert ledger(encoder).total == ledger(encoder).kept == account.kept
    flat = {"encoder": SMALL, "output_embedding_dim": width, "coupling": coupling}
    assert ledger(flat).to_json() == account.to_json()


def test_the_published_model():
    encoder = {
        "vocabulary_size": 250_300,
        "num_layers": 32,
        "num_heads": 18,
        "hidden_dim": 1152,
        "intermediate_dim": 4608,
        "input_embedding_dim": 256,
    }
    account = ledger({"encoder": encoder, "output_embedding_dim": 1664})
    assert (account.kept, account.total) == (575_920_384, 994_591_804)
    assert account.bytes["kept"] == 4 * 575_920_384


# (E_in, E_out, coupling, layers in pre-training, hidden) and the millions that the paper prints, cut off, not rounded
PAPER = {
    "table 2, coupled": ((768, 768, "coupled", 12, 768), 177, 177),
    "table 2, decoupled": ((768, 768, "decoupled", 12, 768), 269, 177),
    "table 3, narrow output": ((768, 128, "decoupled", 12, 768), 192, 177),
    "table 4, 128": ((128, 128, "decoupled", 12, 768), 115, 100),
    "table 4, 768": ((128, 768, "decoupled", 12, 768), 192, 100),
    "table 4, 3072": ((128, 3072, "decoupled", 12, 768), 469, 100),
    "table 6, deeper": ((128, 768, "decoupled", 23, 768), 270, 178),
}


@pytest.mark.parametrize("row", PAPER)
def test_the_papers_tables(row):
    (e_in, e_out, coupling, layers, hidden), pretraining, finetuning = PAPER[row]
    encoder = {
        "vocabulary_size": 120_000,
        "num_layers": layers,
        "num_heads": 12,
        "hidden_dim": hidden,
        "intermediate_dim": 4 * hidden,
        "input_embedding_dim": e_in,
    }
    account = ledger({"encoder": encoder, "output_embedding_dim": e_out, "coupling": coupling})
    assert (account.paper_total // 10**6, account.paper_kept // 10**6) == (pretraining, finetuning)


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
def test_flops_are_those_of_the_traced_program():
    import jax

    length, predictions = 20, 3
    model = MaskedLM(Encoder(**(SMALL | {"max_sequence_length": length})), 10)
    rows = np.ones((1, length), "int32")
    x = {"token_ids": rows, "segment_ids": rows * 0, "padding_mask": rows, "mask_positions": rows[:, :predictions]}
    traced = jax.make_jaxpr(model)(x)
    account = ledger(model, sequence_length=length, mask_rate=predictions / length)
    # the pooler is no part of what the loss needs, but is of the encoder's outputs; rounding is to whole FLOPs a token
    assert account.flops["total"] * length == pytest.approx(count_products(traced.jaxpr), rel=1e-3)


def test_the_table_shows_both_columns():
    from rich.console import Console

    console = Console(width=100)
    with console.capture() as printed:
        console.print(ledger({"encoder": SMALL, "output_embedding_dim": 10}).table())
    text = printed.get()
    assert all(word in text for word in ("kept", "dropped", "input embedding", "output embedding", "FLOPs", "bytes"))


def test_a_missing_size_is_named():
    with pytest.raises(KeyError, match="hidden_dim"):
        ledger({key: value for key, value in SMALL.items() if key != "hidden_dim"})
