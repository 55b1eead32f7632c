"""Merging equals its definitions by hand, entry by entry, and refuses what cannot be merged."""

import math

import keras
import numpy as np
import pytest

from rembed_keras.cli.merging import HOWS
from rembed_keras.errors import UserError
from rembed_keras.interop import merging, read_model, write
from rembed_keras.interop.merging import greedy, merge, slerp, ties
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.modeling.input_embeddings import Summed
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward


def ties_by_hand(base, tensors, kept):
    """Trim, elect, merge of lists of numbers, one entry after the other."""
    changes = [[value - start for value, start in zip(each, base, strict=True)] for each in tensors]
    trimmed = []
    for change in changes:
        largest = sorted(range(len(change)), key=lambda i: -abs(change[i]))[:kept]
        trimmed.append([value if i in largest else 0.0 for i, value in enumerate(change)])
    made = []
    for i, start in enumerate(base):
        column = [change[i] for change in trimmed]
        sign = math.copysign(1, sum(column)) if sum(column) else 0
        same = [value for value in column if value * sign > 0]
        made.append(start + (sum(same) / len(same) if same else 0.0))
    return made


def test_ties_are_those_of_loops():
    rng = np.random.default_rng(0)
    base, tensors = rng.normal(size=40), rng.normal(size=(3, 40))
    made = ties(base.reshape(5, 8), tensors.reshape(3, 5, 8), density=0.3)
    np.testing.assert_allclose(made.ravel(), ties_by_hand(base.tolist(), tensors.tolist(), 12), atol=1e-12)
    np.testing.assert_allclose(ties(base, [tensors[0]], density=1.0), tensors[0], atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_slerp_turns_by_a_share_of_the_angle(share):
    one, other = np.array([2.0, 0.0]), 3 * np.array([math.cos(1.2), math.sin(1.2)])
    wanted = (2 + share) * np.array([math.cos(1.2 * share), math.sin(1.2 * share)])
    np.testing.assert_allclose(slerp(one, other, share), wanted, atol=1e-12)
    np.testing.assert_allclose(slerp(one, 2 * one, share), (1 + share) * one, atol=1e-12)
    np.testing.assert_allclose(slerp(0 * one, other, share), share * other, atol=1e-12)


def test_greedy_leaves_out_what_does_not_help():
    models = [[np.array([value])] for value in (0.0, 3.0, 1.5, 40.0)]
    made, taken, best = greedy(models, lambda tensors: -abs(float(tensors[0][0]) - 1.0))
    # 1.5 alone is off by 0.5; with 0.0 the mean is 0.75, off by 0.25; with 3.0 it is 1.5, and with 40.0 far off
    assert (made[0].tolist(), taken, best) == ([0.75], [2, 0], -0.25)


def test_an_average_of_encoders_is_that_of_their_weights(tmp_path):
    assert HOWS == merging.HOWS
    one = random_model().encoder
    other = type(one).from_config(one.get_config())
    for weight, base in zip(other.weights, one.weights, strict=True):
        weight.assign(base.numpy() + np.random.default_rng(4).normal(0, 0.1, base.shape))
    made, _ = merge([one, other])
    for weights in zip(made.weights, one.weights, other.weights, strict=True):
        ours, *theirs = (np.asarray(weight, "float64") for weight in weights)
        np.testing.assert_allclose(ours, sum(theirs) / 2, atol=1e-7)
    same, notes = merge(
        [one, other, one], "greedy", score=lambda each: -float(np.abs(each.weights[0] - one.weights[0]).max())
    )
    assert notes == ["2 of 3 models are in it, number 1, 3; its score is -0.0000"]
    for ours, theirs in zip(*(forward(each, rows_of_text())["hidden_states"] for each in (same, one)), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_what_models_were_trained_with_may_differ():
    one, other = (random_model(each).encoder for each in ({"dropout": 0.1}, {"dropout": 0.0, "rematerialize": True}))
    made, notes = merge([one, other, one])
    assert (made.arguments["dropout"], made.arguments["rematerialize"]) == (0.1, False)
    assert len(notes) == 2 and notes[0].startswith("dropout is 0.1, as in the first model")


ONE_GRAPH = {
    "kernels": ({}, {"attention": Global(kernel="dense")}),
    "a projection that is needed": ({"always_project": True}, {"always_project": False}),
    "the width of heads": ({"head_dim": None}, {"head_dim": 8}),
    "how tables are read": ({"input_embedding": None}, {"input_embedding": Summed()}),
    "rows without a table of positions": (
        {"block": PreNorm, "max_sequence_length": 16},
        {"block": PreNorm, "max_sequence_length": 32},
    ),
    "groups of a cut encoder": ({"layer_sharing": "all"}, {"layer_sharing": "all", "layer_groups": [1, 1]}),
}


@pytest.mark.parametrize("what", ONE_GRAPH)
def test_how_one_graph_is_said_may_differ(what):
    one, other = (random_model({"num_layers": 2} | each).encoder for each in ONE_GRAPH[what])
    made, notes = merge([one, other, other])
    assert notes == [] and [weight.shape for weight in made.weights] == [weight.shape for weight in other.weights]


@pytest.mark.parametrize(("how", "base"), [("average", False), ("ties", True)])
def test_a_model_with_non_finite_values_is_refused(how, base):
    one, other = (random_model({"num_layers": 1}).encoder for _ in range(2))
    table = other.token_embedding.embeddings
    table.assign(np.asarray(table) * np.where(np.arange(table.shape[1]) == 1, np.nan, 1))
    with pytest.raises(UserError, match="embeddings/token/embeddings of model 2 has non-finite values: leave this mo"):
        merge([one, other], how, one if base else None)
    with pytest.raises(UserError, match="embeddings/token/embeddings of the base has non-finite values: take another"):
        merge([one, one], "ties", other)


def test_another_dtype_than_the_first_has_is_said():
    one, other = (random_model({"num_layers": 1, "dtype": dtype}).encoder for dtype in ("mixed_bfloat16", "float32"))
    made, notes = merge([one, other])
    assert notes == ["dtype is mixed_bfloat16, as in the first model; others have other values"]
    assert made.dtype_policy.name == "mixed_bfloat16"


def test_what_was_added_is_refused():
    one, other = (random_model().encoder for _ in range(2))
    other.enable_lora(2)
    with pytest.raises(UserError, match="model 2 has LoRA, adapters or quantized layers"):
        merge([one, other])


MISTAKES = {
    "one model": (["one", "out"], "average merges two or more models; 1 are given"),
    "three for slerp": (["one", "two", "one", "out", "--how", "slerp"], "slerp merges two models; 3 are given"),
    "another shape": (["one", "deep", "out"], "num_layers is 2 in model 2 and 3 in the first"),
    "ties without a base": (["one", "two", "out", "--how", "ties"], "a base, the model that all were trained from"),
    "greedy without data": (["one", "two", "out", "--how", "greedy"], "development data are needed by greedy"),
    "a target that exists": (["one", "two", "one"], "one already exists"),
    "a share": (["one", "two", "out", "--how", "slerp", "--share", "2"], "share is 2.0"),
    "no model": (["one", "none", "out"], "none is not a run"),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merging")
    one = random_model().encoder
    write(one, str(folder / "one"), "preset", None)
    for weight in one.weights:
        weight.assign(weight + 0.5)
    write(one, str(folder / "two"), "preset", None)
    write(random_model({"num_layers": 2}).encoder, str(folder / "deep"), "preset", None)
    return folder


def test_the_command(folders, tmp_path, command):
    options = ["--how", "slerp", "--share", "1.0"]
    code, out, err = command("merge", folders / "one", folders / "two", tmp_path / "out", *options, cwd=tmp_path)
    assert code == 0 and out.splitlines()[-1].endswith(f"slerp of {folders / 'one'}, {folders / 'two'}"), err
    made, wanted = (read_model(str(path))[0] for path in (tmp_path / "out", folders / "two"))
    for ours, theirs in zip(made.weights, wanted.weights, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), atol=1e-6)
    keras.backend.clear_session()


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line_and_nothing_is_written(what, folders, command):
    arguments, message = MISTAKES[what]
    before = sorted(folders.rglob("*"))
    code, _, err = command("merge", *arguments, cwd=folders)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
    assert sorted(folders.rglob("*")) == before


def test_a_model_without_a_tokenizer_is_named(folders, corpus, tmp_path, command):
    write(random_model({"vocabulary_size": 900}).encoder, str(tmp_path / "whole"), "preset", corpus.tokenizer.path)
    for order in (("whole", folders / "one"), (folders / "one", "whole")):
        code, _, err = command("merge", *order, "out", cwd=tmp_path)
        assert code == 2 and f"{folders / 'one'} has no tokenizer beside it, and whole has one" in err
