"""Every file is written here as the official download has it."""

import pytest

from rembed_keras.errors import UserError
from rembed_keras.tasks.formats.columns import TextFormat
from rembed_keras.tasks.kinds.examples import Labelled
from rembed_keras.tasks.suites import glue

PARSES = "\t".join(f"sentence{i}_{kind}" for kind in ("binary_parse", "parse") for i in (1, 2))
MNLI = f"index\tpromptID\tpairID\tgenre\t{PARSES}\tsentence1\tsentence2"
STS = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
DIAGNOSTIC = "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain\tPremise\tHypothesis\tLabel"


def mnli_row(index, text, pair, *labels):
    return "\t".join(
        [str(index), "31193", "31193n", "fiction", "( a )", "( b )", "(ROOT a)", "(ROOT b)", text, pair, *labels]
    )


def sts_row(index, *rest):
    return "\t".join([str(index), "main-captions", "MSRvid", "2012test", "0001", "none", "none", *rest])


FILES = {
    "CoLA/train.tsv": ['gj04\t1\t\tOne more "quote', "gj04\t0\t*\t* Him laughed\u2028"],
    "CoLA/dev.tsv": ["gj04\t1\t\tThe sailors rode"],
    "CoLA/test.tsv": ["index\tsentence", "0\tBill whistled", '1\t"'],
    "SST-2/train.tsv": ["sentence\tlabel", "hide new secretions \t0", "a ` ` fine '' film \t1"],
    "SST-2/dev.tsv": ["sentence\tlabel", "it 's charming . \t1"],
    "SST-2/test.tsv": ["index\tsentence", "0\tuneasy mishmash ."],
    "QQP/train.tsv": [
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "133273\t213221\t213222\tHow's that?\tWhat is it?\t0",
        '201359\t303345\t303346\tWhat is "Islam',
        '"\tWas he a real figure?\t0',
        "7\t1\t2\t\tWho?\t1",
    ],
    "QQP/dev.tsv": ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "9\t1\t2\tWhy?\tHow?\t1"],
    "QQP/test.tsv": ["id\tquestion1\tquestion2", "0\tWould he?\t", "1\tA?\tB?"],
    "MNLI/train.tsv": [
        f"{MNLI}\tlabel1\tgold_label",
        mnli_row(0, "One.", "Two.", "neutral", "neutral"),
        mnli_row(1, '"One', "Three.", "neutral", "entailment"),
    ],
    "MNLI/dev_matched.tsv": [
        MNLI + "".join(f"\tlabel{i}" for i in range(1, 6)) + "\tgold_label",
        mnli_row(0, "a", "b", *["neutral"] * 5, "contradiction"),
    ],
    "MNLI/dev_mismatched.tsv": [
        MNLI + "".join(f"\tlabel{i}" for i in range(1, 6)) + "\tgold_label",
        mnli_row(0, "c", "d", *["neutral"] * 6),
    ],
    "MNLI/test_matched.tsv": [MNLI, mnli_row(0, "e", "f")],
    "MNLI/test_mismatched.tsv": [MNLI, mnli_row(0, "g", "h"), mnli_row(1, "i", "j")],
    "QNLI/train.tsv": ["index\tquestion\tsentence\tlabel", "0\tWhen?\tThen.\tentailment"],
    "QNLI/dev.tsv": ["index\tquestion\tsentence\tlabel", "0\tWho?\tNobody.\tnot_entailment"],
    "QNLI/test.tsv": ["index\tquestion\tsentence", "0\tWhat?\tThat."],
    "RTE/train.tsv": ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\tnot_entailment"],
    "RTE/dev.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tc\td\tentailment"],
    "RTE/test.tsv": ["index\tsentence1\tsentence2", "0\te\tf"],
    "WNLI/train.tsv": ["index\tsentence1\tsentence2\tlabel", "0\ta\tb\t1"],
    "WNLI/dev.tsv": ["index\tsentence1\tsentence2\tlabel", "0\tc\td\t0"],
    "WNLI/test.tsv": ["index\tsentence1\tsentence2", "0\te\tf"],
    "STS-B/train.tsv": [f"{STS}\tscore", sts_row(0, "A plane", "An air plane", "5.000"), sts_row(1, '"x', "y", "0")],
    "STS-B/dev.tsv": [f"{STS}\tscore", sts_row(4, "a", "b", "2.6")],
    "STS-B/test.tsv": [STS, sts_row(0, "c", "d")],
    "MRPC/train.tsv": [
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        '1\t702876\t702977\tHe said "no\tHe denied',
    ],
    "MRPC/dev.tsv": ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t1\t2\ta\tb"],
    "MRPC/test.tsv": ["index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t3\t4\tc\td"],
}


