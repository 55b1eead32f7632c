import numpy as np
import pytest

from rembed_keras.data import sample
from rembed_keras.errors import UserError
from rembed_keras.tasks import (
    Candidates,
    Classification,
    QuestionAnswering,
    Regression,
    Tagging,
    labelled_folder,
    metrics,
)
from rembed_keras.tasks.kinds.encoding import encode
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged


def text(number, label, group=None, answer=None):
    return Labelled(str(number), f"text {number}", None, label, group, answer)


def splits(*test, train=("a", "b", "b")):
    return Splits([text(i, label) for i, label in enumerate(train)], {}, {"en": list(test)})


@pytest.mark.parametrize(("texts", "expected"), [(["", " ", ""], ["b", "b"]), (["a", "", ""], ["a", "b"])])
def test_baselines_of_texts_that_are_empty(texts, expected):
    rows = [Labelled(str(i), each, None, label) for i, (each, label) in enumerate(zip(texts, "abb", strict=True))]
    task = Classification("t", Splits(rows, {}, {"en": rows}))
    assert task.baselines()["tfidf"](rows[:2]) == expected


class Own(Classification):
    """A stranger's, with baselines of its own."""

    def baselines(self):
        return self.given


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "baselines gives None; it must be functions by name"),
        ({"mine": 3}, "baselines gives {'mine': 3}; it must be functions by name"),
        ({"pretrained": len}, "a baseline is called 'pretrained', as an encoder is: rename it"),
        ({"mine": lambda examples: ["a"]}, r"the baseline 'mine' answers 2 examples by \['a'\]; it must be one each"),
        ({"mine": lambda examples: None}, "the baseline 'mine' answers 2 examples by None; it must be one each"),
    ],
)
def test_baselines_of_ones_own_are_refused_by_name(given, message):
    task = Own("t", splits(text(0, "b"), text(1, "a")))
    task.given = given
    with pytest.raises(UserError, match=f"task t: {message}"):
        task.baselines_beside(("pretrained", "scratch"))["mine"](task.scored["en"])


def test_labels_are_those_of_training_in_order_and_the_largest_logit_is_predicted():
    task = Classification("t", splits(text(0, "b"), text(1, "a"), text(2, "b")))
    assert task.labels == ["a", "b"]
    answers = task.answers(task.scored["en"], None, np.array([[0.1, 0.3], [0.0, 0.2], [0.4, 0.5]]))
    assert answers == ["b", "b", "b"]
    assert task.score(task.scored["en"], answers, "en") == {"accuracy": pytest.approx(2 / 3)}
    assert [task.correct(*pair) for pair in zip(task.scored["en"], answers, strict=True)] == [1.0, 0.0, 1.0]
    assert task.baselines()["majority"](task.scored["en"]) == ["b"] * 3


def test_unlabeled_examples_are_not_scored():
    task = Classification("t", splits(text(0, "b"), text(1, None)))
    assert [example.id for example in task.scored["en"]] == ["0"]


QUESTIONS = [
    *(text(f"q-{i}", label, "q", answer) for i, (label, answer) in enumerate([("true", "Rome"), ("false", "Paris")])),
    *(text(f"r-{i}", label, "r", answer) for i, (label, answer) in enumerate([("false", "Ann"), ("true", "the Bob")])),
]
LOGITS = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, -3.0], [0.0, -1.0]])  # Paris is wrong; Bob is right, though under 0


@pytest.mark.parametrize(
    ("scoring", "said", "scores"),
    [
        ("choice", ["false", "true", "false", "true"], {"accuracy": 0.5}),
        ("each", ["true", "true", "false", "false"], {"f1a": 0.5, "exact_match": 0.0}),
        ("text", ["false", "true", "false", "true"], {"exact_match": 0.5, "f1": 0.5}),
    ],
)
def test_candidates_are_scored_alone_or_by_question(scoring, said, scores):
    task = Candidates("t", splits(*QUESTIONS, train=("true", "false")), scoring)
    answers = task.answers(QUESTIONS, None, LOGITS)
    assert answers == said
    assert task.score(QUESTIONS, answers, "en") == pytest.approx(scores)
    assert set(scores) == set(task.metric_names)
    assert task.baselines()["first"](QUESTIONS) == ["true", "false", "true", "false"]


@pytest.mark.parametrize(("scoring", "lacking"), [("choice", "group"), ("each", "group"), ("text", "answer")])
def test_candidates_of_no_question_are_refused(scoring, lacking):
    rows = [text(i, label, None if lacking == "group" else "q") for i, label in enumerate(("true", "false"))]
    with pytest.raises(UserError, match=f"task t: example 0 has no {lacking}"):
        Candidates("t", splits(*rows, train=("true", "false")), scoring)


