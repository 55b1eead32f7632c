"""What a study will run, and what that shows before anything is run: parameters, runs, hours, and power.

`config` makes a plan of a study's file and its arms' recipes; what is here is plain data.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rembed_keras.analysis.reports.power import smallest_accuracy_difference, smallest_seeds_difference
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.analysis.studies.definition import Study
from rembed_keras.analysis.studies.verdicts import differences

AGREEMENT = 0.8  # share of examples on which two systems agree, where nothing is known


@dataclass(frozen=True)
class PlannedArm:
    """An arm and what its recipe comes to.

    Attributes:
        name: of the arm.
        checksum: SHA-256 of its resolved recipe, seed and folder left out.
        measures: the names of the study's measures that it produces.
        kept: parameters of the encoder; None for a recipe that pre-trains nothing.
        dropped: parameters that are dropped after pre-training.
    """

    name: str
    checksum: str
    measures: Sequence[str]
    kept: int | None
    dropped: int | None


@dataclass(frozen=True)
class PlannedRun:
    """One run of an arm.

    Attributes:
        arm: the arm's name.
        seed: its seed.
        folder: its folder.
        command: arguments of `rembed`.
        corpus: the corpus that it shares, a folder; None if it has its own.
        is_recorded: whether its scores are kept in the study's results, so that its folder may be gone.
    """

    arm: str
    seed: int
    folder: Path
    command: Sequence[str]
    corpus: Path | None
    is_recorded: bool = False

    @property
    def name(self) -> str:
        """Its name, that of its folder."""
        return self.folder.name

    @property
    def is_finished(self) -> bool:
        """Whether it never needs to be run again."""
        return self.is_recorded or self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether its folder has all that it was to make."""
        return (self.folder / "finished.json").exists()


@dataclass(frozen=True)
class PlannedCorpus:
    """A corpus that arms share.

    Attributes:
        folder: the corpus; it stands in a folder of its own.
        command: arguments of `rembed` that prepare it.
        arms: the names of the arms.
    """

    folder: Path
    command: Sequence[str]
    arms: Sequence[str]

    @property
    def is_prepared(self) -> bool:
        """Whether it is there; a corpus is there whole or not at all."""
        return (self.folder / "manifest.json").exists()


@dataclass(frozen=True)
class Plan:
    """A study, checked.

    Attributes:
        study: its definition.
        arms: in its order.
        runs: of all arms and seeds, seed by seed, so that all arms have the first seeds first.
        corpora: those that several runs share.
        kept: what `study.json` said of runs whose folders may be gone: that of the study's own results first, then
            those of other studies, each with the `place` that it is from.
    """

    study: Study
    arms: Sequence[PlannedArm]
    runs: Sequence[PlannedRun]
    corpora: Sequence[PlannedCorpus]
    kept: Sequence[Mapping] = ()

    @property
    def folder(self) -> Path:
        """The study's folder."""
        return Path(self.study.workdir)

    @property
    def results(self) -> Path:
        """The folder of what it comes to."""
        return Path(self.study.results or self.study.workdir)

    @property
    def corpora_to_prepare(self) -> list[PlannedCorpus]:
        """Those that are not there and that a run needs."""
        needed = {run.corpus for run in self.runs if not run.is_finished}
        return [corpus for corpus in self.corpora if corpus.folder in needed and not corpus.is_prepared]

    def tables(self, record: Mapping | None) -> list[Table]:
        """Arms, and hypotheses with the power that seeds and examples buy.

        Args:
            record: what the study's folder says of its runs so far, see `record`; None before the first.
        """
        tables = [self._arms_table(record)]
        return [*tables, self._power_table(record)] if self.study.hypotheses else tables

    def hours(self, record: Mapping | None) -> str:
        """How long what is left will take at this machine's speed, in words."""
        left = [run for run in self.runs if not run.is_finished]
        measured = seconds_by_arm(record)
        unknown = sorted({run.arm for run in left} - measured.keys())
        hours = sum(measured.get(run.arm, 0.0) for run in left) / 3600
        said = f"{len(self.runs)} runs, {len(self.runs) - len(left)} finished, {len(left)} left"
        if not left:
            return said
        if len(unknown) == len({run.arm for run in left}):
            return f"{said}; hours unknown until a run of an arm is finished (`rembed benchmark` times a recipe)"
        rest = f", and those of {', '.join(unknown)}, unknown until one is finished" if unknown else ""
        return f"{said}: {hours:.2f} hours, one at once, at the speed of those that are finished{rest}"

    def _arms_table(self, record):
        measured = seconds_by_arm(record)
        rows = []
        for arm in self.arms:
            counts = [arm.kept, arm.dropped, None if arm.kept is None else arm.kept + (arm.dropped or 0)]
            runs = [run for run in self.runs if run.arm == arm.name]
            hours = f"{measured[arm.name] / 3600:.3f}" if arm.name in measured else "unknown"
            finished = f"{sum(run.is_finished for run in runs)} of {len(runs)}"
            rows.append([arm.name, *("-" if count is None else f"{count:,}" for count in counts), finished, hours])
        return Table("Arms: parameters", ["arm", "kept", "dropped", "total", "finished", "hours a run"], rows, words=1)

    def _power_table(self, record):
        study, scores = self.study, (record or {}).get("scores", [])
        alpha, seeds = study.alpha / len(study.hypotheses), len(study.seeds)
        rows = []
        for each in study.hypotheses:
            gaps = differences(each, scores)
            std = float(gaps.mean(axis=1).std(ddof=1)) if len(gaps) > 1 else math.nan
            detectable = smallest_seeds_difference(seeds, 1.0, alpha=alpha)
            count = _examples(each, scores)
            rows.append([
                each.name,
                f"{each.arm} {each.expected} than {each.against}",
                each.measure,
                f"{each.smallest_effect:g}",
                "none" if math.isinf(detectable) else f"{detectable:.2f} sd",
                "-" if math.isnan(std) or math.isinf(detectable) else f"{std * detectable:.3g}",
                _points_of(count, alpha),
            ])  # fmt: skip
        columns = ["hypothesis", "expected", "measure", "smallest effect", "detectable", "measured", "by examples"]
        title = f"Power of 80 % with {seeds} seeds, at the level {alpha:.3g} of Holm's first step"
        return Table(title, columns, rows, words=3)


def seconds_by_arm(record: Mapping | None) -> dict[str, float]:
    """Median seconds of the finished runs of each arm that has any."""
    seconds: dict[str, list[float]] = {}
    for run in (record or {}).get("runs", ()):
        if run["state"] == "finished" and run["seconds"]:
            seconds.setdefault(run["arm"], []).append(run["seconds"])
    return {arm: statistics.median(each) for arm, each in seconds.items()}


def _examples(hypothesis, scores):
    """Different test examples of a hypothesis's measure, at least; 0 where it is no score of examples.

    Translations count as one example, so they are as many as the language has that has most.
    """
    return max((row["n"] for row in scores if row["measure"] == hypothesis.measure and row["task"]), default=0)


def _points_of(count, alpha):
    if not count:
        return "-"
    points = 100 * smallest_accuracy_difference(count, AGREEMENT, alpha=alpha)
    return f"{f'{points:.2f} points' if math.isfinite(points) else 'none'}, with {count:,} examples or more"
