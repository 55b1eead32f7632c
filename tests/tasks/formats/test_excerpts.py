"""The first examples of a task, all labels among them; whole questions and pairs."""

from types import SimpleNamespace

from rembed_keras import tasks
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged
from rembed_keras.tasks.retrieval.bitext import Bitext, BitextSplits, tatoeba_scores


def test_all_labels_and_whole_questions_stay():
    rows = [Labelled(f"{i}.{j}", "why", label=str(j == 2), group=str(i)) for i in range(9) for j in range(3)]
    short = tasks.excerpt(Splits(rows, {"en": rows}, {"de": rows[:4]}), most=4)
    assert [example.group for example in short.train] == ["0"] * 3 + ["1"] * 3
    assert short.dev["en"] == rows[:6] and short.test["de"] == rows[:4]
    tagged = [Tagged(str(i), ("a",), ("O" if i < 8 else f"B-{i}",)) for i in range(10)]
    assert [example.id for example in tasks.excerpt(Splits(tagged), most=2).train] == ["0", "8", "9"]


def test_a_part_of_which_some_are_labeled_has_a_labeled_one():
    rows = [Labelled(str(i), "a", label="ab"[i % 2] if i > 6 else None) for i in range(9)]
    short = tasks.excerpt(Splits(rows[7:], test={"en": rows, "de": rows[:7]}), most=2).test
    assert [example.id for example in short["en"]] == ["0", "1", "7"]
    assert short["de"] == rows[:2]
    asked = [Question(str(i), "who?", "me", ("me",) * (i > 3), (0,) * (i > 3)) for i in range(6)]
    assert [example.id for example in tasks.excerpt(Splits(asked[4:], test={"en": asked}), most=1).test["en"]] == [
        "0",
        "4",
    ]


def test_numbers_are_no_labels():
    rows = [Labelled(str(i), "a", "b", label=float(i)) for i in range(10)]
    assert tasks.excerpt(Splits(rows, test={"en": rows}), most=3).train == rows[:3]


def test_examples_of_ones_own_are_taken_by_their_number():
    rows = [SimpleNamespace(words=("a", "b"), heads=(0, i)) for i in range(10)]
    short = tasks.excerpt(Splits(rows, test={"en": rows}), most=3)
    assert short.train == rows[:3] and short.test["en"] == rows[:3]


def test_sentences_stay_with_their_translations():
    names = [str(i) for i in range(6)]
    all_pairs = Bitext(
        {n: n for n in names}, {f"t{n}": n for n in reversed(names)}, frozenset((f"t{n}", n) for n in names)
    )
    some = Bitext(all_pairs.english, all_pairs.others, frozenset({("t4", "4")}))
    short = tasks.excerpt(BitextSplits({"de": some}, {"de": all_pairs}), most=2)
    assert [*short.test["de"].english] == ["0", "1"] and {*short.test["de"].others} == {"t0", "t1"}
    import numpy as np

    sides = (np.eye(2), np.eye(2)[[[*short.test["de"].others].index(f"t{n}") for n in "01"]].T)
    assert tatoeba_scores(short.test, {"de": sides}) == {"de": {"accuracy": 1.0}}
    assert {*short.dev["de"].english} == {"4", "0", "1"} and {*short.dev["de"].others} == {"t4", "t5", "t3"}
    hidden = tasks.excerpt(BitextSplits(test={"de": Bitext(all_pairs.english, all_pairs.others)}), most=2)
    assert len(hidden.test["de"].english) == len(hidden.test["de"].others) == 2


def test_parallel_text_keeps_its_first_lines(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"{language}.txt").write_text("a\nb\nc\n")
    assert tasks.ParallelText(tmp_path, most_lines=2).lines == {"de": ["a", "b"], "en": ["a", "b"]}
