"""Tables of a study's results, from what `study.json` says."""

from collections import Counter
from collections.abc import Mapping
from itertools import product

from rembed_keras.analysis.reports.significance import Spread, spread
from rembed_keras.analysis.reports.tables import Table, in_markdown, number
from rembed_keras.analysis.studies.lacking import failed_trainings

ABOUT = (
    "Scores are means over seeds ± sample standard deviation, languages averaged within a seed. Differences are paired "
    "by seed and language and tested over seeds; intervals are not adjusted, verdicts are, by Holm's procedure over "
    "all hypotheses. Detectable is the smallest true difference that such a test finds with a power of 80 %."
)


def spreads(record: Mapping) -> dict[tuple[str, str], Spread]:
    """Mean and deviation over seeds by arm and measure, languages averaged within a seed."""
    values: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in record["scores"]:
        values.setdefault((row["arm"], row["measure"]), {}).setdefault(row["seed"], []).append(row["value"])
    return {key: spread([sum(each) / len(each) for each in seeds.values()]) for key, seeds in values.items()}


def scores_table(record: Mapping) -> Table:
    """A row for each arm, a column for each measure; trainings that failed are counted and not averaged."""
    found, measures = spreads(record), [each["name"] for each in record["measures"]]
    failed: Counter[tuple[str, str]] = Counter()
    for (name, _, measure), count in failed_trainings(record).items():
        failed[name, measure] += count
    rows = [
        [arm["name"], *_counts(arm), *(_score(found.get(key), failed[key]) for key in product([arm["name"]], measures))]
        for arm in record["arms"]
    ]
    return Table("Scores", ["arm", "kept", "dropped", *measures], rows, words=1)


def verdicts_table(record: Mapping) -> Table:
    """A row for each hypothesis."""
    rows = []
    for hypothesis, verdict in zip(record["hypotheses"], record["verdicts"], strict=True):
        low, high = (number(verdict[key]) for key in ("low", "high"))
        rows.append([
            hypothesis["name"],
            f"{hypothesis['arm']} {hypothesis['expected']} than {hypothesis['against']} on {hypothesis['measure']}",
            verdict["verdict"],
            verdict["note"],
            number(verdict["difference"]),
            f"{low} to {high}" if verdict["low"] is not None else "-",
            number(verdict["adjusted_p"]),
            number(hypothesis["smallest_effect"]),
            number(verdict["detectable"]),
            str(verdict["seeds"]),
            str(verdict["languages"]),
        ])  # fmt: skip
    columns = ["hypothesis", "expected", "verdict", "note", "difference", interval_name(record["alpha"])]
    columns += ["adjusted p", "smallest effect", "detectable", "seeds", "languages"]
    return Table("Verdicts", columns, rows, words=4)


def lines(record: Mapping) -> list[str]:
    """Verdicts for a terminal, a line each."""
    return [_line(verdict, interval_name(record["alpha"])) for verdict in record["verdicts"]]


def interval_name(alpha: float) -> str:
    """What the interval of a difference is called.

    >>> interval_name(0.05), interval_name(0.001)
    ('95% interval', '99.9% interval')
    """
    return f"{100 * (1 - alpha):.12g}% interval"


def _line(verdict, interval):
    parts = [f"{verdict['hypothesis']}: {verdict['verdict']}{': ' + verdict['note'] if verdict['note'] else ''}"]
    if verdict["difference"] is not None:
        pairs = f"{verdict['seeds']} pair{'s' * (verdict['seeds'] > 1)} of seeds"
        parts.append(f"difference {number(verdict['difference'])} over {pairs}")
    if verdict["low"] is not None:
        parts.append(f"{interval} {number(verdict['low'])} to {number(verdict['high'])}")
        parts.append(f"adjusted p {number(verdict['adjusted_p'])}, detectable {number(verdict['detectable'])}")
    return "; ".join(parts)


def failures(record: Mapping) -> list[str]:
    """A line for each run that is not finished."""
    return [
        f"{run['name']} {'failed: ' + run['failure'] if run['state'] == 'failed' else 'is not finished'}"
        for run in record["runs"]
        if run["state"] != "finished"
    ]


def writer(record: Mapping) -> str:
    """What wrote a record."""
    return f"rembed_keras {record['version']}, commit {record['commit'] or 'unknown'}"


def commits(record: Mapping) -> list[str]:
    """The finished runs by the commit that made them, a line each; none if that wrote the record too, or none is known.

    Runs of earlier versions do not say it.
    """
    runs: dict[str, list[str]] = {}
    for run in record["runs"]:
        if run["state"] == "finished":
            about = run.get("environment")
            made_by = about.get("commit") if isinstance(about, Mapping) else None
            runs.setdefault(f"commit {made_by or 'unknown'}", []).append(run["name"])
    if len(runs) == 1 and runs.keys() <= {"commit unknown", f"commit {record['commit']}"}:
        return []
    return [f"{made_by}: {', '.join(names)}" for made_by, names in runs.items()]


def markdown(record: Mapping, title: str) -> str:
    """`study.md`."""
    tables = [scores_table(record)]
    if record["hypotheses"]:
        tables.append(verdicts_table(record))
    left = [f"* {in_markdown(line)}" for line in failures(record)]
    made_by = "\n".join(f"* {in_markdown(line)}" for line in commits(record))
    parts = [
        f"# {in_markdown(title)}",
        *(table.markdown() for table in tables),
        ABOUT,
        *(["\n".join(left)] if left else []),
        writer(record),
        *([f"Runs by commit:\n\n{made_by}"] if made_by else []),
    ]
    return "\n\n".join(parts) + "\n"


def _counts(arm):
    return ["-" if arm[key] is None else f"{arm[key]:,}" for key in ("kept", "dropped")]


def _score(found, failed):
    if found is None:
        return "-"
    deviation = f" ±{found.std:.2g}" if found.n > 1 else ""
    return f"{number(found.mean)}{deviation}{f' ({failed} failed)' if failed else ''}"
