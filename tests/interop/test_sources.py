"""What is beside the weights of a model that is read: tokenizers, preprocessors, classes of one's own, and notes."""

import gzip
import json
import shutil

import keras
import numpy as np
import pytest
import sentencepiece
import tokenizers

from rembed_keras import interop
from rembed_keras.data.text import read_lines
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.sentence_piece import Tokenizer as SentencePiece
from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.embeddings import tables_of
from rembed_keras.interop.reallocation.usage import usage_of
from rembed_keras.interop.spm import read_model as read_spm
from rembed_keras.interop.spm import write_model
from rembed_keras.modeling import Classifier, Encoder, MaskedLM
from rembed_keras.preprocessing import MaskedLMPreprocessor, Tokenizer
from rembed_keras.training.initial.places import find
from rembed_keras.training.loop import checkpoints, restoring
from tests.interop.models import random_model

BERT = {"input_embedding_dim": 16, "always_project": False}
OWN = """
import keras

from rembed_keras.modeling.attention import Global


@keras.saving.register_keras_serializable(package="{name}")
class {title}(Global): ...
"""


@pytest.fixture(scope="module")
def preset(corpus, tmp_path_factory):
    """A preset whose preprocessor has settings of its own."""
    model = random_model({"vocabulary_size": 900, "num_layers": 1})
    model.preprocessor = MaskedLMPreprocessor(
        Tokenizer(corpus.tokenizer.path), sequence_length=16, mask_rate=0.4, whole_word=True, seed=7
    )
    folder = tmp_path_factory.mktemp("presets") / "preset"
    model.save_to_preset(str(folder))
    return folder


@pytest.mark.parametrize("beside", ["de/0001.txt", "de.jsonl"])
def test_text_that_prepare_would_not_leave_out_is_refused(beside, preset, corpus, tmp_path):
    text = tmp_path / "text"
    for name in ("en.txt", beside):
        (text / name).parent.mkdir(parents=True, exist_ok=True)
        (text / name).write_text("text\n")
    said = "has text in en.txt and in de/0001.txt|has .jsonl files and en.txt"
    with pytest.raises(UserError, match=said):
        interop.trim(str(preset), str(tmp_path / "out"), str(text))
    with pytest.raises(UserError, match=said):
        usage_of(str(text), corpus.tokenizer, tables_of(random_model({"vocabulary_size": 900}).encoder), False)
    assert not (tmp_path / "out").exists()


def test_text_is_read_as_prepare_reads_it(preset, corpus, text_dir, tmp_path, command):
    """Documents of two languages in one packed file give what a text file of each gives."""
    lines = {language: [*filter(None, read_lines(text_dir / f"{language}.txt"))][:50] for language in ("de", "ja")}
    for place in ("text", "documents"):
        (tmp_path / place).mkdir()
    for language, texts in lines.items():
        (tmp_path / "text" / f"{language}.txt").write_text("\n".join(texts), encoding="utf-8")
    pairs = [pair for texts in zip(*lines.values(), strict=True) for pair in zip(lines, texts, strict=True)]
    documents = "\n".join(json.dumps({"text": text, "lang": language}) for language, text in pairs)
    (tmp_path / "documents/all.jsonl.gz").write_bytes(gzip.compress(documents.encode()))
    places = [str(tmp_path / place) for place in ("text", "documents")]
    done = [interop.trim(str(preset), f"{place} kept", place, ["de"]) for place in places]
    tables = tables_of(random_model({"vocabulary_size": 900}).encoder)
    usages = [usage_of(place, corpus.tokenizer, tables, True) for place in places]
    assert done[0] == done[1] and done[0].lost["de"] == 0 < done[0].lost["ja"]
    for one, other in zip(*([each.tokens, each.others[0]] for each in usages), strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(UserError, match=r"documents has no text of 'fr': remove it or add some"):
        interop.trim(str(preset), str(tmp_path / "out"), str(tmp_path / "documents"), ["fr"])
    (tmp_path / "documents/fr.arrow").touch()
    code, out, err = command("trim", preset, "noted", "--text", "documents", cwd=tmp_path)
    assert code == 0 and "note: left out of documents: 'fr.arrow'; text is read of .txt.gz, .txt" in out, err


def test_another_tokenizer_takes_the_place_of_that_which_was_there(preset, tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}).save(str(tmp_path / "t.json"))
    interop.convert(str(preset), str(tmp_path / "out"), "preset", "preset", str(tmp_path / "t.json"))
    assert [path.name for path in (tmp_path / "out/assets/tokenizer").iterdir()] == ["tokenizer.json"]
    for kind in (MaskedLM, Encoder):
        assert kind.from_preset(str(tmp_path / "out")).preprocessor.tokenizer.vocabulary_size() == len(pieces)


