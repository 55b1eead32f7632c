import gzip
import json
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rembed_keras.analysis.prepared import show_prepared
from rembed_keras.data.corpus import BLOCK, Corpus
from rembed_keras.data.prepare.cleaning import Cleaning
from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.errors import UserError


def stream_of(corpus, text_dir, language):
    """The tokens of a language, tokenized without the code under test."""
    tokens = []
    for line in (text_dir / f"{language}.txt").read_text(encoding="utf-8").splitlines():
        tokens += [2, *corpus.tokenizer.encode(line), 3]
    return np.array(tokens)


@pytest.mark.parametrize("language", ["de", "en", "ja"])
def test_any_slice_of_a_stream_can_be_read(corpus, text_dir, language):
    expected = stream_of(corpus, text_dir, language)
    assert corpus.num_tokens[language] == len(expected) > BLOCK
    np.testing.assert_array_equal(corpus.tokens(language, 0, len(expected)), expected)
    for start, count in ((BLOCK - 5, 10), (len(expected) - 3, 8), (7 * len(expected) + 11, 2), (3, 0)):
        cyclic = expected[(start + np.arange(count)) % len(expected)]
        np.testing.assert_array_equal(corpus.tokens(language, start, count), cyclic)
    np.testing.assert_array_equal(corpus.unigram_counts(language), np.bincount(expected, minlength=900))


def test_the_manifest_has_settings_and_checksums(corpus, text_dir):
    manifest = json.loads((corpus.path / "manifest.json").read_text())
    assert manifest["settings"] == {"vocabulary_size": 900, "byte_fallback": False}
    assert manifest["languages"]["en"]["paragraphs"] == 600
    assert manifest["files"]["tokenizer.model"] == corpus.tokenizer.sha256
    corpus.verify()


def test_a_checksum_of_the_tokens_however_files_share_them(corpus, text_dir, tmp_path):
    again = prepare(text_dir, tmp_path / "again", vocabulary_size=900, shard_megabytes=0.02)
    assert again.sha256 == corpus.sha256 and again.manifest["files"] != corpus.manifest["files"]
    others = [
        prepare(text_dir, tmp_path / "held_out", vocabulary_size=900, cleaning=Cleaning(held_out=0.1)),
        prepare(text_dir, tmp_path / "small", vocabulary_size=890),
        prepare(text_dir, tmp_path / "german", tokenizer=corpus.tokenizer.path, languages=["de"]),
    ]
    assert len({corpus.sha256, *(each.sha256 for each in others)}) == 4


def test_the_same_text_is_not_prepared_again(corpus, text_dir):
    before = (corpus.path / "manifest.json").stat()
    again = prepare(text_dir, corpus.path, vocabulary_size=900)
    assert (again.path / "manifest.json").stat().st_ino == before.st_ino
    with pytest.raises(UserError, match="has a corpus of other text or settings"):
        prepare(text_dir, corpus.path, vocabulary_size=800)


def test_compressed_files_are_read_and_a_given_tokenizer_is_used(corpus, text_dir, tmp_path):
    (tmp_path / "text").mkdir()
    packed = gzip.compress((text_dir / "en.txt").read_bytes())
    (tmp_path / "text" / "en.txt.gz").write_bytes(packed)
    other = prepare(tmp_path / "text", tmp_path / "out", tokenizer=corpus.tokenizer.path)
    assert other.tokenizer.sha256 == corpus.tokenizer.sha256
    assert other.languages == ["en"]
    size = corpus.num_tokens["en"]
    np.testing.assert_array_equal(other.tokens("en", 0, size), corpus.tokens("en", 0, size))


