"""`rembed reallocate`, from models in folders to models in folders."""

import json
import random
import shutil

import keras
import numpy as np
import pytest
import tokenizers

from rembed_keras.data.tokenizers.sentence_piece import Tokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import Plan, read_model, reallocate, write
from rembed_keras.interop.reallocation.embeddings import tables_of
from rembed_keras.interop.reallocation.heads import new_head
from rembed_keras.interop.reallocation.usage import UNSEEN, usage_of
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.layers.adapters import insert_adapters, insert_keras_lora
from rembed_keras.training.initial.places import find
from tests.interop.models import random_model
from tests.interop.reallocation.inputs import rows_of_text
from tests.modeling.forward import forward

BERT = {"input_embedding_dim": 16, "always_project": False}
SHALLOW = BERT | {"num_layers": 1}
SLOTS = {"mask_positions": np.tile([[1, 3]], (4, 1)).astype("int32")}


def predictions(model):
    return forward(model, rows_of_text() | SLOTS)


@pytest.mark.parametrize("coupling", ["coupled", "gdes", "decoupled", "extended"])
def test_the_former_output_table_stays_for_healing(coupling, tmp_path):
    model = random_model(SHALLOW, {"output_embedding_dim": 20 if coupling == "extended" else 16, "coupling": coupling})
    wanted = predictions(model)
    done = reallocate(model, str(tmp_path / "same"), Plan(input_embedding_dim=16))
    again, _ = read_model(str(tmp_path / "same"))
    assert done.share == pytest.approx(1) and again.get_config()["coupling"] == "decoupled"
    np.testing.assert_allclose(predictions(again), wanted, atol=5e-5)
    done = reallocate(model, str(tmp_path / "narrow"), Plan(input_embedding_dim=5))
    narrow, _ = read_model(str(tmp_path / "narrow"))
    assert (done.before["input_embedding_dim"], done.after["input_embedding_dim"]) == (16, 5)
    table = narrow.head.output_embedding.coupling.table.embeddings.numpy()
    np.testing.assert_array_equal(table, again.head.output_embedding.coupling.table.embeddings.numpy())


def test_a_shared_table_stays_shared_where_its_width_stays(tmp_path):
    model = random_model(BERT, {"output_embedding_dim": 16, "coupling": "coupled"})
    reallocate(model, str(tmp_path / "deep"), Plan(num_layers=5))
    deep, _ = read_model(str(tmp_path / "deep"))
    assert deep.get_config()["coupling"] == "coupled" and deep.encoder.num_layers == 5
    np.testing.assert_allclose(predictions(deep), predictions(model), atol=5e-5)


@pytest.mark.parametrize("width", [4, 24])
def test_a_new_head_starts_from_the_closest_table(width, tmp_path):
    model = random_model(SHALLOW).encoder
    reallocate(model, str(tmp_path / "out"), Plan(output_embedding_dim=width))
    made, _ = read_model(str(tmp_path / "out"))
    assert isinstance(made, MaskedLM)
    rows = model.token_embedding.embeddings.numpy().astype("float64")
    table = made.head.output_embedding.coupling.table.embeddings.numpy()[:, : min(width, 16)]
    values = np.linalg.svd(rows, compute_uv=False)[: table.shape[1]]
    np.testing.assert_allclose(np.linalg.svd(table, compute_uv=False), values, rtol=1e-4)


