"""Excerpts of text: equal shares of all languages, of the text and the settings that a recipe says."""

import json
import os

import pytest

from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.prepare.excerpts import write_excerpt
from rembed_keras.errors import UserError
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages.prepare import prepare as prepare_stage


def write_text(folder, **languages):
    folder.mkdir(exist_ok=True)
    for language, line in languages.items():
        (folder / f"{language}.txt").write_text(f"{line}\n" * 50, encoding="utf-8")
    return folder


def write_documents(path, *languages, each=50):
    path.parent.mkdir(exist_ok=True)
    rows = [{"text": f"text {language}", "lang": language} for language in languages for _ in range(each)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path.parent


def lines_of(folder):
    return {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(folder.glob("*.txt"))}


def test_languages_have_equal_shares_and_one_paragraph_at_least(tmp_path):
    text = write_text(tmp_path / "text", de="eins zwei", en="one two 3")
    found = lines_of(write_excerpt(text, tmp_path / "excerpt", 36e-6))
    assert found == {"de": ["eins zwei"] * 2, "en": ["one two 3"] * 2}
    for megabytes in (1e-6, 0):
        tiny = lines_of(write_excerpt(text, tmp_path / "tiny", megabytes))
        assert tiny == {"de": ["eins zwei"], "en": ["one two 3"]}


@pytest.mark.parametrize("languages", [None, ["de", "en", "fr"]])
def test_languages_that_begin_anywhere_in_a_file_have_their_shares(languages, tmp_path):
    text = write_documents(tmp_path / "text/all.jsonl", "en", "de", "fr")
    found = lines_of(write_excerpt(text, tmp_path / "excerpt", 42e-6, languages))
    assert found == {language: [f"text {language}"] * 2 for language in ("de", "en", "fr")}


def test_no_more_is_read_than_is_taken(tmp_path):
    text = write_text(tmp_path / "text", de="eins zwei", en="one two 3")
    with open(text / "de.txt", "ab") as file:
        file.write(b"\xff is no UTF-8\n" * 100_000)
    assert [*lines_of(write_excerpt(text, tmp_path / "excerpt", 36e-6))] == ["de", "en"]
    documents = write_documents(tmp_path / "documents/all.jsonl", "en", "de")
    with open(documents / "all.jsonl", "a") as file:
        file.write("no JSON")
    assert [*lines_of(write_excerpt(documents, tmp_path / "some", 14e-6, ["en", "de"]))]
    with pytest.raises(UserError, match="not a JSON document"):  # languages may still come
        write_excerpt(documents, tmp_path / "all", 14e-6)


def test_an_excerpt_is_used_again_for_its_own_text_and_settings_alone(tmp_path, monkeypatch):
    place = tmp_path / "excerpt"
    first = write_text(tmp_path / "first", de="eins zwei", en="one two 3")
    write_excerpt(first, place, 36e-6)
    with monkeypatch.context() as patched:
        patched.setattr("rembed_keras.data.prepare.excerpts._first", None)  # nothing is read
        write_excerpt(first, place, 36e-6)
    assert len(lines_of(write_excerpt(first, place, 72e-6))["de"]) == 4
    assert [*lines_of(write_excerpt(first, place, 72e-6, ["en"]))] == ["en"]
    other = write_text(tmp_path / "other", en="other text")
    assert lines_of(write_excerpt(other, place, 1e-6)) == {"en": ["other text"]}
    (other / "en.txt").write_text("new text\n", encoding="utf-8")
    assert lines_of(write_excerpt(other, place, 1e-6)) == {"en": ["new text"]}
    for leftover in place.glob("*.json"):
        leftover.unlink()  # as excerpts of earlier versions are
    assert lines_of(write_excerpt(first, place, 1e-6)) == {"de": ["eins zwei"], "en": ["one two 3"]}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_corpus_of_another_excerpt_is_refused_and_the_first_goes_on(corpus, tmp_path):
    texts = [write_text(tmp_path / name, en=f"open the {name} file") for name in ("first", "other")]
    workdir = Workdir(tmp_path / "run")
    settings = {"tokenizer": str(corpus.tokenizer.path), "excerpt_megabytes": 1e-4}
    prepare_stage(workdir, str(texts[0]), **settings)
    with pytest.raises(UserError, match="has a corpus of other text or settings"):
        prepare_stage(workdir, str(texts[1]), **settings)
    for path in texts[0].iterdir():
        os.utime(path)  # as a copy has it
    prepare_stage(workdir, str(texts[0]), **settings)
    workdir.close()


@pytest.mark.parametrize("language", ["zh/Hant", ".de", "x" * 300])
def test_a_language_that_names_no_file_is_refused_and_leaves_nothing(language, tmp_path):
    text = write_documents(tmp_path / "text/all.jsonl", language)
    with pytest.raises(UserError, match="cannot be"):
        write_excerpt(text, tmp_path / "excerpt", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("kind", ["text", "documents"])
def test_a_language_without_text_is_named_as_of_the_whole(kind, corpus, tmp_path):
    text, documents = write_text(tmp_path / "text", en="open"), write_documents(tmp_path / "documents/a.jsonl", "en")
    (text / "de.txt").write_text("\n\n", encoding="utf-8")
    source, languages = {"text": (text, None), "documents": (documents, ["de", "en"])}[kind]
    with pytest.raises(UserError, match="has no text"):
        prepare(source, tmp_path / "corpus", tokenizer=corpus.tokenizer.path, languages=languages)
    with pytest.raises(UserError, match="has no text"):
        write_excerpt(source, tmp_path / "excerpt", 1, languages)


def test_a_run_that_was_moved_away_from_its_corpus_says_so(tmp_path):
    text = write_text(tmp_path / "text", en="some words of a text that is read")
    run = tmp_path / "moved" / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "corpus").symlink_to("../corpora/shared/corpus")
    workdir = Workdir(run)
    with pytest.raises(UserError, match=r"corpus is a link to \.\./corpora/shared/corpus, where nothing is: bring"):
        prepare_stage(workdir, str(text), vocabulary_size=25)
    workdir.close()
    assert [path.name for path in (tmp_path / "moved").iterdir()] == ["run"]