@pytest.fixture
def write(tmp_path):
    def files(rows, end="\n"):
        for name, lines in rows.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("".join(line + end for line in lines), encoding="utf-8", newline="")
        return tmp_path

    return files


@pytest.fixture
def folder(write):
    return write(FILES)


def test_cola_has_no_header(folder):
    splits = glue.cola(folder)
    assert splits.train == [
        Labelled("0", 'One more "quote', label="1"),
        Labelled("1", "* Him laughed\u2028", label="0"),
    ]
    assert splits.dev == {"en": [Labelled("0", "The sailors rode", label="1")]}
    assert splits.test == {"en": [Labelled("0", "Bill whistled"), Labelled("1", '"')]}


@pytest.mark.parametrize("line", ["sentence\tlabel", "gj04\t2\t\tThe sailors rode", "gj04\t\t\tThe sailors rode"])
def test_cola_has_four_columns_and_two_labels(line, write):
    folder = write(FILES | {"CoLA/dev.tsv": [line]})
    with pytest.raises(UserError, match=r"CoLA/dev\.tsv, line 1 is not source<TAB>0 or 1<TAB>mark<TAB>sentence"):
        glue.cola(folder)


@pytest.mark.parametrize(
    ("task", "train", "dev", "test"),
    [
        (glue.sst2, ("a ` ` fine '' film ", None, "1"), ("it 's charming . ", None, "1"), ("uneasy mishmash .", None)),
        (glue.qnli, ("When?", "Then.", "entailment"), ("Who?", "Nobody.", "not_entailment"), ("What?", "That.")),
        (glue.rte, ("a", "b", "not_entailment"), ("c", "d", "entailment"), ("e", "f")),
        (glue.wnli, ("a", "b", "1"), ("c", "d", "0"), ("e", "f")),
        (glue.mrpc, ('He said "no', "He denied", "1"), ("a", "b", "0"), ("c", "d")),
        (glue.stsb, ('"x', "y", 0.0), ("a", "b", 2.6), ("c", "d")),
    ],
)
def test_tasks_with_one_test(task, train, dev, test, folder):
    splits = task(folder)
    found = [splits.train[-1], splits.dev["en"][0], splits.test["en"][0]]
    assert [(each.text, each.pair, each.label) for each in found] == [train, dev, (*test, None)]
    assert list(splits.dev) == list(splits.test) == ["en"]
    assert found[2].id == "0"


def test_examples_have_the_ids_of_their_files(folder):
    assert [example.id for example in glue.stsb(folder).dev["en"]] == ["4"]


@pytest.mark.filterwarnings("ignore:.* skipped 2 broken rows")
@pytest.mark.parametrize(
    ("task", "test"),
    [
        (glue.cola, "CoLA/test.tsv"),
        (glue.sst2, "SST-2/test.tsv"),
        (glue.mrpc, "MRPC/test.tsv"),
        (glue.stsb, "STS-B/test.tsv"),
        (glue.qqp, "QQP/test.tsv"),
        (glue.qnli, "QNLI/test.tsv"),
        (glue.rte, "RTE/test.tsv"),
        (glue.wnli, "WNLI/test.tsv"),
        (glue.mnli, "MNLI/test_matched.tsv"),
    ],
)
def test_a_file_to_predict_is_read_as_the_test_is(task, test, folder):
    splits = task(folder)
    assert [*TextFormat.of(splits).read(folder / test)] == splits.test["en"]


def test_broken_rows_of_qqp_are_skipped_with_a_warning(folder):
    with pytest.warns(UserWarning, match=r"QQP/train\.tsv: skipped 2 broken rows, the first in line 3"):
        splits = glue.qqp(folder)
    assert splits.train == [
        Labelled("133273", "How's that?", "What is it?", "0"),
        Labelled("7", "", "Who?", "1"),  # an empty question is not a broken row
    ]
    assert splits.test["en"][0] == Labelled("0", "Would he?", "")


def test_a_row_of_a_test_set_is_never_skipped(write):
    folder = write(FILES | {"QQP/train.tsv": FILES["QQP/dev.tsv"], "QQP/test.tsv": [*FILES["QQP/test.tsv"], "2\tA?"]})
    with pytest.raises(UserError, match=r"QQP/test\.tsv, line 4 has 2 cells, and the first line 3"):
        glue.qqp(folder)


