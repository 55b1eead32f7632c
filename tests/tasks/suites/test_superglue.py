"""Every file is written here as the official download has it."""

import json

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.answers import squad_scores
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.metrics import exact_match_by_question
from rembed_keras.tasks.suites import superglue

BOOLQ = {"question": "is it so", "passage": 'It -- It is\u2028 "so.', "idx": 0}
CB = {"premise": "B: I hope.\nA: Yeah.", "hypothesis": "it is", "idx": 0}
COPA = {
    "premise": "My body cast a shadow.",
    "choice1": "The sun rose.",
    "choice2": "Grass.",
    "question": "cause",
    "idx": 3,
}
RTE = {"premise": "a", "hypothesis": "b", "idx": 0}
WIC = {
    "word": "run",
    "sentence1": "Run",
    "sentence2": 'She "ran',
    "start1": 0,
    "end1": 3,
    "start2": 5,
    "end2": 8,
    "idx": 0,
}
PASSAGE = "Ann (UN) met Bo.\n@highlight\nBo met Ann\n@highlight\nDid Ann laugh?"
RECORD = {
    "source": "CNN",
    "passage": {
        "text": PASSAGE,
        "entities": [{"start": s, "end": e} for s, e in [(0, 2), (5, 6), (13, 14), (28, 29), (35, 37), (54, 56)]],
    },
    "idx": 7,
}


def multirc(*labels):
    """Questions 11 and 12, with two answers and one."""
    hidden = not labels
    answers = [{"text": text, "idx": 40 + i} | ({} if hidden else {"label": labels[i]}) for i, text in enumerate("xyz")]
    questions = [
        {"question": "Who?", "idx": 11, "answers": answers[:2]},
        {"question": "Why?", "idx": 12, "answers": answers[2:]},
    ]
    return {"idx": 5, "version": 1.1, "passage": {"text": "Long ago.", "questions": questions}}


def record(*queries):
    return RECORD | {"qas": list(queries)}


def query(idx, *answers):
    given = [{"start": 0, "end": 0, "text": text} for text in answers]
    return {"query": f"{idx}: @placeholder's turn", "idx": idx} | ({"answers": given} if answers else {})


def wsc(text, span1, span2, **rest):
    names = ("span1_index", "span1_text", "span2_index", "span2_text")
    return {"text": text, "target": dict(zip(names, (*span1, *span2), strict=True)), "idx": 0} | rest


@pytest.fixture
def write(tmp_path):
    def files(task, train, dev=None, test=None):
        for name, rows in {"train": train, "val": dev or train, "test": test}.items():
            if rows:
                path = tmp_path / task / f"{name}.jsonl"
                path.parent.mkdir(exist_ok=True)
                path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        return tmp_path

    return files


def test_pairs(write):
    folder = write("BoolQ", [BOOLQ | {"label": True}], [BOOLQ | {"label": False}], [BOOLQ])
    splits = superglue.boolq(folder)
    assert splits.train == [Labelled("0", 'It -- It is\u2028 "so.', "is it so", "true")]
    assert [splits.dev["en"][0].label, splits.test["en"][0].label] == ["false", None]
    cb = superglue.cb(write("CB", [CB | {"label": "neutral"}]))
    assert cb.train == [Labelled("0", "B: I hope.\nA: Yeah.", "it is", "neutral")]
    assert cb.test == {}


def test_rte_brings_its_diagnostic_sets(write):
    folder = write("RTE", [RTE | {"label": "entailment"}], test=[RTE])
    assert list(superglue.rte(folder).test) == ["en"]
    for name, texts in {"AX-b": ("sentence1", "sentence2"), "AX-g": ("premise", "hypothesis")}.items():
        (folder / name).mkdir()
        row = {"idx": 2, "label": "not_entailment", texts[0]: name, texts[1]: "b", "pair_id": 551646}
        (folder / name / f"{name}.jsonl").write_text(json.dumps(row))
    tests = superglue.rte(folder).test
    assert list(tests) == ["en", "AX-b", "AX-g"]
    assert tests["AX-b"] == [Labelled("2", "AX-b", "b", "not_entailment")] == superglue.ax_b(folder).test["AX-b"]
    assert tests["AX-g"] == [Labelled("2", "AX-g", "b", "not_entailment")] == superglue.ax_g(folder).test["AX-g"]


def test_copa_has_two_candidates_of_which_one_is_right(write):
    splits = superglue.copa(write("COPA", [COPA | {"label": 0}], [COPA | {"label": 1, "question": "effect"}], [COPA]))
    text = "My body cast a shadow. What was the cause of this?"
    assert splits.train == [
        Labelled("3-0", text, "The sun rose.", "true", "3", "The sun rose."),
        Labelled("3-1", text, "Grass.", "false", "3", "Grass."),
    ]
    assert [example.label for example in splits.dev["en"]] == ["false", "true"]
    assert splits.dev["en"][0].text == "My body cast a shadow. What happened as a result?"
    assert [example.label for example in splits.test["en"]] == [None, None]


def test_multirc_has_questions_without_a_right_answer(write):
    splits = superglue.multirc(write("MultiRC", [multirc(1, 0, 0)], test=[multirc()]))
    assert splits.train == [
        Labelled("5-11-40", "Long ago.", "Who? x", "true", "5-11", "x"),
        Labelled("5-11-41", "Long ago.", "Who? y", "false", "5-11", "y"),
        Labelled("5-12-42", "Long ago.", "Why? z", "false", "5-12", "z"),
    ]
    groups, right = zip(*((e.group, int(e.label == "true")) for e in splits.train), strict=True)
    assert exact_match_by_question(groups, right, [0, 0, 0]) == 0.5
    assert [example.label for example in splits.test["en"]] == [None] * 3


