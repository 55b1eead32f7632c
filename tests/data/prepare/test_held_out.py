"""Text that no step trains on: which it is follows from the text alone, and it is in nothing that is trained."""

import gzip
import hashlib
import json
import math
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.data.prepare import jobs
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError
from tests.data.prepare.test_prepare import SHARD, digests

SHARE = 0.15


def is_held_out(line):
    """The definition, written once more."""
    text = " ".join(unicodedata.normalize("NFKC", line).casefold().split())
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"held out").digest()
    return int.from_bytes(digest, "little") / 2**64 < SHARE


@pytest.fixture(scope="module")
def halves(text_dir, tmp_path_factory):
    """The text in two folders: what is trained on, and what is held out."""
    folders = {held: tmp_path_factory.mktemp(f"held_{held}") for held in (False, True)}
    for path in text_dir.iterdir():
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for held, folder in folders.items():
            own = [line for line in lines if is_held_out(line) == held]
            (folder / path.name).write_text("\n".join(own) + "\n", encoding="utf-8")
    return folders


def test_a_corpus_is_that_of_the_text_without_it(text_dir, corpus, halves, tmp_path):
    tokenizer = corpus.tokenizer.path
    held = prepare(text_dir, tmp_path / "held", tokenizer=tokenizer, cleaning=Cleaning(held_out=SHARE))
    left, taken = (prepare(halves[which], tmp_path / str(which), tokenizer=tokenizer) for which in (False, True))
    assert held.manifest["settings"]["held_out"] == SHARE
    assert held.num_tokens == left.num_tokens and held.num_held_out == taken.num_tokens
    for language in held.languages:
        size, out = left.num_tokens[language], taken.num_tokens[language]
        np.testing.assert_array_equal(held.tokens(language, 0, size), left.tokens(language, 0, size))
        np.testing.assert_array_equal(held.held_out(language, out - 3, 9), taken.tokens(language, out - 3, 9))
        np.testing.assert_array_equal(held.held_out(language, 0, out), taken.tokens(language, 0, out))
        np.testing.assert_array_equal(held.unigram_counts(language), left.unigram_counts(language))
        entry, other = held.manifest["languages"][language], taken.manifest["languages"][language]
        assert entry["held_out"]["paragraphs"] == other["paragraphs"] > 10


def test_without_it_a_corpus_is_as_ever(text_dir, corpus, tmp_path):
    none = prepare(text_dir, tmp_path / "none", vocabulary_size=900, cleaning=Cleaning(held_out=0.0))
    assert digests(none.path) == digests(corpus.path)
    assert none.num_held_out == {} and "held_out" not in json.dumps(none.manifest)


def test_the_tokenizer_is_trained_without_it(held_out_corpus, halves, tmp_path):
    left = prepare(halves[False], tmp_path / "left", vocabulary_size=900)
    assert held_out_corpus.tokenizer.sha256 == left.tokenizer.sha256


def test_shards_and_processes_do_not_change_it(text_dir, held_out_corpus, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "LEAST", 10_000)
    settings = {"tokenizer": held_out_corpus.tokenizer.path, "cleaning": Cleaning(held_out=SHARE)}
    cut = prepare(text_dir, tmp_path / "cut", shard_megabytes=SHARD, processes=2, **settings)
    assert len(cut.manifest["languages"]["en"]["held_out"]["shards"]) > 2
    cut.verify()
    for language, size in held_out_corpus.num_held_out.items():
        assert cut.num_held_out[language] == size
        np.testing.assert_array_equal(cut.held_out(language, 0, size), held_out_corpus.held_out(language, 0, size))
        whole = held_out_corpus.num_tokens[language]
        np.testing.assert_array_equal(cut.tokens(language, 0, whole), held_out_corpus.tokens(language, 0, whole))


def documents(stream, tokenizer):
    """The documents of a stream of tokens."""
    begins = np.flatnonzero(stream == tokenizer.cls_id)
    return {tuple(document.tolist()) for document in np.split(stream, begins[1:])}


def test_no_duplicate_of_it_is_trained_on_whatever_its_case_spaces_or_language(text_dir, corpus, tmp_path):
    """Near-duplicates go where they are filtered: of each group one paragraph stays, held out or not."""
    pytest.importorskip("rensa", reason="needs the extra: pip install 'rembed-keras[clean]'")
    (tmp_path / "text").mkdir()
    lines = (text_dir / "en.txt").read_text(encoding="utf-8").splitlines()
    longest = sorted({line for line in lines if is_held_out(line)}, key=len)[-12:]
    near = [f"{line}." for line in longest]
    again = [f"  {line.upper()} ".replace(" ", "  ") for line in longest]
    (tmp_path / "text/en.txt").write_text("\n".join([*lines, *again, *near]) + "\n", encoding="utf-8")
    (tmp_path / "text/de.txt").write_text("\n".join([*longest, *lines[:40]]) + "\n", encoding="utf-8")
    cleaning = Cleaning(held_out=SHARE, deduplicate=True, near_duplicates=0.8)
    made = prepare(tmp_path / "text", tmp_path / "made", tokenizer=corpus.tokenizer.path, cleaning=cleaning)
    for language in ("de", "en"):
        trained = documents(made.tokens(language, 0, made.num_tokens[language]), made.tokenizer)
        held = documents(made.held_out(language, 0, made.num_held_out[language]), made.tokenizer)
        assert not trained & held
        for line in (*longest, *again, *near):
            assert tuple(made.tokenizer.encode_documents([line]).tolist()) not in trained


