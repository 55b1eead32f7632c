"""Steps compiled for TPUs that are not here, where their compiler is installed: `make test-tpu` runs these."""

import json
from pathlib import Path

import keras
import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.programs.chips import CHIPS, chip_of
from rembed_keras.errors import UserError
from rembed_keras.modeling.attention.full import softmax_attention
from rembed_keras.modeling.attention.kernels import splash_attention
from rembed_keras.modeling.documents import attention_mask
from rembed_keras.training.compiling import topologies
from rembed_keras.training.compiling.compiled import compiled, refusal
from rembed_keras.training.compiling.lowering import Step

pytestmark = pytest.mark.skipif(keras.config.backend() != "jax", reason="only JAX compiles for what is not there")
ROOT = Path(__file__).parents[3]
TINY = {
    "NUM_LAYERS": 1,
    "VOCABULARY_SIZE": 1000,
    "INPUT_EMBEDDING_DIM": 64,
    "OUTPUT_EMBEDDING_DIM": 128,
    "modeling.Encoder.hidden_dim": 128,
    "modeling.Encoder.num_heads": 2,
    "modeling.Encoder.intermediate_dim": 256,
    "BATCH_SIZE": 8,
    "SEQUENCE_LENGTH": 64,
    "STRATEGY": "model_parallel",
}


@pytest.fixture(scope="module")
def chips():
    """The devices of a topology of four."""
    pytest.importorskip("libtpu", reason="make test-tpu runs it")
    return topologies.devices_of("v5e:2x2")


def compiled_product(chips, rows):
    """The gradient by w of sum(tanh(x w) w), x being spread by rows: tanh's result is kept for the backward pass."""
    import jax
    import numpy as np
    from jax import numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(chips), ("rows",))
    whole, spread = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("rows",)))
    w = jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=whole)
    x = jax.ShapeDtypeStruct((rows, 1024), "float32", sharding=spread)
    step = jax.jit(jax.grad(lambda w, x: jnp.sum(jnp.tanh(x @ w) @ w)), out_shardings=whole)
    flops = 2 * 3 * rows * 1024 * 1024
    return compiled(Step(step.lower(w, x), 4 * 2**20, 0, flops, 1), "v5e:2x2", chip_of("v5e:2x2"), 4, "", rows)


def test_the_kind_of_a_chip_is_what_jax_calls_it(chips):
    assert {each.device_kind for each in chips} == {chip_of("v5e:2x2").kind} and chip_of("v5e:2x2") in CHIPS


def test_temporaries_are_those_that_lie_in_memory(chips):
    large = compiled_product(chips, rows=2**18)
    kept = 2**16 * 1024 * 4  # tanh of a chip's rows
    assert large.temporary_bytes == pytest.approx(kept, rel=0.02) and large.fits
    rows_and_matrices = kept + 2 * 4 * 2**20
    assert large.used_bytes == pytest.approx(kept + rows_and_matrices, rel=0.02)
    assert large.traffic.memory >= 2 * kept  # rows are read; tanh's result is written or read
    assert large.traffic.results["all-reduce"] + 4 * large.traffic.results["reduce-scatter"] == pytest.approx(
        4 * 2**20, rel=0.01
    )
    small = compiled_product(chips, rows=2**8)
    assert small.temporary_bytes == 0  # all lie beside the chip's units


def test_a_step_that_does_not_fit_says_how_much_it_takes(chips):
    step = compiled_product(chips, rows=2**24)
    kept = 2**22 * 1024 * 4
    assert not step.fits and step.bound is None and step.tokens_per_second is None
    assert step.used_bytes == pytest.approx(2 * kept, rel=0.05) and 15 * 2**30 < step.room <= 16 * 2**30


def test_a_topology_that_there_is_not_is_refused(chips):
    with pytest.raises(UserError, match="there is no topology v5e:3x5"):
        topologies.devices_of("v5e:3x5")


def test_without_the_compiler_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"libtpu, which is not installed: pip install 'rembed-keras\[tpu\]'$"):
        topologies.devices_of("v5e:2x2")