def test_record_has_each_name_once(write):
    rows = [record(query(20, "Ann", "Ann"), query(21, "UN", "Bo"))]
    splits = superglue.record(write("ReCoRD", rows, test=[record(query(22))]))
    text = "Ann (UN) met Bo. Bo met Ann. Did Ann laugh?"
    assert splits.train == [
        Labelled("20-0", text, "20: Ann's turn", "true", "20", "Ann"),
        Labelled("20-1", text, "20: UN's turn", "false", "20", "UN"),
        Labelled("20-2", text, "20: Bo's turn", "false", "20", "Bo"),
        Labelled("21-0", text, "21: Ann's turn", "false", "21", "Ann"),
        Labelled("21-1", text, "21: UN's turn", "true", "21", "UN"),
        Labelled("21-2", text, "21: Bo's turn", "true", "21", "Bo"),
    ]
    assert [(e.label, e.answer) for e in splits.test["en"]] == [(None, "Ann"), (None, "UN"), (None, "Bo")]


def test_the_right_answers_of_record_are_kept(write):
    examples = superglue.record(write("ReCoRD", [record(query(20, "Ann"), query(21, "UN", "Bo"))])).train
    right = [[e.answer for e in examples if e.group == group and e.label == "true"] for group in ("20", "21")]
    assert squad_scores(["Ann", "bo."], right) == {"exact_match": 1.0, "f1": 1.0}
    assert squad_scores(["Bo", "Ann"], right) == {"exact_match": 0.0, "f1": 0.0}


def test_wic_marks_the_word_at_the_edges(write):
    splits = superglue.wic(write("WiC", [WIC | {"label": False}], test=[WIC]))
    assert splits.train == [Labelled("0", '"Run"', 'She ""ran"', "false")]
    assert splits.test["en"][0].label is None


@pytest.mark.parametrize(
    ("text", "span1", "span2", "marked"),
    [
        ("Mark lied to Pete. He laughed.", (0, "Mark"), (4, "He"), "*Mark* lied to Pete. #He# laughed."),
        ("Ann saw  him.", (0, "Ann"), (2, "him"), "*Ann* saw  #him#."),  # two spaces, a full stop
        ('"Mr. Poe," she said.', (0, "Mr. Poe"), (2, "she"), '"*Mr. Poe*," #she# said.'),
        ("The lawyer left: he ran.", (0, "the lawyer"), (3, "he"), "*The lawyer* left: #he# ran."),  # another case
        ("A dog, it\nbarked", (0, "A dog."), (2, "it"), "*A dog*, #it#\nbarked"),  # a full stop that is not there
        ("Ana and her\nson met", (2, "her son"), (2, "her"), "Ana and *#her#\nson* met"),  # one in the other
        ("Ana and her son met", (1, "and her"), (2, "her"), "Ana *and #her#* son met"),
        ("he sang, they", (2, "they all"), (0, "he"), "#he# sang, *they*"),  # longer than the text
    ],
)
def test_wsc_marks_noun_and_pronoun(text, span1, span2, marked, write):
    rows = [wsc(text, span1, span2, label=True)]
    splits = superglue.wsc(write("WSC", rows, test=[wsc(text, span1, span2)]))
    assert splits.train[0].text == marked
    assert (splits.train[0].pair, splits.train[0].label, splits.test["en"][0].label) == (None, "true", None)


MISTAKES = [
    ("BoolQ", BOOLQ | {"label": "maybe"}, "line 1: label is 'maybe', none of false, true"),
    ("BoolQ", BOOLQ | {"label": 2}, "line 1: label is 2, none of"),
    ("BoolQ", BOOLQ, "example 0 has no label"),
    ("BoolQ", {"passage": "a", "idx": 0, "questions": ""}, "line 1 has no question; did you mean questions"),
    ("CB", CB | {"label": True}, "label is True, none of contradiction"),
    ("COPA", COPA | {"label": 1, "question": "why"}, "question is 'why', neither cause nor effect"),
    ("MultiRC", multirc(0, 1, 7), "label is 7, none of"),
    ("ReCoRD", record(query(1, "An")), "query 1 has a right answer that is not among the names"),
    ("ReCoRD", record(query(1)), "example 1-0 has no label"),
    ("ReCoRD", record({"query": "?", "idx": 1}), "query 1 has no @placeholder"),
    ("ReCoRD", {**RECORD, "passage": {"text": "a", "entities": [{"start": 0, "end": 1}]}}, "characters 0 to 1 are not"),
    ("WiC", WIC | {"end2": 9, "label": True}, "characters 5 to 9 are not a word of sentence2"),
    ("WiC", WIC | {"end1": 0, "label": True}, "characters 0 to 0 are not a word of sentence1"),
    ("WSC", wsc("a b", (2, "b"), (0, "a"), label=True), "'b' is not at word 2 of the text"),
]


@pytest.mark.parametrize(("task", "row", "message"), MISTAKES)
def test_mistakes_are_named(task, row, message, write):
    with pytest.raises(UserError, match=rf"{task}/train\.jsonl, .*{message}"):
        getattr(superglue, task.lower())(write(task, [row]))