def test_mnli_has_two_parts(folder):
    splits = glue.mnli(folder)
    assert [example.label for example in splits.train] == ["neutral", "entailment"]
    assert {part: [(e.text, e.label) for e in examples] for part, examples in splits.dev.items()} == {
        "en": [("a", "contradiction")],
        "mismatched": [("c", "neutral")],
    }
    assert {part: [(e.id, e.text, e.label) for e in examples] for part, examples in splits.test.items()} == {
        "en": [("0", "e", None)],
        "mismatched": [("0", "g", None), ("1", "i", None)],
    }


def test_the_diagnostic_set_has_labels_where_there_is_the_full_file(folder, write):
    with pytest.raises(UserError, match=r"has no diagnostic/diagnostic-full\.tsv"):
        glue.diagnostic(folder)
    write({"MNLI/diagnostic.tsv": ["index\tsentence1\tsentence2", "0\tThe cat sat.\tThe cat did not sit."]})
    assert glue.mnli(folder).test["diagnostic"] == [Labelled("0", "The cat sat.", "The cat did not sit.")]
    row = "\t\tNegation\t\tArtificial\tThe cat sat.\tThe cat did not sit.\tcontradiction"
    write({"diagnostic/diagnostic-full.tsv": [DIAGNOSTIC, row]}, end="\r\n")
    splits = glue.diagnostic(folder)
    assert splits.test["diagnostic"] == [Labelled("0", "The cat sat.", "The cat did not sit.", "contradiction")]
    assert not splits.train and not splits.dev


def test_tests_may_be_missing_and_others_may_not(folder):
    (folder / "RTE/test.tsv").unlink()
    assert glue.rte(folder).test == {}
    (folder / "RTE/dev.tsv").unlink()
    with pytest.raises(UserError, match=r"RTE/dev\.tsv: No such file"):
        glue.rte(folder)


def test_microsofts_own_files(write):
    header = FILES["MRPC/dev.tsv"][0]
    files = {
        "MRPC/msr_paraphrase_train.txt": [header, '1\t1\t2\ta"\tb', "0\t1\t3\tc\td", "1\t4\t2\te\tf"],
        "MRPC/msr_paraphrase_test.txt": [header, "0\t5\t6\tg\th"],
        "MRPC/dev_ids.tsv": ["1\t3", "2\t4"],
    }
    folder = write(files, end="\r\n")
    splits = glue.mrpc(folder)
    assert [example.text for example in splits.train] == ['a"', "e"]
    assert [example.text for example in splits.dev["en"]] == ["c"]
    assert splits.test["en"] == [Labelled("0", "g", "h", "0")]
    write({"MRPC/dev_ids.tsv": ["8\t9"]})
    with pytest.raises(UserError, match=r"dev_ids\.tsv names no example of msr_paraphrase_train\.txt"):
        glue.mrpc(folder)


def test_the_original_sts_files(write):
    row = "main-captions\tMSRvid\t2012test\t0001\t{}\tA plane\tAn air plane"
    rows = {"train": row.format("5.000"), "dev": f"{row.format('0.2')}\thttp://x\thttp://y", "test": row.format(3)}
    folder = write({f"STS-B/sts-{name}.csv": [line] for name, line in rows.items()})
    splits = glue.stsb(folder)
    assert [each[0].label for each in (splits.train, splits.dev["en"], splits.test["en"])] == [5.0, 0.2, 3.0]
    for bad, message in {"5.01": "score 5.01 is not from 0 to 5", "none": "has no score in its fifth column"}.items():
        write({"STS-B/sts-dev.csv": [rows["dev"], row.format(bad)]})
        with pytest.raises(UserError, match=rf"STS-B/sts-dev\.csv, line 2:? {message}"):
            glue.stsb(folder)


@pytest.mark.parametrize("score", ["5.2", "-0.1"])
def test_scores_out_of_range_are_named(score, write):
    folder = write(FILES | {"STS-B/train.tsv": [f"{STS}\tscore", sts_row(3, "a", "b", score)]})
    with pytest.raises(UserError, match=rf"STS-B/train\.tsv, example 3: score {score} is not from 0 to 5"):
        glue.stsb(folder)


def test_a_label_of_another_task_is_named(write):
    folder = write(FILES | {"RTE/dev.tsv": [FILES["RTE/dev.tsv"][0], "0\ta\tb\tneutral"]})
    with pytest.raises(
        UserError, match=r"RTE/dev\.tsv, line 2: label is 'neutral', none of entailment, not_entailment"
    ):
        glue.rte(folder)