def test_a_new_head_is_the_same_each_time_and_seeds_of_the_program_stay():
    encoder, heads, draws = random_model(SHALLOW).encoder, [], []
    for seed in (1, 2):
        keras.utils.set_random_seed(seed)
        made, _ = new_head(encoder, encoder, 24)
        heads.append([np.asarray(weight) for weight in made.droppable_variables if weight.ndim == 2])
        draws.append(random.random())
    for one, other in zip(*heads, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one[:, -1].std() > 0.01
    assert len(heads[0]) == 2 and draws[0] != draws[1]


@pytest.mark.parametrize("width", [16, 12])
def test_a_trained_head_stays_where_its_own_width_is_asked_for(width, tmp_path):
    model = random_model(SHALLOW, {"output_embedding_dim": 16, "coupling": "coupled"})
    done = reallocate(model, str(tmp_path / "out"), Plan(input_embedding_dim=16, output_embedding_dim=width))
    made, _ = read_model(str(tmp_path / "out"))
    assert (done.share, made.get_config()["output_embedding_dim"]) == (pytest.approx(1), width)
    difference = np.abs(predictions(made) - predictions(model)).max()
    assert difference < 5e-5 if width == 16 else difference > 0.1


@pytest.mark.parametrize("has_head", [True, False])
def test_a_new_head_of_a_table_in_bands_is_refused(has_head, tmp_path):
    model = random_model({"input_cutoffs": (20,)})
    with pytest.raises(UserError, match="input_cutoffs has bands of several widths: no table is close to it"):
        reallocate(model if has_head else model.encoder, str(tmp_path / "out"), Plan(output_embedding_dim=12))


def test_sizes_out_of_all_reason_are_refused_first(tmp_path):
    with pytest.raises(UserError, match="num_layers is 10001; it can be 10000 at most"):
        reallocate(random_model(), str(tmp_path / "out"), Plan(num_layers=10_001))


def test_a_hugging_face_bert_becomes_a_rembert(tmp_path):
    write(random_model(BERT).encoder, str(tmp_path / "bert"), "huggingface", None)
    model, _ = read_model(str(tmp_path / "bert"))
    reallocate(model, str(tmp_path / "out"), Plan(input_embedding_dim=6, num_layers=2), target_kind="huggingface")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert (config["model_type"], config["input_embedding_size"], config["num_hidden_layers"]) == ("rembert", 6, 2)
    again, _ = read_model(str(tmp_path / "out"))
    assert again.get_config()["input_embedding_dim"] == 6


def test_usage_is_counted_on_paragraphs(corpus, tmp_path):
    (tmp_path / "en.txt").write_text("one two three\n\nfour\n", encoding="utf-8")
    encoder = Encoder(900, 1, 2, 8, 16, 4, max_sequence_length=64)
    usage = usage_of(str(tmp_path), corpus.tokenizer, tables_of(encoder), has_positions=True)
    ids = [corpus.tokenizer.encode(text) for text in ("one two three", "four")]
    counts = np.bincount([*ids[0], *ids[1], *[corpus.tokenizer.cls_id, corpus.tokenizer.sep_id] * 2], minlength=900)
    np.testing.assert_allclose(usage.tokens, (1 - UNSEEN) * counts / counts.sum() + UNSEEN / 900)
    reached = [sum(place < len(each) + 2 for each in ids) for place in range(64)]
    np.testing.assert_array_equal(usage.others[0], reached)


def test_the_command(pretrained, text_dir, tmp_path, command):
    options = ["--input-embedding-dim", "3", "--num-layers", "2", "--output-embedding-dim", "5", "--vocabulary"]
    code, out, err = command("reallocate", pretrained, "small", *options, text_dir, cwd=tmp_path)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("note: kept") and "input embedding 4 -> 3: " in out and lines[-1] == "small: preset"
    model, tokenizer = read_model(str(tmp_path / "small"))
    rows = Tokenizer(tokenizer).vocabulary_size
    assert f"{'input embedding':36}{900 * 4:>14,} -> {rows * 3:>13,}" in lines
    config = model.encoder.arguments
    assert [config[key] for key in ("vocabulary_size", "input_embedding_dim", "num_layers")] == [rows, 3, 2]
    assert model.get_config()["output_embedding_dim"] == 5
    total = int(lines[-2].split("->")[1].split("(")[0].strip().replace(",", ""))
    assert total == model.encoder.count_params()


def test_a_model_of_bfloat16_is_narrowed(tmp_path):
    model = random_model(BERT | {"dtype": "bfloat16"})
    done = reallocate(model, str(tmp_path / "out"), Plan(input_embedding_dim=5, num_layers=2))
    made, _ = read_model(str(tmp_path / "out"))
    assert done.share < 1 and made.encoder.dtype_policy.name == "bfloat16"
    wanted = np.asarray(model.encoder.parts.blocks[1].feed_forward.up.kernel, "float32")
    np.testing.assert_array_equal(np.asarray(made.encoder.parts.blocks[1].feed_forward.up.kernel, "float32"), wanted)


@pytest.mark.parametrize("by_text", [False, True])
def test_a_preset_with_its_preprocessor_is_reallocated(by_text, pretrained, corpus, text_dir, tmp_path):
    file = pretrained / "corpus" / corpus.tokenizer.file_name
    write(random_model({"vocabulary_size": 900}), str(tmp_path / "preset"), "preset", file)
    model = MaskedLM.from_preset(str(tmp_path / "preset"))
    assert model.preprocessor is not None
    plan = Plan(vocabulary=str(text_dir)) if by_text else Plan(input_embedding_dim=4)
    reallocate(model, str(tmp_path / "out"), plan, file)
    made = MaskedLM.from_preset(str(tmp_path / "out"))
    assert made.preprocessor.tokenizer.vocabulary_size() == made.encoder.arguments["vocabulary_size"]


def test_a_vocabulary_that_a_model_fixes_is_said_of_the_model(corpus, text_dir, tmp_path):
    model = random_model({"vocabulary_size": 900, "input_embedding_dim": 16, "input_cutoffs": (300, 600)})
    with pytest.raises(UserError, match=r"^the model has adaptive tables"):
        reallocate(model, str(tmp_path / "out"), Plan(vocabulary=str(text_dir)), corpus.tokenizer.path)
    assert not list(tmp_path.iterdir())


def add_keras_lora(encoder):
    insert_keras_lora(encoder.parts.blocks, 2, None, ("query",))


ADDED = {
    "Keras's LoRA": (lambda model: add_keras_lora(model.encoder), "has LoRA, adapters or quantized layers"),
    "Keras's LoRA of a table": (
        lambda model: model.encoder.enable_lora(2, ["token"]),
        "has LoRA, adapters or quantized layers",
    ),
    "an adapter": (
        lambda model: insert_adapters(model.encoder, model.encoder.parts.blocks, 2),
        "has LoRA, adapters or quantized layers",
    ),
    "a quantized head": (lambda model: model.head.dense.quantize("int8"), "the head has quantized layers"),
}


@pytest.mark.parametrize("what", ADDED)
@pytest.mark.parametrize("plan", [Plan(num_layers=2), Plan(input_embedding_dim=4)], ids=["depth", "width"])
def test_what_was_added_is_not_lost_without_a_word(what, plan, tmp_path):
    model = random_model()
    add, message = ADDED[what]
    add(model)
    with pytest.raises(UserError, match=message):
        reallocate(model, str(tmp_path / "out"), plan)
    assert not list(tmp_path.iterdir())


MISTAKES = {
    "nothing to do": (["RUN", "out"], "nothing to change"),
    "a head that is there": (
        ["RUN", "out", "--output-embedding-dim", "12"],
        "nothing to change: the model has a head of width 12 already",
    ),
    "layers that are there": (
        ["RUN", "out", "--num-layers", "1", "--output-embedding-dim", "12"],
        "nothing to change: the model has a depth of 1 and a head of width 12 already",
    ),
    "a target that exists": (["RUN", "there", "--num-layers", "1"], "there already exists"),
    "too wide": (
        ["RUN", "out", "--input-embedding-dim", "5"],
        "input_embedding_dim is 5; this model's table allows 2 to 4",
    ),
    "nothing is cut": (
        ["RUN", "out", "--num-layers", "2", "--keep", "top"],
        "keep 'top' says which layers stay if there are fewer, and this encoder has 1",
    ),
    "no folder": (
        ["none", "out", "--num-layers", "1"],
        "none is not a run, a keras-hub preset or a Hugging Face model",
    ),
    "no text": (["RUN", "out", "--vocabulary", "none"], "none"),
    "a foreign folder": (["foreign", "out", "--input-embedding-dim", "3"], "'gpt2'; supported are"),
    "a truncated folder": (["truncated", "out", "--input-embedding-dim", "3"], "download it again"),
    "a larger tokenizer": (["larger", "out", "--input-embedding-dim", "6"], "has 26 pieces and the model 24 rows"),
    "no tokenizer": (["bert", "out", "--input-embedding-dim", "3", "--text", "there"], "has none beside it"),
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("berts") / "bert"
    write(random_model(SHALLOW).encoder, str(folder), "huggingface", None)
    model = random_model(SHALLOW | {"vocabulary_size": 24}, {"output_embedding_dim": 16, "coupling": "coupled"})
    write(model, str(folder.parent / "larger"), "huggingface", None)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstu", "[MASK]"]
    tokenizer = tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(pieces)})
    tokenizer.save(str(folder.parent / "larger/tokenizer.json"))
    return folder


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line_and_nothing_is_written(what, pretrained, bert, tmp_path, command):
    (tmp_path / "there").mkdir()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/config.json").write_text('{"model_type": "gpt2"}')
    for name, source in {"bert": "bert", "truncated": "bert", "larger": "larger"}.items():
        shutil.copytree(bert.parent / source, tmp_path / name)
    weights = tmp_path / "truncated/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    before = sorted(tmp_path.rglob("*"))
    arguments, message = MISTAKES[what]
    arguments = [pretrained if each == "RUN" else each for each in arguments]
    code, out, err = command("reallocate", *arguments, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
    assert sorted(tmp_path.rglob("*")) == before and "Traceback" not in err + out


@pytest.mark.parametrize(
    ("plan", "encoder", "message"),
    [
        ({"input_embedding_dim": 7}, {}, "allows 2 to 6"),
        ({"input_embedding_dim": 4}, {"num_segments": 0}, "with num_segments 0"),
        ({"num_layers": 4}, {"num_segments": 0}, "with num_segments 0"),
        ({"num_layers": 4}, {"layer_sharing": "all"}, "cannot be stacked"),
    ],
)
def test_what_cannot_be_made_is_refused_before_text_is_read(plan, encoder, message, corpus, tmp_path):
    model = random_model(encoder | {"vocabulary_size": corpus.tokenizer.vocabulary_size}).encoder
    with pytest.raises(UserError, match=message):
        reallocate(model, str(tmp_path / "out"), Plan(**plan, vocabulary="gone"), corpus.tokenizer.path, "huggingface")


def test_a_word_piece_vocabulary_weights_and_stays(tmp_path):
    """A BERT of Hugging Face's with `tokenizer.json`: pieces are counted by it, and both targets have it."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    write(random_model(BERT).encoder, str(tmp_path / "bert"), "huggingface", None)
    tokenizers.BertWordPieceTokenizer(vocab=vocabulary).save(str(tmp_path / "bert/tokenizer.json"))
    (tmp_path / "text").mkdir()
    (tmp_path / "text/en.txt").write_text("abc abc a\n", encoding="utf-8")
    model, file = read_model(str(tmp_path / "bert"))
    plan = Plan(input_embedding_dim=6, text=str(tmp_path / "text"))
    done = [reallocate(model, str(tmp_path / kind), plan, file, kind) for kind in ("preset", "huggingface")]
    even = reallocate(model, str(tmp_path / "even"), Plan(input_embedding_dim=6), file)
    assert done[0].share == done[1].share > even.share + 0.05
    for kind in ("preset", "huggingface"):
        assert find(tmp_path / kind).tokenizer.encode("abc") == [vocabulary[piece] for piece in ("a", "##b", "##c")]
    done = reallocate(model, str(tmp_path / "padded"), Plan(vocabulary=plan.text), file)  # of 60 rows
    assert done.after["vocabulary_size"] == 8 and "kept 8 of 21 pieces" in done.notes
    write(random_model(BERT | {"vocabulary_size": 21}).encoder, str(tmp_path / "own"), "preset", file)
    done = reallocate(read_model(str(tmp_path / "own"))[0], str(tmp_path / "trimmed"), Plan(vocabulary=plan.text), file)
    assert done.after["vocabulary_size"] == 8 and "kept 8 of 21 pieces" in done.notes
    kept = find(tmp_path / "trimmed").tokenizer
    assert [kept.piece(i) for i in kept.encode("abc")] == ["a", "##b", "##c"]
