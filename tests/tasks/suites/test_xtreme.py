"""Files in the format of XTREME's download script, odd cases included."""

import csv
import json
import re

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.suites.xtreme import (
    LABELS,
    LANGUAGES,
    TAGS,
    bucc,
    mlqa,
    panx,
    pawsx,
    tatoeba,
    tydiqa,
    udpos,
    xnli,
    xquad,
)

PAIRS = {"xnli": xnli, "pawsx": pawsx}
TAGGED = {"udpos": udpos, "panx": panx}
CONTEXT = "🌍 Die Erde\u2028ist 4,5 Mrd. Jahre alt."  # one code point, two UTF-16 units, before the answer


def put(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return folder


def put_rows(folder, name, rows):
    """As the script writes pairs: Python's csv module with tabs, whose lines end with a carriage return."""
    put(folder, name, "")
    with open(folder / name, "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(rows)
    return folder


def put_words(folder, name, sentences):
    """As the script writes tagged words: no empty line after the last sentence."""
    return put(folder, name, "\n".join("".join(f"{line}\n" for line in sentence) for sentence in sentences))


def entry(name, answers=((2, "Die"),), question="Wie alt?"):
    return {
        "id": name,
        "question": question,
        "answers": [{"answer_start": start, "text": text} for start, text in answers],
    }


def put_questions(folder, name, *entries, context=CONTEXT):
    paragraphs = [{"context": context, "qas": [each]} for each in entries]
    content = {"data": [{"title": "Erde", "paragraphs": paragraphs}], "version": "1.1"}
    return put(folder, name, json.dumps(content))


RIGHT = entry("q1", [(2, "Die Erde"), (15, "4,5 Mrd.")])
UNLABELED = entry("q2", [(0, "")])  # as the script writes a removed answer


def put_pairs_task(folder, task):
    rows = [[f"one {label}", f"two {label}", label] for label in LABELS[task]]
    put_rows(folder, f"{task}/train-en.tsv", rows)
    put_rows(folder, f"{task}/dev-en.tsv", rows[:1])
    for language in LANGUAGES[task]:
        put_rows(folder, f"{task}/test-{language}.tsv", [["eins", "zwei"]])
    return folder


def put_tagged_task(folder, task):
    put_words(folder, f"{task}/train-en.tsv", [[f"word\t{tag}" for tag in TAGS[task]], ["Yes\t" + TAGS[task][0]]])
    put_words(folder, f"{task}/dev-en.tsv", [["No\t" + TAGS[task][0]]])
    for language in LANGUAGES[task]:
        put_words(folder, f"{task}/test-{language}.tsv", [["Ja"]])
    return folder


def put_question_tasks(folder):
    put_questions(folder, "squad/train-v1.1.json", RIGHT)
    put_questions(folder, "squad/dev-v1.1.json", entry("d1"))
    for language in LANGUAGES["xquad"]:
        put_questions(folder, f"xquad/xquad.{language}.json", UNLABELED)
    for language in LANGUAGES["mlqa"]:
        for other in ("en", language):  # the other pairs of languages are not XTREME's
            put_questions(folder, f"mlqa/MLQA_V1/test/test-context-{language}-question-{other}.json", entry(other))
        put_questions(folder, f"mlqa/MLQA_V1/test/test-context-{language}-question-{language}.json", UNLABELED)
        put_questions(folder, f"mlqa/MLQA_V1/dev/dev-context-{language}-question-{language}.json", entry(language))
    english = [entry(f"english-{i}-0") for i in range(4)]
    train = "tydiqa/tydiqa-goldp-v1.1-train/tydiqa-goldp-v1.1-train.json"
    put_questions(folder, train, *english, entry("finnish-7-1"))
    names = "arabic bengali english finnish indonesian korean russian swahili telugu".split()  # noqa: SIM905
    for language, name in zip(["ar", "bn", "en", "fi", "id", "ko", "ru", "sw", "te"], names, strict=True):
        dev = f"tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{language}.dev.json"
        put_questions(folder, dev, entry(f"{name}-23-1", [(0, "")]))
    return folder


def test_the_languages_are_those_of_xtremes_table():
    counts = {"xnli": 15, "pawsx": 7, "udpos": 33, "panx": 40, "xquad": 11, "mlqa": 7, "tydiqa": 9, "bucc2018": 4}
    assert {task: len(set(languages)) for task, languages in LANGUAGES.items()} == counts | {"tatoeba": 36}
    assert set().union(*LANGUAGES.values()) == set(LANGUAGES["panx"])


@pytest.mark.parametrize("task", PAIRS)
def test_pairs_are_trained_in_english_and_tested_everywhere(task, tmp_path):
    splits = PAIRS[task](put_pairs_task(tmp_path, task))
    assert [pair.label for pair in splits.train] == list(LABELS[task])
    assert list(splits.dev) == ["en"] and tuple(splits.test) == LANGUAGES[task]
    assert set().union(*splits.test.values()) == {Labelled("0", "eins", "zwei")}
    put_rows(tmp_path, f"{task}/dev-fr.tsv", [["un", "deux", LABELS[task][1]]])
    splits = PAIRS[task](tmp_path, languages=["de"], dev_languages=["en", "fr"])
    assert list(splits.dev) == ["en", "fr"] and list(splits.test) == ["de"]


def test_pairs_are_the_sentences_before_they_were_written_as_csv(tmp_path):
    rows = [
        ['"Stop," he said.', 'He said "stop".', "entailment"],
        ['"" R "" and "x"', "a\u2028b\u0085c", "neutral"],
        ["a" * 200_000, "long for the csv module", "contradiction"],
    ]
    put_rows(put_pairs_task(tmp_path, "xnli"), "xnli/train-en.tsv", rows)
    text = (tmp_path / "xnli/train-en.tsv").read_text(encoding="utf-8")
    put(tmp_path, "xnli/train-en.tsv", "\ufeff" + text + '"raw"\t"" raw ""\tcontradictory\n\n')
    train = xnli(tmp_path).train
    assert [[pair.text, pair.pair, pair.label] for pair in train] == [*rows, ['"raw"', '"" raw ""', "contradiction"]]
    assert [pair.id for pair in train] == ["0", "1", "2", "3"]


def test_missing_sentences_keep_their_rows(tmp_path):
    rows = [["NS", "zwei"], ["", "zwei"], ["eins", ""], ["", ""]]
    put_rows(put_pairs_task(tmp_path, "pawsx"), "pawsx/test-de.tsv", rows)
    assert [[pair.text, pair.pair] for pair in pawsx(tmp_path).test["de"]] == rows
    put_rows(tmp_path, "pawsx/test-de.tsv", [["sentence1", "sentence2", "label"], ["eins", "zwei", "1"]])
    assert pawsx(tmp_path).test["de"] == [Labelled("0", "eins", "zwei", "1")], "answers that are there are read"


@pytest.mark.parametrize("task", TAGGED)
def test_words_are_trained_in_english_and_tested_everywhere(task, tmp_path):
    splits = TAGGED[task](put_tagged_task(tmp_path, task))
    assert [sentence.tags for sentence in splits.train] == [TAGS[task], TAGS[task][:1]]
    assert list(splits.dev) == ["en"] and tuple(splits.test) == LANGUAGES[task]
    assert {(s.id, s.words, s.tags) for test in splits.test.values() for s in test} == {("0", ("Ja",), None)}


def test_odd_lines_of_words(tmp_path):
    put_tagged_task(tmp_path, "udpos")
    put(tmp_path, "udpos/dev-en.tsv", "\ufeff\n100\u00a0000 $\tNUM\r\n\tPUNCT\r\n\r\n\r\nen:a\u2028b\tX\r\n")
    put(tmp_path, "udpos/test-vi.tsv", "Hà Nội\n\u00a0\nlà\n\n\n")
    splits = udpos(tmp_path)
    assert [(s.id, s.words, s.tags) for s in splits.dev["en"]] == [
        ("0", ("100\u00a0000 $", ""), ("NUM", "PUNCT")),
        ("1", ("en:a\u2028b",), ("X",)),
    ]
    assert [s.words for s in splits.test["vi"]] == [("Hà Nội",), ("là",)], "a line of spaces ends a sentence"


def test_wikianns_language_is_taken_from_its_words(tmp_path):
    put_tagged_task(tmp_path, "panx")
    put_words(tmp_path, "panx/dev-en.tsv", [["en:Paris\tB-LOC", "en::\tO"], ["en:en:x\tO"]])
    put_words(tmp_path, "panx/test-de.tsv", [["de:Paris\tB-LOC"], ["Rom\tB-LOC"]])
    splits = panx(tmp_path)
    assert [s.words for s in splits.dev["en"]] == [("Paris", ":"), ("en:x",)]
    assert [s.words for s in splits.test["de"]] == [("de:Paris",), ("Rom",)], "not all words have it"
    assert splits.test["de"][0].tags == ("B-LOC",)


def test_xquad_is_trained_and_tuned_on_squad(tmp_path):
    splits = xquad(put_question_tasks(tmp_path))
    assert [q.id for q in splits.train] == ["q1"] and [q.id for q in splits.dev["en"]] == ["d1"]
    assert (splits.train[0].answers, splits.train[0].starts) == (("Die Erde", "4,5 Mrd."), (2, 15))
    assert splits.train[0].context == CONTEXT, "nothing is stripped, or starts would move"
    assert set(splits.test) == set(LANGUAGES["xquad"])
    assert {(q.id, q.answers, q.starts) for q in splits.test["th"]} == {("q2", (), ())}


def test_mlqa_asks_and_answers_in_one_language(tmp_path):
    splits = mlqa(put_question_tasks(tmp_path), dev_languages=["en", "hi"])
    assert [q.id for q in splits.train] == ["q1"]
    assert set(splits.test) == set(LANGUAGES["mlqa"])
    assert all([q.id for q in test] == ["q2"] for test in splits.test.values())
    assert {language: [q.id for q in dev] for language, dev in splits.dev.items()} == {"en": ["en"], "hi": ["hi"]}
    assert list(mlqa(tmp_path).dev) == ["en"]


def test_tydiqa_is_trained_on_its_english_questions(tmp_path):
    splits = tydiqa(put_question_tasks(tmp_path))
    assert [q.id for q in splits.train] == [f"english-{i}-0" for i in range(4)] and not splits.dev
    assert [q.id for q in splits.test["sw"]] == ["swahili-23-1"] and len(splits.test) == 9
    own = "tydiqa/tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-korean.json"
    (tmp_path / "tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.ko.dev.json").unlink()
    put_questions(tmp_path, own, entry("korean-5-1"))
    assert tydiqa(tmp_path, ["ko"]).test["ko"][0].answers == ("Die",), "under its own name, with its answers"
    (tmp_path / own).unlink()
    put_questions(tmp_path, "tydiqa/tydiqa-goldp-v1.1-dev.json", entry("korean-6-1"), entry("telugu-6-1"))
    assert [q.id for q in tydiqa(tmp_path, ["ko"]).test["ko"]] == ["korean-6-1"], "out of the file of all languages"


def test_development_questions_share_no_passage_with_training(tmp_path):
    put_question_tasks(tmp_path)
    paragraphs = [{"context": f"Die {c}", "qas": [entry(f"english-{i}", [(0, "Die")])]} for i, c in enumerate("bacbd")]
    train = "tydiqa/tydiqa-goldp-v1.1-train/tydiqa-goldp-v1.1-train.json"
    put(tmp_path, train, json.dumps({"data": [{"paragraphs": paragraphs}]}))
    splits = tydiqa(tmp_path, dev_size=2)
    assert [q.id for q in splits.dev["en"]] == ["english-3", "english-4"]
    assert [q.id for q in splits.train] == ["english-1", "english-2"]
    with pytest.raises(UserError, match=r"dev_size is 5; it must be less than the 5 training questions"):
        tydiqa(tmp_path, dev_size=5)
    with pytest.raises(UserError, match=r"dev_size is 4; the passages of these questions are those of all: make it"):
        tydiqa(tmp_path, dev_size=4)
    for size in (-1, 2.5, True, "2"):
        with pytest.raises(UserError, match=r"dev_size is .*; it must be a whole number of at least 0"):
            tydiqa(tmp_path, dev_size=size)


def test_bucc_keeps_ids_as_they_are(tmp_path):
    folder = tmp_path / "bucc2018"
    for part, name in (("dev", "000000007"), ("test", "000413461")):
        put(folder, f"de-en.{part}.de", f"de-{name}\tEins,\u2028zwei\r\nde-000000008\tDrei\tund\n")
        put(folder, f"de-en.{part}.en", f"en-{name}\tOne\n")
    put(folder, "de-en.dev.gold", "de-000000007\ten-000000007\r\n")
    splits = bucc(tmp_path, ["de"])
    assert splits.dev["de"].others == {"de-000000007": "Eins,\u2028zwei", "de-000000008": "Drei"}
    assert splits.dev["de"].english == {"en-000000007": "One"}
    assert splits.dev["de"].gold == {("de-000000007", "en-000000007")}
    assert list(splits.test["de"].others) == ["de-000413461", "de-000000008"] and splits.test["de"].gold is None
    put(folder, "de-en.test.gold", "de-000413461\ten-000413461\n")
    assert bucc(tmp_path, ["de"]).test["de"].gold == {("de-000413461", "en-000413461")}


def test_tatoebas_alignment_is_restored_from_its_source(tmp_path):
    original = ["Yes.", "No.", "Perhaps.", "No."]
    folder = tmp_path / "tatoeba"
    put(folder, "sw-en.sw", "Ndiyo.\nHapana.\r\nLabda.\u2028\nLa.\n")
    put(folder, "sw-en.en", "".join(f"{line}\n" for line in sorted(original)))
    splits = tatoeba(tmp_path, ["sw"])
    assert not splits.dev and splits.test["sw"].gold is None
    assert splits.test["sw"].english == {"0": "No.", "1": "No.", "2": "Perhaps.", "3": "Yes."}
    assert splits.test["sw"].others == {"0": "Ndiyo.", "1": "Hapana.", "2": "Labda.", "3": "La."}
    put(folder, "tatoeba.swh-eng.eng", "".join(f"{line}\n" for line in original))
    assert tatoeba(tmp_path, ["sw"]).test["sw"].gold == {("1", "0"), ("3", "1"), ("2", "2"), ("0", "3")}
    put(folder, "tatoeba.swh-eng.eng", "Other\n")
    with pytest.raises(UserError, match=r"tatoeba\.swh-eng\.eng has other sentences than .*sw-en\.en"):
        tatoeba(tmp_path, ["sw"])
    put(folder, "sw-en.en", "".join(f"{line}\n" for line in original))
    assert tatoeba(tmp_path, ["sw"]).test["sw"].gold == {(str(i), str(i)) for i in range(4)}, "never sorted: parallel"


EVERYTHING = {**PAIRS, **TAGGED, "xquad": xquad, "mlqa": mlqa, "tydiqa": tydiqa, "bucc2018": bucc, "tatoeba": tatoeba}


FILES = {
    "xnli": "test-zh.tsv",
    "pawsx": "test-zh.tsv",
    "udpos": "test-zh.tsv",
    "panx": "test-zh.tsv",
    "xquad": "xquad.zh.json",
    "mlqa": "MLQA_V1/test/test-context-zh-question-zh.json",
    "tydiqa": "tydiqa-goldp-v1.1-dev/tydiqa.goldp.te.dev.json",
    "bucc2018": "de-en.dev.de",
    "tatoeba": "af-en.en",
}


@pytest.mark.parametrize("task", EVERYTHING)
def test_a_missing_file_is_named(task, tmp_path):
    put_question_tasks(tmp_path)
    for each in PAIRS:
        put_pairs_task(tmp_path, each)
    for each in TAGGED:
        put_tagged_task(tmp_path, each)
    path = tmp_path / task / FILES[task]
    path.unlink(missing_ok=True)
    with pytest.raises(UserError, match=rf"^{re.escape(str(path))}(: No such file| is missing)"):
        EVERYTHING[task](tmp_path)


@pytest.mark.parametrize("task", EVERYTHING)
def test_unknown_languages_are_named(task, tmp_path):
    put_question_tasks(tmp_path)
    for each in PAIRS:
        put_pairs_task(tmp_path, each)
    for each in TAGGED:
        put_tagged_task(tmp_path, each)
    with pytest.raises(UserError, match=rf"XTREME's {task} has no language 'xx', but {' '.join(LANGUAGES[task])}"):
        EVERYTHING[task](tmp_path, languages=["xx"])