def test_a_question_without_a_right_text_is_refused_before_training():
    rows = [*QUESTIONS, text("s-0", "false", "s", "Ann"), text("s-1", "false", "s", "Bob")]
    with pytest.raises(UserError, match="task t: question s has no candidate that is true, which 'text' needs"):
        Candidates("t", splits(*rows, train=("true", "false")), "text")
    hidden = [text(f"t-{i}", None, "t", answer) for i, answer in enumerate(("Ann", "Bob"))]
    Candidates("t", splits(*QUESTIONS, *hidden, train=("true", "false")), "text")


TAGGED = [Tagged(str(i), ("open", "it"), ("A", "B")) for i in range(4)]
NAMED, NUMBERED = ([text(i, label) for i, label in enumerate(labels)] for labels in ("abab", (0.0, 1.0, 2.0, 3.0)))
ASKED = [Question(str(i), "what", "open it", ("it",), (5,)) for i in range(4)]


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Classification, TAGGED, "takes texts whose labels are names; train has Tagged"),
        (Classification, NUMBERED, "takes texts whose labels are names; train has Labelled.*label=0.0"),
        (Candidates, ASKED, 'takes texts whose labels are "true" or "false"; train has Question'),
        (Regression, NAMED, "takes texts whose labels are numbers, read with numeric=True; train has .*label='a'"),
        (Regression, [text(0, True), text(1, False)], "takes texts whose labels are numbers"),
        (Tagging, NAMED, "takes words with tags; train has Labelled"),
        (QuestionAnswering, TAGGED, "takes questions about passages; train has Tagged"),
    ],
)
def test_examples_of_another_kind_are_refused_in_one_line(kind, given, said):
    fitting = {Classification: NAMED, Regression: NUMBERED, Tagging: TAGGED, QuestionAnswering: ASKED}
    with pytest.raises(UserError, match=f"task t {said}") as caught:
        kind("t", Splits(given, {}, {"en": given}))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200
    if kind in fitting:
        with pytest.raises(UserError, match="test of en has"):
            kind("t", Splits(fitting[kind], {}, {"en": [*fitting[kind], given[0]]}))
        assert kind("t", Splits(fitting[kind], {}, {"en": fitting[kind]})).scored["en"] == fitting[kind]


def test_a_number_is_scored_by_its_distance():
    task = Regression("t", splits(text(0, 3.0), train=(1.0, 5.0)))
    assert task.answers(task.scored["en"], None, np.array([2.0])) == [2.0]
    assert task.correct(task.scored["en"][0], 2.0) == 0.75
    assert task.baselines()["mean"](task.scored["en"]) == [3.0]


