"""What is written is read as XTREME's `evaluate.py` reads it, and looks like its `mock_test_data/predictions`."""

import json

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.kinds.examples import Labelled, Question, Tagged
from rembed_keras.tasks.retrieval.bitext import Bitext
from rembed_keras.tasks.suites.xtreme import LANGUAGES
from rembed_keras.tasks.suites.xtreme_submissions import (
    missing_files,
    write_answers,
    write_bucc,
    write_labels,
    write_tags,
    write_tatoeba,
)

PAIRS = [Labelled("0", "a", "b"), Labelled("1", "c", "d")]
SENTENCES = [Tagged("0", ("Paris", "is")), Tagged("1", ("Rome",))]
QUESTIONS = [Question("arabic-23-1", "متى؟", "1889"), Question("arabic-24-1", "أين؟", "هنا")]
BITEXT = Bitext({"0": "a", "1": "b"}, {"0": "c", "1": "d", "2": "e"})


def test_labels_are_one_per_line(tmp_path):
    path = write_labels(tmp_path, "xnli", PAIRS, ["entailment", "neutral"], "sw")
    assert path == tmp_path / "xnli/test-sw.tsv" and path.read_bytes() == b"entailment\nneutral\n"
    assert write_labels(tmp_path, "pawsx", PAIRS, ["0", "1"], "ko").read_bytes() == b"0\n1\n"


def test_tags_are_one_per_line_with_blank_lines_between_sentences(tmp_path):
    path = write_tags(tmp_path, "panx", SENTENCES, [("B-LOC", "O"), ("B-LOC",)], "de")
    assert path == tmp_path / "panx/test-de.tsv" and path.read_bytes() == b"B-LOC\nO\n\nB-LOC\n"


def test_answers_are_by_id(tmp_path):
    path = write_answers(tmp_path, "tydiqa", QUESTIONS, ["1889", "هنا\u2028«هنا»\n"], "ar")
    assert path == tmp_path / "tydiqa/test-ar.json"
    assert json.loads(path.read_bytes()) == {"arabic-23-1": "1889", "arabic-24-1": "هنا\u2028«هنا»\n"}


def test_retrieval_is_pairs_of_ids_and_rows_from_0(tmp_path):
    path = write_bucc(tmp_path, [("de-000413461", "en-000091985"), ("de-2", "en-1")], "de")
    assert path == tmp_path / "bucc2018/test-de.tsv"
    assert path.read_bytes() == b"de-000413461\ten-000091985\nde-2\ten-1\n"
    path = write_tatoeba(tmp_path, BITEXT, [2, 0], "af")
    assert path == tmp_path / "tatoeba/test-af.tsv" and path.read_bytes() == b"2\n0\n"


def test_invalid_predictions_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there are 1 answers for 2 examples"):
        write_labels(tmp_path, "xnli", PAIRS, ["neutral"], "sw")
    with pytest.raises(ValueError, match="'contradictory' is none of contradiction, entailment, neutral"):
        write_labels(tmp_path, "xnli", PAIRS, ["neutral", "contradictory"], "sw")
    with pytest.raises(ValueError, match="sentence 0 has 2 words and 1 predicted tags"):
        write_tags(tmp_path, "panx", SENTENCES, [("O",), ("O",)], "de")
    with pytest.raises(ValueError, match="'NOUN' is none of O, B-LOC"):
        write_tags(tmp_path, "panx", SENTENCES, [("O", "O"), ("NOUN",)], "de")
    with pytest.raises(ValueError, match="there are 1 answers for 2 examples"):
        write_answers(tmp_path, "mlqa", QUESTIONS, ["1889"], "ar")
    for rows in ([0, 3], [0, -1]):
        with pytest.raises(ValueError, match="is none of 0, 1, 2"):
            write_tatoeba(tmp_path, BITEXT, rows, "af")
    with pytest.raises(UserError, match="'panx' is none of xnli, pawsx"):
        write_labels(tmp_path, "panx", PAIRS, ["0", "1"], "de")
    with pytest.raises(UserError, match="XTREME's pawsx has no language 'sw', but de en"):
        write_labels(tmp_path, "pawsx", PAIRS, ["0", "1"], "sw")
    assert not list(tmp_path.iterdir()), "nothing was written"


def test_missing_files_of_a_submission_are_listed(tmp_path):
    assert len(missing_files(tmp_path)) == sum(map(len, LANGUAGES.values()))
    write_answers(tmp_path, "mlqa", QUESTIONS, ["", ""], "ar")
    assert missing_files(tmp_path, ["mlqa"]) == [f"mlqa/test-{language}.json" for language in LANGUAGES["mlqa"][1:]]