def test_a_folder_without_a_tokenizer_is_noted(tmp_path, command):
    interop.write(random_model().encoder, str(tmp_path / "there"), "huggingface", None)
    notes = interop.convert(str(tmp_path / "there"), str(tmp_path / "preset"), "huggingface", "preset")
    assert any("no tokenizer is stored" in note for note in notes)
    code, out, err = command("reallocate", "there", "out", "--num-layers", "2", cwd=tmp_path)
    assert code == 0 and "note: no tokenizer is stored" in out, err
    assert not interop.convert(str(tmp_path / "preset"), str(tmp_path / "again"), "preset", "preset")


@pytest.fixture
def deberta(corpus, tmp_path):
    """A folder as DeBERTa's are released: a SentencePiece model without [MASK], and no tokenizer.json."""
    folder = tmp_path / "deberta"
    interop.write(random_model({"vocabulary_size": 910}).encoder, str(folder), "huggingface", None)
    model = read_spm(corpus.tokenizer.path)
    write_model(model, [piece for piece in model.pieces if piece.piece != "[MASK]"], folder / "spm.model")
    return folder


@pytest.mark.parametrize("added", [None, {"[MASK]": 899}])
def test_debertas_model_is_read_with_its_mask(added, deberta, tmp_path):
    if added:
        (deberta / "added_tokens.json").write_text(json.dumps(added))
    assert not [
        note for note in interop.convert(str(deberta), str(tmp_path / "out"), "huggingface", "preset") if "tok" in note
    ]
    ours = SentencePiece(tmp_path / "out/tokenizer.model")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(deberta / "spm.model"))
    assert (ours.mask_id, ours.vocabulary_size) == (899, 900)
    text = "Everyone has the right to life."
    assert ours.encode(text) == theirs.encode(text)
    assert find(deberta).tokenizer.sha256 == ours.sha256 and find(deberta).tokenizer.path == deberta / "spm.model"