def test_damage_is_detected(corpus, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(corpus.path, copy)
    data = bytearray((copy / "de.array_record").read_bytes())
    data[len(data) // 2] ^= 1
    (copy / "de.array_record").write_bytes(data)
    with pytest.raises(UserError, match=r"de\.array_record is damaged"):
        Corpus(copy).verify()


MISTAKES = {
    "no folder": ({}, "is not a folder of text"),
    "nothing in it": ({"readme.md": b"x"}, "has no <language>.txt"),
    "empty": ({"xx.txt": b"\n \n", "en.txt": b"hello world\n"}, r"xx\.txt has no text"),
    "latin-1": ({"de.txt": "gut\ngr\u00fcn\n".encode("latin-1")}, r"de\.txt, line 2 is not UTF-8"),
    "both": ({"en.txt": b"a\n", "en.txt.gz": gzip.compress(b"a\n")}, "are both text of 'en'"),
    "cut archive": ({"en.txt.gz": gzip.compress(b"hello\n" * 9999)[:40]}, r"en\.txt\.gz is not a whole gzip file"),
    "no archive": ({"en.txt.gz": b"hello\n"}, r"en\.txt\.gz is not a whole gzip file"),
    "too little": ({"en.txt": b"hello world\n"}, "vocabulary_size 8000 is more than the text supports"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_reported_in_one_line_and_leave_nothing(mistake, tmp_path):
    files, message = MISTAKES[mistake]
    folder = tmp_path / "text"
    for name, data in files.items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        prepare(folder, tmp_path / "out" / "corpus")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*corpus*"))


@pytest.mark.parametrize("asked", [{"byte_fallback": True}, {"normalization": "nfkc"}])
def test_what_only_a_trained_tokenizer_can_do_is_refused_of_a_given_one(corpus, text_dir, tmp_path, asked):
    (name,) = asked
    with pytest.raises(UserError, match=f"^{name} is of a tokenizer to train, and one is given"):
        prepare(text_dir, tmp_path / "corpus", tokenizer=corpus.tokenizer.path, **asked)
    assert not (tmp_path / "corpus").exists()


def test_an_empty_language_is_reported_with_a_given_tokenizer_too(corpus, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "xx.txt").write_text("\n")
    with pytest.raises(UserError, match="has no text"):
        prepare(tmp_path / "text", tmp_path / "corpus", tokenizer=corpus.tokenizer.path)
    assert not (tmp_path / "corpus").exists()


def test_a_full_disk_leaves_nothing(corpus, text_dir, tmp_path):
    command = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000));"
        "from rembed_keras.data.prepare.corpora import prepare; prepare(*sys.argv[1:3], tokenizer=sys.argv[3])"
    )
    words = [sys.executable, "-c", command, text_dir, tmp_path / "corpus", corpus.tokenizer.path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "UserError" in done.stderr.splitlines()[-1] and "cannot be written" in done.stderr, done.stderr
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_a_corpus_is_named(tmp_path):
    with pytest.raises(UserError, match="is not a prepared corpus: make one with `rembed prepare`"):
        Corpus(tmp_path)


def test_a_file_that_many_threads_read_is_opened_once(corpus, monkeypatch):
    opened = []

    def open_slowly(self, file, opens=Corpus._open):
        opened.append(file)
        time.sleep(0.1)
        return opens(self, file)

    monkeypatch.setattr(Corpus, "_open", open_slowly)
    again = Corpus(corpus.path)
    with ThreadPoolExecutor(8) as pool:
        found = [*pool.map(lambda start: again.tokens("de", start, 4), range(8))]
    assert len(opened) == 1
    assert [part.tolist() for part in found] == [corpus.tokens("de", start, 4).tolist() for start in range(8)]


def test_languages_that_the_tokenizer_covers_badly_are_reported(corpus, tmp_path, capsys):
    (tmp_path / "text").mkdir()
    (tmp_path / "text/xx.txt").write_text("\u0905 \u0906\u0907 save\n" * 20, encoding="utf-8")
    (tmp_path / "text/en.txt").write_text("save the file\n" * 20, encoding="utf-8")
    made = prepare(tmp_path / "text", tmp_path / "corpus", tokenizer=corpus.tokenizer.path)
    words = corpus.tokenizer.encode("\u0905 \u0906\u0907 save")
    assert made.unknown_shares == {"en": 0.0, "xx": words.count(corpus.tokenizer.unk_id) / len(words)}
    show_prepared(made, "corpus", 1.0, tmp_path / "text")
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning.startswith(
        f"warning: {made.unknown_shares['xx']:.1%} of the tokens of xx are [UNK]: use a tokenizer that covers its char"
    )


def test_a_tokenizer_that_was_trained_can_be_trained_otherwise(corpus, monkeypatch, capsys):
    monkeypatch.setattr(Corpus, "unknown_shares", {"ja": 0.5})
    show_prepared(corpus, "corpus", 1.0, "text")
    assert (
        "of ja are [UNK]: use byte fallback, a larger vocabulary, or a tokenizer that covers" in capsys.readouterr().err
    )


@pytest.mark.parametrize("entry", ["settings", "sources", "files", "languages", "dtype", "block", "format"])
def test_a_manifest_without_an_entry_is_reported(entry, corpus, text_dir, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest[entry]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"remove (it|the corpus)|prepare it again"):
        prepare(text_dir, folder, vocabulary_size=900)


def test_a_file_that_the_manifest_leaves_out_is_damaged(corpus, tmp_path):
    folder = tmp_path / "corpus"
    shutil.copytree(corpus.path, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["counts.npy"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match=r"counts\.npy is damaged or missing"):
        show_prepared(Corpus(folder), "corpus", 1.0, "text")
