"""Writes `README.md`: what the studies found, a row a claim, from the `study.json` of each.

It writes the table of the README too, of all claims about the loss in the studies of where parameters go.

python docs/results/verdicts.py
"""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from statistics import mean

from rembed_keras.analysis.reports.tables import number
from rembed_keras.analysis.studies.plan import seconds_by_arm

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent.parent
RECIPES = ROOT / "recipes/studies"
HEADER = """\
# What the studies found

Written by `python docs/results/verdicts.py` from the `study.json` of each study, whose verdicts `rembed study --verify`
derives again from the stored scores. [Studies](../guides/studies.md) says how a verdict is reached, and what it does
not say; text and tasks are those of [benchmarks/corpus](../../benchmarks/corpus/README.md). Models are small and see 4M
tokens of ten languages, 25M in `more_tokens` and 8M of the package's own text, in 25, in `precision`: a verdict holds
at that size, and may not at the paper's.
"""
README = ROOT / "README.md"
OF_PARAMETERS = ("output_width", "coupling", "reinvest", "beyond")
LOSS = ": loss"  # how the name of a claim about it ends
COLUMNS = "| claim | effect | 95 % interval | adjusted p | verdict |\n|---|--:|--:|--:|---|"


def page() -> str:
    """The page."""
    return "\n".join([HEADER, *("\n".join(_study(path)) + "\n" for path in sorted(RESULTS.glob("*/study.json")))])


def readme(page: str) -> str:
    """The README, in which the table of claims is the one that follows from the studies.

    Args:
        page: the README as it is, with such a table.
    """
    before, found, after = re.split(r"((?<=\n)\| claim .*?\n)(?!\|)", page, maxsplit=1, flags=re.DOTALL)
    head = found.splitlines(keepends=True)[:2]
    return "".join([before, *head, *(f"{row}\n" for row in _findings()), after])


def _findings() -> Iterator[str]:
    for name in OF_PARAMETERS:
        record = json.loads((RESULTS / name / "study.json").read_text(encoding="utf-8"))
        for hypothesis, verdict in zip(record["hypotheses"], record["verdicts"], strict=True):
            if hypothesis["name"].endswith(LOSS):
                said = hypothesis["name"].removesuffix(LOSS)
                interval = f"{verdict['low']:+.2f} to {verdict['high']:+.2f}"
                yield f"| {said} | {verdict['difference']:+.2f} | {interval} | {verdict['verdict']} |"


def _study(path: Path) -> Iterator[str]:
    record, name = json.loads(path.read_text(encoding="utf-8")), path.parent.name
    finished = [run for run in record["runs"] if run["state"] == "finished"]
    yield f"## {name.replace('_', ' ').capitalize()}\n\n{_question(name)}\n"
    yield (
        f"`rembed study recipes/studies/{name}.gin`: {len(finished)} of {len(record['runs'])} runs; "
        f"{_hours(record, finished):.1f} hours one after the other, on {_where(finished)}."
    )
    layers = f", [what layers know]({name}/layers.png)" if (path.parent / "layers.png").exists() else ""
    yield f"[Scores of all arms]({name}/study.md), [page]({name}/study.html){layers}.\n"
    yield from _claims(record) if record["hypotheses"] else _first_measure(record)


def _claims(record: Mapping) -> Iterator[str]:
    """The verdict on each hypothesis."""
    yield COLUMNS
    for hypothesis, verdict in zip(record["hypotheses"], record["verdicts"], strict=True):
        yield _row(hypothesis, verdict)


def _first_measure(record: Mapping) -> Iterator[str]:
    """Of a study that expects nothing, the mean of its first measure, by arm."""
    measure = record["measures"][0]["name"]
    yield f"| arm | {measure} |\n|---|--:|"
    for arm in record["arms"]:
        own = [row["value"] for row in record["scores"] if (row["arm"], row["measure"]) == (arm["name"], measure)]
        yield f"| {arm['name']} | {number(mean(own)) if own else '-'} |"


def _question(name: str) -> str:
    """The recipe's header, as far as its commands."""
    lines = (RECIPES / f"{name}.gin").read_text(encoding="utf-8").splitlines()
    header = takewhile(lambda line: not line.startswith("#   "), lines)
    return "\n".join(line.removeprefix("# ") for line in header)


def _where(runs: list[Mapping]) -> str:
    """On what the runs were made."""
    found = sorted({
        f"{each['backend']}, {each['cpus']} cores of {each['machine']}" for each in (run["environment"] for run in runs)
    })  # fmt: skip
    return " or ".join(found)


def _hours(record: Mapping, runs: list[Mapping]) -> float:
    """What the runs took, one after the other, by the median of each arm: one may have been stopped and gone on."""
    median = seconds_by_arm(record)
    return sum(median.get(run["arm"], 0.0) for run in runs) / 3600


def _row(hypothesis: Mapping, verdict: Mapping) -> str:
    interval = "-" if verdict["low"] is None else f"{number(verdict['low'])} to {number(verdict['high'])}"
    said = verdict["verdict"] + (f": {verdict['note']}" if verdict["note"] else "")
    cells = hypothesis["name"], number(verdict["difference"]), interval, number(verdict["adjusted_p"]), said
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