def test_what_debertas_code_would_do_is_not_ignored(deberta, tmp_path):
    (deberta / "added_tokens.json").write_text('{"[MASK]": 905}')
    with pytest.raises(UserError, match=r"added_tokens\.json has .*905.*\[MASK\] alone can come"):
        interop.convert(str(deberta), str(tmp_path / "out"), "huggingface", "preset")
    (deberta / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    assert interop.tokenizer_of(deberta) is None


def test_alberts_model_is_not_read_without_what_its_code_does(deberta):
    (deberta / "spm.model").rename(deberta / "spiece.model")
    assert interop.tokenizer_of(deberta) is None  # lowercased in code
    settings = deberta / "tokenizer_config.json"
    settings.write_text('{"do_lower_case": false, "keep_accents": true}')
    assert interop.tokenizer_of(deberta) == deberta / "spiece.model"
    (deberta / "tokenizer.json").write_text("{}")
    assert interop.tokenizer_of(deberta) == deberta / "tokenizer.json"


def test_pieces_that_were_added_to_a_tokenizer_json_are_read(corpus, tmp_path):
    model = random_model({"vocabulary_size": 901}).encoder
    interop.write(model, str(tmp_path / "theirs"), "huggingface", corpus.tokenizer.path)
    assert interop.tokenizer_of(tmp_path / "theirs") == tmp_path / "theirs/sentencepiece.model"
    file = tmp_path / "theirs/tokenizer.json"
    theirs = tokenizers.Tokenizer.from_file(str(file))
    theirs.add_tokens(["heptagon"])
    theirs.save(str(file))
    assert interop.tokenizer_of(tmp_path / "theirs") == file
    ids = open_tokenizer(file).encode("a heptagon")
    assert ids == theirs.encode("a heptagon", add_special_tokens=False).ids and ids[-1] == 900


def test_pieces_that_were_added_to_a_sentencepiece_model_are_not_ignored(corpus, tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    corpus.tokenizer.copy_to(folder).rename(file := folder / "sentencepiece.model")
    added = folder / "added_tokens.json"
    added.write_text(json.dumps({"[MASK]": 4}))
    assert interop.tokenizer_of(folder) == file
    for other in ({"[MASK]": 4, "heptagon": 900}, {"[MASK]": 5}):
        added.write_text(json.dumps(other))
        assert interop.tokenizer_of(folder) is None


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_a_vocabulary_is_read_as_berts_only_if_it_is(name, tmp_path):
    folder = tmp_path / "there"
    interop.write(random_model(BERT).encoder, str(folder), "huggingface", None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "vocab.txt").write_text("the 100\nfile@@ 50\n")
    said = {"tokenizer_class": "BertweetTokenizer"}
    (folder / name).write_text(json.dumps(config | said if name == "config.json" else said))
    notes = interop.convert(str(folder), str(tmp_path / "out"), "huggingface", "preset")
    assert any("no tokenizer is stored" in note for note in notes)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    for usual in ("DistilBertTokenizerFast", "ElectraTokenizer", None):
        (folder / name).write_text(json.dumps(config | {"tokenizer_class": usual}))
        assert interop.tokenizer_of(folder) == folder / "vocab.txt"


def test_heads_that_are_left_out_are_noted(tmp_path, command):
    Classifier(random_model({"num_layers": 1}).encoder, 3).save_to_preset(str(tmp_path / "task"))
    said = "the heads of rembed_keras>Classifier are dropped"
    code, out, err = command("reallocate", "task", "out", "--num-layers", "2", cwd=tmp_path)
    assert code == 0 and f"note: {said}" in out, err
    code, out, err = command("merge", "task", "task", "merged", cwd=tmp_path)
    assert code == 0 and out.count(f"note: task: {said}") == 2, err


def test_the_languages_of_pre_training_and_the_settings_of_a_preprocessor_stay_known(
    preset, text_dir, tmp_path, command
):
    """Of a preset that is converted, and what that gives reallocated, and so on."""
    source = shutil.copytree(preset, tmp_path / "preset")
    (source / "pretraining.json").write_text('{"pretraining_languages": ["de", "sw"]}')
    (tmp_path / "pieces").write_text("\u2581newest\n")
    for words in (
        ["convert", "preset", "converted", "--from", "preset", "--to", "preset"],
        ["reallocate", "converted", "reallocated", "--input-embedding-dim", "4"],
        ["trim", "reallocated", "trimmed", "--text", text_dir, "--languages", "en"],
        ["extend", "trimmed", "extended", "--pieces", "pieces"],
    ):
        code, _, err = command(*words, cwd=tmp_path)
        assert code == 0, err
        assert find(tmp_path / words[2]).languages == ["de", "sw"]
    made = MaskedLM.from_preset(str(tmp_path / "extended"))
    ours = made.preprocessor
    assert (ours.sequence_length, ours.mask_rate, ours.whole_word, ours.seed) == (16, 0.4, True, 7)
    assert ours.tokenizer.vocabulary_size() == made.encoder.arguments["vocabulary_size"] < 900
    (tmp_path / "converted" / "pretraining.json").write_text('{"pretraining_languages": ["de", "en"]}')
    assert command("merge", "preset", "converted", "merged", cwd=tmp_path)[0] == 0
    assert find(tmp_path / "merged").languages == ["de", "en", "sw"]
    (tmp_path / "converted" / "pretraining.json").unlink()  # so that nobody knows which are unseen
    assert command("merge", "preset", "converted", "unknown", cwd=tmp_path)[0] == 0
    assert find(tmp_path / "unknown").languages == []


def run_of(model, folder, recipe):
    """A folder of a run that pre-trained a model."""
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "checkpoints", 1, parts, state)
    (folder / "config.gin").write_text(recipe)


@pytest.mark.parametrize("verb", ["convert", "reallocate", "merge", "solve"])
def test_classes_of_ones_own_are_read_where_their_package_is_named(verb, tmp_path, command, monkeypatch):
    name, title = f"strange_{verb}", f"Strange{verb.title()}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "attention.py").write_text(OWN.format(name=name, title=title))
    monkeypatch.syspath_prepend(str(tmp_path))
    own = getattr(__import__(f"{name}.attention", fromlist=["attention"]), title)
    model = random_model({"attention": own(), "num_layers": 2})
    run_of(model, tmp_path / "run", f"from __gin__ import dynamic_registration\nfrom {name} import attention\n")
    registry = keras.saving.get_custom_objects()
    registry.pop(f"{name}>{title}")  # as in a process of its own, which has imported nothing
    for module in (name, f"{name}.attention"):
        monkeypatch.delitem(__import__("sys").modules, module)
    words = {
        "convert": ["run", "out", "--from", "run", "--to", "preset"],
        "reallocate": ["run", "out", "--num-layers", "3"],
        "merge": ["run", "run", "out"],
        "solve": ["--from", "run", "--kept", str(model.encoder.count_params() - 1)],
    }[verb]
    code, _, err = command(verb, *words, cwd=tmp_path)
    assert code == 2 and f"--allow-import {name}" in err and not (tmp_path / "out").exists(), err
    code, out, err = command(verb, *words, "--allow-import", name, cwd=tmp_path)
    assert code == 0 and (verb == "solve" or "the corpus of the run, which has it, is gone" in out), err
    proposed = f"rembed reallocate run TARGET --num-layers 1 --allow-import {name}\n"
    assert out.endswith(proposed) if verb == "solve" else Encoder.from_preset(str(tmp_path / "out"))


MISTAKES = {
    "a family": (
        ["convert", "out", "--from", "huggingface", "--to", "huggingface", "--family", "robert"],
        "did you mean",
    ),
    "a family of a preset": (
        ["convert", "out", "--from", "huggingface", "--to", "preset", "--family", "bert"],
        "the target is a preset",
    ),
    "a target": (["convert", ".", "--from", "huggingface", "--to", "preset"], "already exists"),
    "a target of trim": (["trim", ".", "--text", "none"], "already exists"),
    "a text": (["reallocate", "out", "--num-layers", "2", "--text", "none"], "give input_embedding_dim too"),
    "layers that stay": (["reallocate", "out", "--output-embedding-dim", "4", "--keep", "top"], "give num_layers too"),
    "one model": (["merge", "out"], "average merges two or more models; 1 are given"),
    "no base": (["merge", "none", "out", "--how", "ties"], "is needed by ties"),
    "no data": (["merge", "none", "out", "--how", "greedy"], "are needed by greedy"),
    "a share of an average": (["merge", "none", "out", "--share", "0.9"], "--share is read with --how slerp alone"),
    "a pivot": (["merge", "none", "out", "--pivot", "de"], "--pivot is read with --how greedy alone"),
    "a tokenizer of a task": (
        ["convert", "out", "--from", "run", "--to", "preset", "--task", "t", "--tokenizer", "t.model"],
        "neither --family nor --tokenizer",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_are_known_before_a_model_is_read(what, tmp_path, command):
    (verb, *rest), message = MISTAKES[what]
    code, _, err = command(verb, "no_such_model", *rest, cwd=tmp_path)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_is_known_by_its_file(corpus):
    assert interop.opened_tokenizer(corpus.tokenizer.path).sha256 == open_tokenizer(corpus.tokenizer.path).sha256