MISTAKES = {
    "the training data has one class": (splits(text(0, "a"), train=("a",)), {}),
    "example 7: label 'c' is not in the training data": (splits(text(7, "c")), {}),
    "no training example has the label 'c'": (splits(text(0, "a")), {"labels": ("a", "b", "c")}),
    "part is 'train'; it can be test or dev": (splits(text(0, "a")), {"part": "train"}),
    "has no labeled dev examples of any language": (splits(text(0, "a")), {"part": "dev"}),
    "has no labeled test examples of en": (splits(text(0, None)), {}),
    "training examples have the label 'b', which is not among those that are named, 'a', 'c'": (
        splits(text(0, "a"), train=("a", "b", "c")),
        {"labels": ("a", "c")},
    ),
    "the label 'a' is named twice": (splits(text(0, "a")), {"labels": ("a", "b", "a")}),
    "task t, test of en: two examples have the id '3'; give each its own": (splits(text(3, "a"), text(3, "b")), {}),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes_are_named(message):
    examples, changes = MISTAKES[message]
    with pytest.raises(UserError, match=message):
        Classification("t", examples, **changes)


def test_encoding_truncates_and_pads(corpus):
    inputs = encode(["save", "the document " * 50], corpus.tokenizer, 12)
    short, long = inputs["token_ids"]
    ids = corpus.tokenizer.encode("save")
    assert short.tolist() == [2, *ids, 3] + [0] * (10 - len(ids))
    assert long[0] == 2 and long[-1] == 3 and (long[1:-1] > 4).all()
    np.testing.assert_array_equal(inputs["padding_mask"], (inputs["token_ids"] != 0).astype(int))


def test_the_bundled_task_is_learnable_and_its_splits_are_disjoint():
    task = Classification("topics", labelled_folder(sample.topics_folder(), train_size=2000))
    assert len(task.labels) == 8 and len(task.scored) == 25
    trained = {example.text for example in task.splits.train}
    assert not trained & {example.text for examples in task.scored.values() for example in examples}
    assert not {example.text for example in task.splits.dev["en"]} & {example.text for example in task.scored["en"]}
    systems = {name: answer(task.scored["en"]) for name, answer in task.baselines().items()}
    scores = {name: task.score(task.scored["en"], answers, "en")["accuracy"] for name, answers in systems.items()}
    assert scores["tfidf"] > scores["majority"] + 0.15


@pytest.mark.parametrize(
    ("scoring", "rows", "counts"),
    [
        ("choice", [("q", "Paris", 0.0), ("r", "the Bob", 1.0)], {"accuracy": 2}),
        ("text", [("q", "Paris", 0.0), ("r", "the Bob", 1.0)], {"exact_match": 2, "f1": 2}),
        ("each", [("q", ["Rome", "Paris"], 0.0), ("r", [], 0.0)], {"f1a": 4, "exact_match": 2}),
    ],
)
def test_candidates_count_once_a_question(scoring, rows, counts):
    task = Candidates("t", splits(*QUESTIONS, train=("true", "false")), scoring)
    answers = task.answers(QUESTIONS, None, LOGITS)
    kept = task.predictions(QUESTIONS, answers, "en")
    assert [(row["id"], row["answer"], row["correct"]) for row in kept] == rows
    assert {key: value for row in kept for key, value in row["candidates"].items()} == {
        example.id: answer for example, answer in zip(QUESTIONS, answers, strict=True)
    }
    assert {metric: task.count(QUESTIONS, metric) for metric in task.metric_names} == counts
    exact = task.score(QUESTIONS, answers, "en")["accuracy" if scoring == "choice" else "exact_match"]
    assert np.mean([row["correct"] for row in kept]) == exact


def test_other_examples_count_once_each():
    task = Classification("t", splits(text(0, "b"), text(1, "a")))
    assert task.predictions(task.scored["en"], ["b", "b"], "en") == [
        {"id": "0", "answer": "b", "correct": 1.0},
        {"id": "1", "answer": "b", "correct": 0.0},
    ]
    assert task.count(task.scored["en"], "accuracy") == 2


def macro_f1_of(labels, predictions, num_classes):
    return metrics.macro_f1(labels, predictions, num_classes)


@pytest.mark.parametrize(
    ("kind", "given", "metric", "said"),
    [
        (Classification, NAMED, macro_f1_of, "missing 1 required positional argument: 'num_classes'"),
        (Classification, NAMED, metrics.span_f1, "object of type .* has no len"),
        (Classification, NAMED, "accuracy", "'str' object is not callable"),
        (Tagging, TAGGED, metrics.accuracy, "labels have shape"),
        (Regression, NUMBERED, metrics.tag_accuracy, "has no len"),
    ],
)
def test_a_metric_that_does_not_suit_the_labels_is_named_before_anything_is_trained(kind, given, metric, said):
    task = kind("t", Splits(given, {}, {"en": given}), {"mine": metric})
    with pytest.raises(UserError, match=f"task t: the metric 'mine' cannot be computed: .*{said}") as caught:
        task.check_metrics()
    assert "\n" not in str(caught.value)


def test_metrics_that_suit_the_labels_are_taken():
    for kind, given in ((Classification, NAMED), (Regression, NUMBERED), (Tagging, TAGGED), (QuestionAnswering, ASKED)):
        kind("t", Splits(given, {}, {"en": given})).check_metrics()
    for scoring in ("choice", "each", "text"):
        Candidates("t", splits(*QUESTIONS, train=("true", "false")), scoring).check_metrics()


def test_a_task_whose_predictions_are_no_labels_is_not_tried():
    class Marked(Classification):
        def gold(self, example):
            return {example.label}

    Marked("t", Splits(NAMED, {}, {"en": NAMED}), {"mine": None}).check_metrics()


def test_labels_are_looked_up_and_not_searched_for():
    class Name(str):
        __slots__ = ()
        compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            Name.compared += 1
            return str.__eq__(self, other)

    rows = [Labelled(str(i), "a text", label=Name(i % 300)) for i in range(600)]
    assert len(Classification("many", Splits(rows, {}, {"en": rows})).labels) == 300
    assert Name.compared < 20 * len(rows)
