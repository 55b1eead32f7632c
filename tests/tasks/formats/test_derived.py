"""Tasks derived from text: labels by hand, nothing of a test sentence in training, and what is refused."""

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks import (
    Classification,
    ParallelText,
    Tagging,
    capitalization,
    frequency_bands,
    scripts,
    sentence_lengths,
)

LINES = {
    "en": ["Open the Writer file now", "the end of the Line", "Go", "Save the File", "The Help file", "a Calc cell"],
    "de": ["Die Datei jetzt", "das Ende der Zeile", "", "Speichern der Datei", "Die Hilfe", "eine Zelle"],
    "ru": ["Открыть файл Writer", "конец строки", "Файл", "Сохранить Файл", "Справка о файле", "Ячейка листа"],
    "ja": ["ファイルを開く", "行の末尾", "移動", "すべて保存", "ヘルプ", "セルの値"],
}


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "lines"
    folder.mkdir()
    for language, lines in LINES.items():
        (folder / f"{language}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ParallelText(folder)


def test_capitals_are_stripped_and_the_first_word_is_left_out(text):
    splits = capitalization(text)
    assert [(each.words, each.tags) for each in splits.train] == [
        (("the", "writer", "file", "now"), ("small", "capital", "small", "small")),
        (("end", "of", "the", "line"), ("small", "small", "small", "capital")),
    ]
    assert [each.tags for each in splits.dev["de"]] == [("small", "capital")]
    assert [each.words for each in splits.test["en"]] == [("help", "file"), ("calc", "cell")]
    assert "ja" not in splits.test and "ru" in splits.test
    assert Tagging("capitals", splits).tags == ["capital", "small"]


def test_bands_are_of_counts_in_all_lines(text):
    splits = frequency_bands(text)
    assert splits.train[1].words == ("the", "end", "of", "the", "Line")
    assert splits.train[1].tags == ("4-15", "1", "1", "4-15", "1")  # five times "the", once "The" among them
    assert [each.id for each in splits.test["en"]] == ["4", "5"]
    assert "ja" not in splits.test


def test_a_line_that_begins_in_another_script_does_not_bring_a_language_without_spaces(text):
    text.lines["ja"] = [f"A {line} を B" for line in text.lines["ja"]]
    for derive in (capitalization, frequency_bands):
        splits = derive(text)
        assert [*splits.test] == ["de", "en", "ru"] and {*splits.dev} <= {"de", "en", "ru"}


def test_names_in_latin_letters_give_a_language_no_capitals(text):
    text.lines["ko"] = [
        "파일 Writer 열기 지금",
        "줄 끝 Calc 의",
        "이동",
        "모두 저장",
        "도움말 Writer 파일",
        "셀 값 Calc 에서",
    ]
    splits = capitalization(text)
    assert [*splits.test] == ["de", "en", "ru"] and "ko" not in splits.dev
    assert [*frequency_bands(text).test] == ["de", "en", "ru", "ko"]


def test_scripts_are_those_of_most_letters_and_of_all_languages(text):
    splits = scripts(text)
    found = {(language, each.label) for language, rows in splits.test.items() for each in rows}
    assert found == {("en", "LATIN"), ("de", "LATIN"), ("ru", "CYRILLIC"), ("ja", "KATAKANA")}
    assert [*splits.dev] == ["all"]
    task = Classification("scripts", splits, train_language="all")
    assert len(task.validation) == 3  # of the fourth lines; HIRAGANA is in none of training
    assert [each.id for each in task.validation] == ["de-3", "en-3", "ru-3"]  # not the same


def test_lengths_are_in_characters(text):
    splits = sentence_lengths(text)
    assert [each.label for each in splits.train] == ["up to 32", "up to 32", "up to 16"]
    assert {each.label for each in splits.test["de"]} == {"up to 16"}


def test_no_line_is_in_two_parts(text):
    for derive in (capitalization, frequency_bands, scripts, sentence_lengths):
        splits = derive(text)
        train = {each.id for each in splits.train}
        dev, test = ({each.id for rows in part.values() for each in rows} for part in (splits.dev, splits.test))
        assert not train & dev and not train & test and not dev & test


def test_a_language_that_is_not_there_is_refused(text):
    with pytest.raises(UserError, match="no language 'fr'"):
        scripts(text, "fr")


def test_a_task_takes_the_training_language_from_its_examples(text):
    splits = capitalization(text, "de")
    task = Tagging("capitals", splits)
    assert task.train_language == "de" and task.validation == splits.dev["de"] != splits.dev["en"]
    assert Tagging("capitals", splits, train_language="de").validation == task.validation
    assert Tagging("capitals", capitalization(text)).train_language == "en"
    assert Classification("scripts", scripts(text)).train_language == "all"
    with pytest.raises(UserError, match="train_language is 'en', and its examples train in 'de': leave it out here"):
        Tagging("capitals", splits, train_language="en")
