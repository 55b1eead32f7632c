"""What `rembed solve --from` proposes fits its budget, is the widest that does, and can be made."""

import shlex

import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.cost.reallocations import reallocations
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model

BERT = {
    "vocabulary_size": 30522,
    "num_layers": 6,
    "num_heads": 12,
    "hidden_dim": 384,
    "intermediate_dim": 1536,
    "input_embedding_dim": 384,
    "always_project": False,
}


@pytest.mark.parametrize("kept", [23_000_000, 16_000_000, 13_500_000, 9_000_000])
def test_proposals_fit_and_nothing_wider_does(kept):
    for one in reallocations(BERT, kept):
        made = BERT | {"num_layers": one.num_layers, "input_embedding_dim": one.input_embedding_dim}
        assert ledger(made).kept == one.kept <= kept
        wider = made | {"input_embedding_dim": min(one.input_embedding_dim + 32, 384)}
        assert wider == made or ledger(wider).kept > kept


def test_layers_stay_where_the_table_need_not_get_very_narrow():
    assert reallocations(BERT, 23_000_000)[0].options(BERT) == ""
    first = reallocations(BERT, 14_000_000)[0]
    assert (first.num_layers, first.input_embedding_dim) == (6, 96)
    tight = reallocations(BERT, 11_900_000)[0]  # six layers would leave 32 of 384
    assert tight.num_layers < 6 and tight.input_embedding_dim >= 64


def test_layers_that_are_shared_stay_and_bands_are_refused():
    shared = BERT | {"layer_sharing": "all", "input_embedding_dim": 128, "always_project": True}
    assert {one.num_layers for one in reallocations(shared, 5_000_000)} == {6}
    with pytest.raises(UserError, match="in bands"):
        reallocations(BERT | {"input_cutoffs": [100]}, 10**8)
    with pytest.raises(UserError, match=r"nothing fits in 1,000 parameters: the least is [\d,]+, 1 layers and a table"):
        reallocations(BERT, 1000)


def test_the_command_prints_what_can_be_typed(pretrained, tmp_path, command):
    code, out, err = command("solve", "--from", pretrained, "--kept", "4500", "--e-in", "3,4", cwd=tmp_path)
    assert code == 0, err
    typed = shlex.split(out.splitlines()[-1])
    assert typed[:3] == ["rembed", "reallocate", str(pretrained)] and typed[-2:] == ["--text", "TEXT_DIR"]
    assert command(*typed[1:-2], cwd=tmp_path)[0] == 0
    made, _ = read_model(str(tmp_path / "TARGET"))
    assert made.encoder.count_params() <= 4500


MISTAKES = {
    "nowhere": (["--from", "none", "--kept", "1M"], "none is not a folder of a model"),
    "too small": (["--from", "RUN", "--kept", "10", "--e-in", "4"], "nothing fits in 10 parameters"),
    "too wide": (
        ["--from", "RUN", "--kept", "1M", "--e-in", "8"],
        "width 8 cannot be made of this one; it allows 2 to 4",
    ),
    "an option of new ones": (
        ["--from", "RUN", "--kept", "1M", "--vocabulary", "9"],
        "--vocabulary is of new encoders",
    ),
    "neither": (["--kept", "1M"], "--vocabulary is missing"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line(what, pretrained, tmp_path, command):
    arguments, message = MISTAKES[what]
    arguments = [pretrained if each == "RUN" else each for each in arguments]
    code, _, err = command("solve", *arguments, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
