"""Corpora that a `tokenizer.json` or a `vocab.txt` tokenizes, and masks of their words."""

import json

import numpy as np
import pytest
import tokenizers

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.masking import mask_rows
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.tokenizers.fast import FastTokenizer
from rembed_keras.errors import UserError
from rembed_keras.interop import write
from rembed_keras.training.initial.finetuned import refuse_another_reading
from rembed_keras.training.initial.places import find
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages.prepare import prepare as prepare_stage
from tests.interop.models import random_model

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "save", "open", "the", "table", "##s", "fi", "##le", "é", "."]
TEXT = ["Save the files. Open tables.", "Open the file."]
IDS = [[5, 7, 10, 11, 9, 13, 6, 8, 9, 13], [6, 7, 10, 11, 13]]
BERT = {"vocabulary_size": len(PIECES), "input_embedding_dim": 16, "always_project": False}


@pytest.fixture
def files(tmp_path):
    """The same vocabulary as `tokenizer.json` and as `vocab.txt`, and a folder of text."""
    made = tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)})
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (tmp_path / "text").mkdir()
    (tmp_path / "text/en.txt").write_text("\n".join(TEXT) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_a_corpus_has_its_ids_and_keeps_a_copy(name, files):
    corpus = prepare(files / "text", files / "corpus", tokenizer=files / name)
    wanted = [i for ids in IDS for i in (2, *ids, 3)]
    assert corpus.tokens("en", 0, corpus.num_tokens["en"]).tolist() == wanted
    assert corpus.unigram_counts("en").tolist() == np.bincount(wanted, minlength=len(PIECES)).tolist()
    assert (
        corpus.tokenizer.path.name == "tokenizer.json" and corpus.tokenizer.sha256 == FastTokenizer(files / name).sha256
    )
    assert prepare(files / "text", files / "corpus", tokenizer=files / name).path == corpus.path  # found again
    Corpus(files / "corpus").verify()
    x, y, _ = Mixture(corpus, batch_size=2, sequence_length=8, mask_rate=0.2)[0]
    assert x["token_ids"].shape == (2, 8) and y.max() < len(PIECES)


def test_whole_words_of_word_pieces_are_masked_whole(files):
    tokenizer = FastTokenizer(files / "tokenizer.json")
    tokens = np.array([[2, *IDS[0], 3]] * 40)
    masked = mask_rows(tokens, 3, np.random.default_rng(0), tokenizer, whole_word=True)
    for places, weights in zip(masked["mask_positions"], masked["mask_weights"], strict=True):
        chosen = {int(place) for place, weight in zip(places, weights, strict=True) if weight}
        assert not {0, 11} & chosen  # neither [CLS] nor [SEP]
        for word in ({1}, {2}, {3, 4, 5}, {6}, {7}, {8, 9}, {10}):
            assert word <= chosen or not word & chosen


def test_bytes_and_words_of_pieces(files):
    tokenizer = FastTokenizer(files / "tokenizer.json")
    sizes = [int(tokenizer.num_bytes[PIECES.index(piece)]) for piece in ("[UNK]", "[CLS]", "save", "##s", "é", ".")]
    assert sizes == [0, 0, 5, 1, 3, 1]
    words = [piece for i, piece in enumerate(PIECES) if tokenizer.is_word(i)]
    assert words == ["save", "open", "the", "table"]


def test_a_tokenizer_that_frames_texts_otherwise_is_no_other(files):
    said = json.loads((files / "tokenizer.json").read_text(encoding="utf-8"))
    for name, change in (("bare", {"post_processor": None, "decoder": None}), ("cased", {"normalizer": None})):
        (files / f"{name}.json").write_text(json.dumps(said | change), encoding="utf-8")
    framed, bare, cased = (FastTokenizer(files / f"{name}.json") for name in ("tokenizer", "bare", "cased"))
    assert framed.segmentation == bare.segmentation != cased.segmentation and framed.sha256 != bare.sha256
    corpus = prepare(files / "text", files / "corpus", tokenizer=bare.path)
    assert prepare(files / "text", files / "corpus", tokenizer=framed.path).path == corpus.path
    with pytest.raises(UserError, match="has a corpus of other text or settings"):
        prepare(files / "text", files / "corpus", tokenizer=cased.path)
    write(random_model(BERT).encoder, str(files / "bert"), "huggingface", bare.path)  # which has a frame then
    place = find(files / "bert")
    assert place.tokenizer.sha256 != corpus.tokenizer.sha256
    place.check_tokenizer(corpus.tokenizer)
    (files / "task").mkdir()
    bare.copy_to(files / "task")
    there = {"tokenizer_sha256": bare.sha256}
    refuse_another_reading(files / "task", there, 8, framed)
    with pytest.raises(UserError, match="were fine-tuned with another tokenizer"):
        refuse_another_reading(files / "task", there, 8, cased)


def test_the_tokenizer_of_initial_weights_is_taken(files):
    write(random_model(BERT).encoder, str(files / "bert"), "huggingface", files / "tokenizer.json")
    workdir = Workdir(files / "run")
    prepare_stage(workdir, str(files / "text"), initial=str(files / "bert"))
    prepare_stage(workdir, str(files / "text"), initial=str(files / "bert"))  # as when a run is resumed
    workdir.close()
    assert Corpus(files / "run/corpus").tokens("en", 0, 4).tolist() == [2, *IDS[0][:3]]


@pytest.mark.parametrize(
    ("text", "message"), [("{}", "is not one that"), ("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n", "has no [MASK]")]
)
def test_a_file_that_is_no_tokenizer_costs_one_line(text, message, files, command):
    name = "broken.json" if text == "{}" else "broken.txt"
    (files / name).write_text(text, encoding="utf-8")
    code, _, err = command("prepare", "text", "corpus", "--tokenizer", name, cwd=files)
    assert code == 2 and message in err and "Traceback" not in err
    assert not (files / "corpus").exists() and not list(files.glob(".corpus*"))
