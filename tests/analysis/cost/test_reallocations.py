"""What `rembed solve --from` proposes fits its budget, is the widest that does, and can be made."""

import re
import shlex
import shutil

import pytest

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.analysis.cost.reallocations import reallocations
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model
from rembed_keras.interop.reallocation.depth import with_depth
from rembed_keras.interop.reallocation.embeddings import with_width
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.attention import Disentangled, Global
from rembed_keras.modeling.blocks import Bottleneck
from rembed_keras.modeling.input_embeddings import Trigrams
from rembed_keras.training.initial import places

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


@pytest.mark.parametrize("count", [1, 3])
def test_layers_that_may_share_weights_stay_as_many_though_each_has_a_group_of_its_own(count):
    albert = BERT | {"layer_sharing": "all", "layer_groups": [*range(count)], "num_layers": count}
    assert {one.num_layers for one in reallocations(albert, 23_000_000)} == {count}


def test_layers_stay_where_the_table_need_not_get_very_narrow():
    assert reallocations(BERT, 23_000_000)[0].options(BERT) == ""
    first = reallocations(BERT, 14_000_000)[0]
    assert (first.num_layers, first.input_embedding_dim) == (6, 96)
    tight = reallocations(BERT, 11_900_000)[0]  # six layers would leave 32 of 384
    assert tight.num_layers < 6 and tight.input_embedding_dim >= 64


def test_a_cut_without_the_layers_that_know_positions_is_counted_without_a_table_of_them():
    sizes = BERT | {"vocabulary_size": 50, "hidden_dim": 24, "intermediate_dim": 8, "input_embedding_dim": 24}
    encoder = Encoder(**sizes | {"num_layers": 2, "attention": [Global(), Disentangled(4)]})
    counts = {one.num_layers: one.kept for one in reallocations(encoder.arguments, 10**6)}
    assert counts[1] == with_depth(encoder, 1).count_params()
    shallow = Encoder(**sizes | {"num_layers": 1, "attention": [Global(), Disentangled(4)]})
    counts = {one.num_layers: one.kept for one in reallocations(shallow.arguments, 10**6)}
    assert counts[2] == with_depth(shallow, 2).count_params()  # new layers are copies, and none knows positions


def test_a_table_as_wide_as_the_blocks_is_counted_with_the_projection_that_narrowing_makes():
    encoder = Encoder(1000, 2, 2, 64, 128, 128, max_sequence_length=32, always_project=False)
    for width, count in ((64, with_width(encoder, 64)[0].count_params()), (128, encoder.count_params())):
        counts = {one.num_layers: one.kept for one in reallocations(encoder.arguments, 10**6, [width])}
        assert counts[2] == count


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


def test_the_encoder_is_looked_for_once(pretrained, tmp_path, command, monkeypatch):
    asked, find = [], places.find
    monkeypatch.setattr(places, "find", lambda *words, **named: asked.append(words) or find(*words, **named))
    code, _, err = command("solve", "--from", pretrained, "--kept", "9000", cwd=tmp_path)
    assert code == 0 and len(asked) == 1, err


def test_text_is_asked_for_where_the_table_gets_narrower_alone(tmp_path, command):
    encoder = Encoder(100, 2, 2, 8, 16, 4, max_sequence_length=8)
    encoder.save_to_preset(str(tmp_path / "two"))
    half = ledger(encoder.arguments | {"num_layers": 1}).kept
    code, out, err = command("solve", "--from", "two", "--kept", half, cwd=tmp_path)
    assert code == 0, err
    typed = shlex.split(out.splitlines()[-1])
    assert typed == ["rembed", "reallocate", "two", "TARGET", "--num-layers", "1"]
    assert command(*typed[1:], cwd=tmp_path)[0] == 0


def test_a_table_that_cannot_be_narrowed_stays_as_wide(tmp_path, command):
    encoder = Encoder(
        500,
        4,
        2,
        64,
        128,
        32,
        max_sequence_length=32,
        block=Bottleneck,
        head_dim=16,
        input_embedding=Trigrams(),
    )
    encoder.save_to_preset(str(tmp_path / "mob"))
    half = ledger(encoder.arguments | {"num_layers": 2}).kept
    assert {one.input_embedding_dim for one in reallocations(encoder.arguments, half)} == {32}
    code, out, err = command("solve", "--from", "mob", "--kept", half, cwd=tmp_path)
    assert code == 0 and out.splitlines()[-1] == "rembed reallocate mob TARGET --num-layers 2", err
    code, _, err = command("solve", "--from", "mob", "--kept", half, "--e-in", "16,32", cwd=tmp_path)
    assert code == 2 and "its tables cannot be narrowed" in err


def test_what_reallocate_refuses_is_not_proposed(tmp_path, command):
    encoder = Encoder(100, 2, 2, 8, 16, 4, max_sequence_length=8)
    encoder.parts.projection.quantize("int8")
    encoder.save_to_preset(str(tmp_path / "int8"))
    said = {command("solve", "--from", "int8", "--kept", "1M", cwd=tmp_path)}
    said.add(command("reallocate", "int8", "out", "--num-layers", "1", cwd=tmp_path))
    ((code, out, err),) = said
    assert (code, out) == (2, "") and "this encoder has LoRA, adapters or quantized layers" in err


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_no_terminal_is_too_narrow_for_proposals(columns, pretrained, tmp_path, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, err = command("solve", "--from", pretrained, "--kept", "9000", "--e-in", "3", cwd=tmp_path)
    assert code == 0, err
    table = out.partition("rembed reallocate")[0]
    assert "\u2026" not in table and max(map(len, table.splitlines())) <= columns
    assert {"--input-embedding-dim", "--num-layers", "E_in"} <= set(re.split(r"[\s:]+", table))


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
    "an aspect": (["--from", "RUN", "--kept", "1M", "--aspect", "30..40"], "--aspect is of new encoders"),
    "a block": (["--from", "RUN", "--kept", "1M", "--block", "PreNorm"], "--block is of new encoders"),
    "a length": (
        ["--from", "RUN", "--kept", "1M", "--sequence-length", "99"],
        "--sequence-length is of new encoders",
    ),
    "no widths": (["--from", "RUN", "--kept", "1M", "--e-in", ""], "Invalid value for '--e-in': it is empty"),
    "neither": (["--kept", "1M"], "--vocabulary is missing"),
    "a package of a new one": (
        ["--kept", "1M", "--vocabulary", "9", "--allow-import", "json"],
        "--allow-import is of the encoder that --from names",
    ),
    "a checkpoint": (["--from", "RUN/checkpoints/step-00000001", "--kept", "1M"], "takes the newest checkpoint: name "),
    "a task": (["--from", "RUN/finetuned/a b", "--kept", "1M"], "--from run --to preset --task 'a b'"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line(what, pretrained, tmp_path, command):
    arguments, message = MISTAKES[what]
    run = tmp_path / "run" if what == "a task" else pretrained
    if what == "a task":
        shutil.copytree(pretrained / "checkpoints", run / "finetuned/a b/pretrained-lr0.001-seed0")
    arguments = [each.replace("RUN", str(run)) for each in arguments]
    code, _, err = command("solve", *arguments, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
