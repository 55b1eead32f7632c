"""Malformed text, tokenizers and corpora."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.prepare.corpora import prepare
from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.conftest import files_of
from tests.bad_input.mutations import mutated, mutated_json

TEXT = b"save the file\nopen a table with the new window\n\nthe end of all\n"
PACKED = gzip.compress(TEXT, mtime=0)
PREPARE = ["prepare", "text", "out", "--tokenizer", "tokenizer.model"]


def whole(folder):
    Corpus(folder).verify()


@pytest.fixture(scope="session")
def prepared(tokenizer, tmp_path_factory):
    """The files of a corpus, in the folder `corpus`."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "text").mkdir()
    for language in ("de", "en"):
        (folder / f"text/{language}.txt").write_bytes(TEXT)
    prepare(folder / "text", folder / "corpus", tokenizer=tokenizer.path)
    return files_of(folder)


def test_the_text_without_faults(tokenizer):
    files = {"text/en.txt": TEXT, "text/de.txt.gz": PACKED}
    assert attempt(PREPARE, files, {"tokenizer.model": tokenizer.path}, whole)[0] == 0


@attempts(90)
@given(st.tuples(mutated(TEXT), st.just(PACKED)) | st.tuples(st.just(TEXT), mutated(PACKED)))  # none hides another
def test_text_with_faults_in_it(tokenizer, contents):
    files = dict(zip(("text/en.txt", "text/de.txt.gz"), contents, strict=True))
    attempt(PREPARE, files, {"tokenizer.model": tokenizer.path}, whole)


@attempts(50)
@given(content=mutated(TEXT))
def test_text_in_one_file(tokenizer, content):
    attempt(PREPARE, {"text/en.txt": content}, {"tokenizer.model": tokenizer.path}, whole)


NAMES = [
    "en.txt",
    "en.txt.gz",
    ".txt",
    ".hidden.txt",
    "en.csv",
    "a b\n.txt",
    "é.txt",
    "x" * 200 + ".txt",
    "en.txt/de.txt",
]


@attempts(40)
@given(names=st.dictionaries(st.sampled_from(NAMES), st.sampled_from([TEXT, b"", None, b"\xff"]), max_size=3))
def test_folders_of_text(tokenizer, names):
    files = {f"text/{name}": content for name, content in names.items()}
    if "text/en.txt" in files and "text/en.txt/de.txt" in files:
        del files["text/en.txt"]
    attempt(PREPARE, files, {"tokenizer.model": tokenizer.path}, whole)


@attempts(50)
@given(data=st.data())
def test_tokenizers_with_faults_in_them(tokenizer, data):
    model = data.draw(mutated(tokenizer.path.read_bytes()))
    attempt(PREPARE, {"text/en.txt": TEXT, "tokenizer.model": model}, whole=whole)


OPTIONS = ["0", "-1", "5", "1", "30", "8000", "99999999999", "x", "", "1e3", "nan"]


@attempts(12)
@given(
    size=st.sampled_from(OPTIONS), text=st.sampled_from([TEXT, TEXT * 20, b"a\n", b"\n"]), byte_fallback=st.booleans()
)
def test_vocabularies_that_a_text_does_not_support(size, text, byte_fallback):
    arguments = ["prepare", "text", "out", f"--vocabulary-size={size}", *["--byte-fallback"] * byte_fallback]
    attempt(arguments, {"text/en.txt": text}, whole=whole)


@attempts(50)
@given(data=st.data())
def test_corpora_with_faults_in_them(prepared, tokenizer, data):
    """A corpus that is there already is read before it is believed."""
    name = data.draw(st.sampled_from(["manifest.json"] * 3 + ["tokenizer.model", "counts.npy"]))
    spoil = mutated_json(json.loads(prepared["corpus/manifest.json"])) if name == "manifest.json" else None
    content = data.draw(spoil if spoil is not None else mutated(prepared[f"corpus/{name}"]))
    files = {path.replace("corpus/", "there/"): content for path, content in prepared.items()}
    arguments = ["prepare", "text", "there", "--tokenizer", "tokenizer.model"]
    attempt(arguments, files | {f"there/{name}": content}, {"tokenizer.model": tokenizer.path})