@pytest.mark.parametrize("kind", ["jsonl", "gz", "extract"])
def test_every_source_holds_out_the_same(kind, text_dir, held_out_corpus, tmp_path):
    folder = tmp_path / "text"
    for path in sorted(text_dir.iterdir()):
        lines, home = path.read_text(encoding="utf-8").splitlines(), folder / path.stem
        home.mkdir(parents=True)
        if kind == "jsonl":
            whole = "".join(json.dumps({"text": line, "language": path.stem}) + "\n" for line in lines)
            (home / "0.jsonl").write_text(whole, encoding="utf-8")
        elif kind == "gz":
            home.rmdir()
            (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        else:
            (home / "AA").mkdir()
            whole = "".join(json.dumps({"text": line}) + "\n" for line in lines)
            (home / "AA/wiki_00").write_text(whole, encoding="utf-8")
    tokenizer = held_out_corpus.tokenizer.path
    made = prepare(folder, tmp_path / "made", tokenizer=tokenizer, cleaning=Cleaning(held_out=SHARE))
    assert made.num_held_out == held_out_corpus.num_held_out and made.num_tokens == held_out_corpus.num_tokens


def test_more_is_held_out_of_a_higher_share():
    lines = [f"Paragraph {number}." for number in range(4000)]
    shares = (0.0, 0.01, 0.1, 0.9)
    held = [{line for line in lines if Cleaning(held_out=share).holds_out(line)} for share in shares]
    assert all(fewer <= more for fewer, more in pairwise(held))
    for share, own in zip(shares, held, strict=True):
        assert abs(len(own) - 4000 * share) <= 4 * math.sqrt(4000 * share * (1 - share))


@pytest.mark.parametrize("share", [-0.1, 1, 1.5, "half"])
def test_a_share_that_makes_no_sense_is_refused(share):
    with pytest.raises(UserError, match=r"held_out is .*; it must be at least 0 and less than 1"):
        Cleaning(held_out=share)


def test_a_language_of_which_nothing_is_left_is_named_and_nothing_stays(tmp_path, corpus):
    (tmp_path / "text").mkdir()
    held = next(line for line in (f"Line {n} of text." for n in range(99)) if is_held_out(line))
    (tmp_path / "text/de.txt").write_text(held + "\n")
    (tmp_path / "text/en.txt").write_text(f"{held}\nOne.\nTwo.\nThree.\n")
    cleaning = Cleaning(held_out=SHARE)
    with pytest.raises(UserError, match="held_out leaves no text of de to train on"):
        prepare(tmp_path / "text", tmp_path / "made", tokenizer=corpus.tokenizer.path, cleaning=cleaning)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
    (tmp_path / "text/en.txt").unlink()
    with pytest.raises(UserError, match="held_out leaves no text to train a tokenizer on"):
        prepare(tmp_path / "text", tmp_path / "made", vocabulary_size=60, cleaning=cleaning)


def test_a_manifest_whose_held_out_text_is_no_stream_is_refused(held_out_corpus, tmp_path):
    manifest = json.loads(json.dumps(held_out_corpus.manifest))
    manifest["languages"]["de"]["held_out"]["shards"][0]["file"] = "../../elsewhere"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="is damaged at de"):
        Corpus(tmp_path)


def test_the_command_holds_out(text_dir, tmp_path, command):
    words = ("prepare", text_dir, "corpus", "--vocabulary-size", "900", "--held-out")
    code, out, _ = command(*words, "0.15", cwd=tmp_path)
    made = Corpus(tmp_path / "corpus")
    assert code == 0 and f"{sum(made.num_held_out.values()):,} tokens are held out" in out.replace("\n", " ")
    assert command(*words, "1.0", cwd=tmp_path)[0] == 2


def test_held_out_rows_are_whole_rows_shared_by_weight_and_masked_alike_each_time(held_out_corpus):
    mixture = Mixture(held_out_corpus, 4, 16, seed=5, mask_rate={0: 0.3, 10: 0.15})
    x, y, weights = mixture.held_out(rows=100)
    again = Mixture(held_out_corpus, 8, 16, seed=5, mask_rate={0: 0.3, 10: 0.15}).held_out(rows=100)
    for one, two in zip((*x.values(), y, weights), (*again[0].values(), *again[1:]), strict=True):
        np.testing.assert_array_equal(one, two)
    other = Mixture(held_out_corpus, 4, 16, seed=6, mask_rate={0: 0.3, 10: 0.15}).held_out(rows=100)
    assert (other[0]["mask_positions"] != x["mask_positions"]).any()
    assert x.keys() == mixture[0][0].keys() and y.shape[1] == mixture.num_predictions == 5
    assert (weights.sum(axis=1) == 2).all()  # at the last rate
    tokens = x["token_ids"].copy()
    real = weights > 0
    tokens[np.nonzero(real)[0], x["mask_positions"][real]] = y[real]
    counts = np.bincount(x["language_ids"], minlength=3)
    assert counts.tolist() == [math.ceil(weight * 100) for weight in mixture.weights]
    for i, language in enumerate(mixture.languages):
        stream = held_out_corpus.held_out(language, 0, 16 * counts[i])
        np.testing.assert_array_equal(tokens[x["language_ids"] == i].reshape(-1), stream)
    everything = mixture.held_out(rows=10**6)[0]["language_ids"]  # no row comes twice
    whole = [held_out_corpus.num_held_out[language] // 16 for language in mixture.languages]
    assert np.bincount(everything).tolist() == whole
