"""Tiny copies of every official download: all labels in training, something to score, and unlabeled test sets."""

import json

from tests.tasks.suites import test_glue, test_xtreme
from tests.tasks.suites.test_superglue import BOOLQ, CB, COPA, RTE, WIC, multirc, query, record, wsc
from tests.tasks.suites.test_xtreme import LABELS, LANGUAGES, TAGS, put, put_question_tasks, put_rows, put_words

OTHER_LABELS = {
    "QNLI": "1\tWhat?\tThat.\tnot_entailment",
    "RTE": "1\tc\td\tentailment",
    "WNLI": "1\tc\td\t0",
    "MRPC": "0\t3\t4\tc\td",
    "MNLI": test_glue.mnli_row(2, "c", "d", "neutral", "contradiction"),
}


def glue(folder):
    """`glue_data`, as its download script creates it."""
    for name, lines in test_glue.FILES.items():
        task, _, part = name.partition("/")
        more = [OTHER_LABELS[task]] if part == "train.tsv" and task in OTHER_LABELS else []
        put(folder, name, "".join(f"{line}\n" for line in [*lines, *more]))
    return folder


SUPERGLUE = {
    "BoolQ": ([BOOLQ | {"label": True}, BOOLQ | {"label": False}], BOOLQ),
    "CB": ([CB | {"label": label} for label in ("entailment", "contradiction", "neutral")], CB),
    "COPA": ([COPA | {"label": 0}], COPA),
    "MultiRC": ([multirc(0, 1, 1)], multirc()),
    "ReCoRD": ([record(query(3, "Ann"), query(4, "Bo"))], record(query(5))),
    "RTE": ([RTE | {"label": "entailment"}, RTE | {"label": "not_entailment"}], RTE),
    "WiC": ([WIC | {"label": True}, WIC | {"label": False}], WIC),
    "WSC": (
        [wsc("Ann saw it", (0, "Ann"), (2, "it"), label=label) for label in (True, False)],
        wsc("Ann saw it", (0, "Ann"), (2, "it")),
    ),
}


def superglue(folder):
    """The unpacked archives of SuperGLUE."""
    for task, (rows_of_one_id, hidden) in SUPERGLUE.items():
        labelled = [row | {"idx": number} for number, row in enumerate(rows_of_one_id)]
        for part, rows in {"train": labelled, "val": labelled, "test": [hidden]}.items():
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            put(folder, f"{task}/{part}.jsonl", text)
    return folder


def xtreme(folder):
    """The download folder of XTREME's script."""
    for task, labels in LABELS.items():
        rows = [[f"one {label}", f"two {label}", label] for label in labels]
        put_rows(folder, f"{task}/train-en.tsv", rows)
        for language in LANGUAGES[task]:
            put_rows(folder, f"{task}/dev-{language}.tsv", rows[:2])
            put_rows(folder, f"{task}/test-{language}.tsv", [["eins", "zwei"]])
    for task, tags in TAGS.items():
        put_words(folder, f"{task}/train-en.tsv", [[f"word\t{tag}" for tag in tags]])
        for language in LANGUAGES[task]:
            put_words(folder, f"{task}/dev-{language}.tsv", [["No\t" + tags[0], "Yes\t" + tags[1]]])
            put_words(folder, f"{task}/test-{language}.tsv", [["Ja"]])
    put_question_tasks(folder)
    for language in LANGUAGES["bucc2018"]:
        for part in ("dev", "test"):
            other = [f"{language}-00000000{i}\tEins {i}\n" for i in range(6)]
            english = [f"en-00000000{i}\tOne {i}\n" for i in range(6)]
            put(folder, f"bucc2018/{language}-en.{part}.{language}", "".join(other))
            put(folder, f"bucc2018/{language}-en.{part}.en", "".join(english))
        put(folder, f"bucc2018/{language}-en.dev.gold", f"{language}-000000001\ten-000000001\n")
    for language in LANGUAGES["tatoeba"]:
        put(folder, f"tatoeba/{language}-en.{language}", "Ndiyo.\nHapana.\n")
        put(folder, f"tatoeba/{language}-en.en", "No.\nYes.\n")
    paragraphs = [
        {"context": f"{i} {test_xtreme.CONTEXT}", "qas": [test_xtreme.entry(f"english-{i}-0", [(4, "Die")])]}
        for i in range(4)
    ]
    train = {"data": [{"title": "Erde", "paragraphs": paragraphs}], "version": "1.1"}
    put(folder, "tydiqa/tydiqa-goldp-v1.1-train/tydiqa-goldp-v1.1-train.json", json.dumps(train))
    return folder