@pytest.mark.parametrize("said", ["Used 17.50G of 15.75G hbm. Exceeded hbm capacity by 1.75G.", "it is another error"])
def test_a_refusal_is_known_among_other_errors(said):
    assert refusal(said) == ((int(17.5 * 2**30), int(15.75 * 2**30)) if "hbm" in said else None)


@pytest.mark.slow
def test_gradients_of_matrices_in_parts_are_summed_in_parts_on_a_grid_of_chips(chips, command, tmp_path):
    knobs = [f"{name}={value}" for name, value in (TINY | {"STRATEGY": "fully_sharded", "BATCH_SIZE": 16}).items()]
    code, out, err = command(
        "compile", ROOT / "recipes" / "rembert.gin", *knobs, "--topology", "v5e:4x4", "--json", cwd=tmp_path
    )
    assert code == 0, err
    found = json.loads(out)["collectives"]
    feed_forward = 2 * 4 * 128 * 256  # bytes, of which a chip gets a quarter along the first side of the grid
    assert found["reduce-scatter"]["result_bytes"] > feed_forward / 4


@pytest.mark.slow
def test_a_recipe_is_compiled_and_the_table_says_what_binds_it(chips, command, tmp_path):
    knobs = [f"{name}={value}" for name, value in TINY.items()]
    code, out, err = command(
        "compile", ROOT / "recipes" / "rembert.gin", *knobs, "--topology", "v5e:2x2", "--json", cwd=tmp_path
    )
    assert code == 0, err
    found = json.loads(out)
    widths = {"input_embedding_dim": 64, "hidden_dim": 128, "intermediate_dim": 256, "num_layers": 1, "num_heads": 2}
    counted = ledger({"encoder": {"vocabulary_size": 1000} | widths, "output_embedding_dim": 128}, 64)
    tables, pooler = 1000 * (64 + 128), 128 * 128 + 128
    parameters = counted.total - pooler - tables * 3 // 4
    assert found["parameter_bytes"] == pytest.approx(4 * parameters, abs=200)
    assert found["slot_bytes"] == pytest.approx(8 * parameters, abs=200)
    assert 0.5 < (found["used_bytes"] - found["code_bytes"]) / found["ledger_bytes"] < 1.1  # no gradients in memory
    assert found["fits"] and found["bound"] in ("memory", "interconnect")
    assert found["collectives"]["all-reduce"]["sent_bytes"] > 4 * (parameters - tables // 4)  # gradients, summed
    assert found["ledger_tokens_per_second"] == pytest.approx(4 * 197e12 / counted.training_flops["total"])
    assert not [*tmp_path.iterdir()]


def test_splash_attention_compiles_and_has_no_scores_of_all_pairs_in_memory(chips):
    import jax
    from jax.sharding import SingleDeviceSharding

    length, heads = 4096, 8

    def scores(attend):
        def loss(query, key, value, documents):
            return jax.numpy.sum(attend(query, key, value, documents).astype("float32") ** 2)

        here = SingleDeviceSharding(chips[0])
        rows = [jax.ShapeDtypeStruct((1, length, heads, 64), "bfloat16", sharding=here)] * 3
        documents = jax.ShapeDtypeStruct((1, length), "int32", sharding=here)
        return jax.jit(jax.grad(loss, argnums=(0, 1, 2))).lower(*rows, documents).compile()

    fused = scores(lambda *rows: splash_attention(*rows, rows[-1], window=None))
    dense = scores(lambda *rows: softmax_attention(*rows[:3], attention_mask(rows[-1]), drop=None))
    assert fused.as_text().count('"tpu_custom_call"') == 3 and "tpu_custom_call" not in dense.as_text()
    of_all_pairs = 2 * heads * length**2  # bytes, in bfloat16
    assert fused.memory_analysis().temp_size_in_bytes < of_all_pairs / 4
    assert dense.memory_analysis().temp_size_in_bytes > of_all_pairs
