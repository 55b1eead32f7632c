"""What recipes of studies and the guide say of them is what their `study.json` has."""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from rembed_keras.analysis.studies.plan import seconds_by_arm
from rembed_keras.analysis.studies.record import read_record

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "docs/results").glob("*/study.json"))


def header_of(name):
    lines = (ROOT / f"recipes/studies/{name}.gin").read_text(encoding="utf-8").partition("\nfrom ")[0].splitlines()
    return " ".join(line.removeprefix("# ") for line in lines)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.parent.name)
def test_a_claim_that_expects_the_worse_says_that_it_costs(path):
    """Else a large loss that is significant would be called supported under a name that denies it."""
    for each in json.loads(path.read_text(encoding="utf-8"))["hypotheses"]:
        worse = "higher" if each["measure"] == "held-out loss" else "lower"
        assert (each["expected"] == worse) is bool(re.search(r"\bcosts? (something|a percent)\b", each["name"])), each


@pytest.mark.parametrize(("name", "arm"), [("beyond", "bands"), ("reinvest", "same_flops")])
def test_an_arm_with_a_comparable_loss_has_a_claim_about_it(name, arm):
    record = json.loads((ROOT / f"docs/results/{name}/study.json").read_text(encoding="utf-8"))
    assert {each["measure"] for each in record["hypotheses"] if each["arm"] == arm} == {
        "held-out loss",
        "probe in other languages",
    }


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.parent.name)
def test_headers_of_studies_say_their_runs_and_hours(path):
    record, name = json.loads(path.read_text(encoding="utf-8")), path.parent.name
    median = seconds_by_arm(record)
    hours = sum(median[run["arm"]] for run in record["runs"]) / 3600
    said = rf"\b{len(record['runs'])} runs, {hours:.1f} hours one after the other\b.*; docs/results/README.md has the "
    assert re.search(said, header_of(name)), header_of(name)


def test_runs_that_two_studies_have_otherwise_are_named():
    losses = defaultdict(dict)
    for path in STUDIES:
        record = json.loads(path.read_text(encoding="utf-8"))
        checksums = {arm["name"]: arm["checksum"] for arm in record["arms"]}
        for row in record["scores"]:
            if row["measure"] == "held-out loss":
                losses[checksums[row["arm"]], row["seed"]][path.parent.name] = row["value"]
    gaps = {run: abs(by["beyond"] - by["coupling"]) for run, by in losses.items() if {"beyond", "coupling"} <= {*by}}
    assert sorted(seed for (_, seed), gap in gaps.items() if gap) == [3, 4]
    assert max(gaps.values()) < 0.00135 and "end up to 0.0013 nats beside those of coupling.gin" in header_of("beyond")


def test_the_guide_says_what_a_probe_of_capitals_found():
    rows = read_record(ROOT / "docs/results/coupling/study.json")["run_scores"]
    own = [row for row in rows if (row["arm"], row["run_seed"]) == ("coupled_128", 0)]

    def accuracy(system, is_english):
        values = [
            row["value"]
            for row in own
            if (row["task"], row["metric"], row["system"]) == ("probe/capitals/layer4", "balanced_accuracy", system)
            and (row["language"] == "en") is is_english
        ]
        assert len(values) == (1 if is_english else 23)
        return f"{100 * np.mean(values):.1f}"

    page = " ".join((ROOT / "docs/guides/studies.md").read_text(encoding="utf-8").split())
    (english, others), (start, start_others), (base, base_others) = (
        [accuracy(system, is_english) for is_english in (True, False)]
        for system in ("pretrained", "untrained", "lexicon")
    )
    assert (
        f"(`coupled_128`, seed 0 of `recipes/studies/coupling.gin`) tells capitals at its last layer with a balanced "
        f"accuracy of {english} % in English and {others} % in the mean of 23 other languages, untrained {start} and "
        f"{start_others}; a lexicon, without an encoder, {base} and {base_others}"
    ) in page
