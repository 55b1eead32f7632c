"""What a study is: arms, seeds, measures and hypotheses.

An arm is a recipe and its overrides. Every arm is run from every seed, every measure is read from every run, and every
hypothesis compares two arms on one measure, paired by seed and language. The hypotheses are written down before the
first run, with the sign that is expected and the smallest effect worth seeing; so are the verdicts' rules.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from rembed_keras.errors import Rate, Seed, Share, UserError, check_spelled_out, did_you_mean

NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")  # of an arm, which folders are named by
LEAST_ALPHA = 1e-5  # a level at which power can be computed, of a share of it too
Direction = Literal["higher", "lower"]


class Value(NamedTuple):
    """What a measure is in one language.

    Attributes:
        value: the number.
        n: of how many examples, or rows of a log, it is the mean.
        failed: how many trainings failed that it would be the mean of, too.
    """

    value: float
    n: int
    failed: int = 0


class Measure(Protocol):
    """What is read from the folder of a finished run.

    It may have an `advice`, a text, for when no arm of a study produces it.

    Attributes:
        name: in hypotheses and tables.
    """

    @property
    def name(self) -> str:
        """Its name in hypotheses and tables."""

    def is_made_by(self, stages: Mapping[str, Sequence[str] | None]) -> bool:
        """Whether the stages of a run produce it.

        Args:
            stages: of each stage, by its name, the tasks that it scores; None where the recipe does not say. One is
                called "evaluation" where pre-training evaluates on its way.
        """

    def values(self, run: Path) -> dict[str, Value]:
        """The values in the folder of a finished run by language, "" where there is none; empty if it has none."""


@dataclass(frozen=True)
class Arm:
    """A recipe and its overrides.

    Attributes:
        name: its name in tables and folders.
        recipe: the gin file.
        bindings: `KNOB=VALUE`, as on the command line of `rembed run`.
    """

    name: str
    recipe: str
    bindings: Sequence[str] = ()


@dataclass(frozen=True)
class Hypothesis:
    """One arm against another on a measure.

    Attributes:
        name: its name in tables.
        arm: the arm of which something is expected.
        against: the arm that it is compared with.
        measure: the name of the measure.
        expected: whether the measure of `arm` is expected to be higher or lower than that of `against`.
        smallest_effect: the smallest difference worth seeing, in the measure's unit.
    """

    name: str
    arm: str
    against: str
    measure: str
    expected: Direction
    smallest_effect: Rate


@dataclass(frozen=True)
class Study:
    """Arms that are run from several seeds, and what is expected of them.

    Attributes:
        workdir: the study's folder, with those of its runs.
        arms: at least one.
        seeds: of the runs of each arm.
        measures: what is read from each run.
        hypotheses: pairs of arms on a measure.
        bindings: overrides of all arms that have the knob; those of an arm win.
        alpha: family-wise level of the hypotheses' tests, two-sided.
        results: folder of study.json, study.md, study.html and study.png, to be kept under version control: a run
            that is finished there is not run again although its folder is gone. The workdir by default.
        known_results: such folders of other studies: a run that is finished there, of the same recipe and seed,
            whatever its arm is called, is not run again either. A folder that is not there has none.
    """

    workdir: str
    arms: Sequence[Arm]
    seeds: Sequence[Seed]
    measures: Sequence[Measure]
    hypotheses: Sequence[Hypothesis] = ()
    bindings: Sequence[str] = ()
    alpha: Share = 0.05
    results: str | None = None
    known_results: Sequence[str] = ()

    def check(self) -> None:
        """Checks that names are there and unique, and that measures are some.

        Raises:
            UserError: for what is no measure, for a name that is used twice, cannot name a folder or is not there, for
                equal seeds, for a level that no test can have, and for a folder without a name or that begins with ~.
        """
        if not self.arms or not self.seeds:
            raise UserError(f"a study needs {'seeds' if self.arms else 'arms'}: bind studies.Study.arms and .seeds")
        if len(set(self.seeds)) < len(self.seeds):
            raise UserError(f"the study has a seed twice: {', '.join(map(str, self.seeds))}")
        if not is_level(self.alpha):
            raise UserError(f"studies.Study.alpha is {self.alpha}; it must be at least {LEAST_ALPHA} and below 1")
        others = [("known_results", folder) for folder in self.known_results]
        _check_folders([("workdir", self.workdir), ("results", self.results), *others])
        _check_measures(self.measures)
        arms, measures = ([each.name for each in found] for found in (self.arms, self.measures))
        for kind, names in (("arm", arms), ("measure", measures), ("hypothesis", [h.name for h in self.hypotheses])):
            _check_names(kind, names)
        for each in self.hypotheses:
            known = {"arm": (each.arm, arms), "against": (each.against, arms), "measure": (each.measure, measures)}
            for role, (name, names) in known.items():
                if name not in names:
                    kind = "measure" if role == "measure" else "arm"
                    raise UserError(f"hypothesis {each.name}: there is no {kind} {name!r}{did_you_mean(name, names)}")
            if each.arm == each.against:
                raise UserError(f"hypothesis {each.name} compares arm {each.arm} with itself")


def is_level(alpha: float) -> bool:
    """Whether tests can have this level.

    >>> is_level(0.05), is_level(1e-300), is_level(1.0)
    (True, False, False)
    """
    return LEAST_ALPHA <= alpha < 1


def _check_folders(folders: Iterable[tuple[str, str | None]]) -> None:
    for name, folder in folders:
        if folder == "":
            raise UserError(f"studies.Study.{name} is empty: name a folder")
        if folder is not None:
            check_spelled_out(f"studies.Study.{name}", folder)


def _check_measures(measures: Iterable[object]) -> None:
    for measure in measures:
        has = {"name": isinstance(getattr(measure, "name", None), str)}
        has |= {method: callable(getattr(measure, method, None)) for method in ("is_made_by", "values")}
        lacks = ", ".join(part for part, is_there in has.items() if not is_there)
        if lacks:
            raise UserError(f"{type(measure).__name__} lacks {lacks}: a measure has a name, is_made_by and values")


def _check_names(kind: str, names: Sequence[str]) -> None:
    for name in names:
        if not name.strip():
            raise UserError(f"one {kind} of the study has no name")
        if kind == "arm" and not NAME.fullmatch(name):
            raise UserError(f"{name!r} cannot name an arm: use letters, digits, '_', '-', '+' and '.'")
        if names.count(name) > 1:
            raise UserError(f"{name!r} names more than one {kind} of the study")
