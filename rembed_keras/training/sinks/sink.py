"""What a sink is: a place where a run is watched, such as TensorBoard.

The log, `metrics.jsonl`, is the truth about a run, and a sink is drawn from it. A process that is killed may have drawn
rows that the next one, which goes on from a checkpoint, logs again, with the same numbers but for those that the clock
decides. So a sink is handed the rows that count whenever a training begins, and has each of them once: by drawing all
again, or by leaving out those that it has.

A sink of your own is a class with the methods of `Sink` that it needs, in a package that `--allow-import` names:

    training.run.sinks = [@sinks.TensorBoard(), @own_parts.training.sink.Journal()]
"""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rembed_keras.analysis.event_files.trials import Setting
from rembed_keras.analysis.pages.records import settings_of
from rembed_keras.analysis.reports.results import is_baseline
from rembed_keras.analysis.reports.tables import Table
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks.pieces import Pieces

OF_A_ROW = ("stage", "run", "step")  # what a row is of
IDENTITY = "run_id"  # file of the run's folder


@dataclass(frozen=True)
class Watched:
    """The run that is watched.

    Attributes:
        path: its folder.
        recipe: the resolved recipe, a gin text; empty where stages are called without one.
        ledger: of the model, as `ledger.json` has it; None without one.
        rows: gives the rows of the log so far, of all trainings.
    """

    path: Path
    recipe: str
    ledger: Mapping | None
    rows: Callable[[], list[dict]]

    @property
    def name(self) -> str:
        """What the run is called: its folder."""
        return self.path.resolve().name

    @property
    def settings(self) -> dict[str, Setting]:
        """The recipe's knobs that are numbers or texts, but for its folder."""
        return {name: value for name, value in settings_of(self.recipe).items() if name != "WORKDIR"}

    def identity(self) -> str:
        """A name for the run that no other has, made when it is first asked for and kept in its folder."""
        path = self.path / IDENTITY
        if not (path.exists() and path.read_text(encoding="utf-8").strip()):  # as a full disk leaves it
            path.write_text(secrets.token_hex(8), encoding="utf-8")
        return path.read_text(encoding="utf-8").strip()


class Sink:
    """Watches a run; each method does nothing unless a sink has its own.

    Methods are called by the one process that writes. What they raise ends the run, OSError as a user's mistake.
    """

    def open(self, watched: Watched) -> None:
        """The run begins or goes on, before its first stage."""

    def begin(self, run: str, rows: Sequence[Mapping]) -> None:
        """A training begins or goes on.

        Args:
            run: which: "pretrain", "evaluation" on its way, or "finetune/" and the model.
            rows: its rows in the log; rows after these are logged again.
        """

    def draw(self, row: Mapping) -> None:
        """A row was logged; see `MetricsLog.append`, `numbers_of` and `tables_of`."""

    def show_pieces(self, pieces: Pieces) -> None:
        """Pre-training is done: the vectors of the most frequent pieces."""

    def score(self, scores: Sequence[Score], rows: Sequence[Mapping]) -> None:
        """A stage is done.

        Args:
            scores: all scores so far.
            rows: all rows of the log so far.
        """

    def break_off(self, error: BaseException) -> None:
        """The run ends before all its stages are done; `close` follows.

        Args:
            error: what ends it: an `Interrupted` by a signal, a `DivergedError` by a loss that is not finite.
        """

    def close(self) -> None:
        """The process ends."""


def numbers_of(row: Mapping) -> dict[str, float]:
    """The finite numbers of a row by name.

    >>> numbers_of({"stage": "pretrain", "run": "pretrain", "step": 3, "loss": 2.5, "tokens_per_second": math.nan})
    {'loss': 2.5}
    """
    return {
        name: value
        for name, value in row.items()
        if name not in OF_A_ROW and isinstance(value, int | float) and math.isfinite(value)
    }


def tables_of(row: Mapping) -> dict[str, Table]:
    """The tables of a row by name."""
    return {name: Table(**value) for name, value in row.items() if isinstance(value, dict)}


def final_numbers(scores: Sequence[Score], rows: Sequence[Mapping]) -> dict[str, float]:
    """What a run came to: last losses, and scores, means over languages and seeds, of systems that are no baselines.

    As in tables, a seed that failed in one language has failed, and is not averaged.

    >>> final_numbers([Score("topics", name, "accuracy", value, 0, 9, "pretrained") for name, value in
    ...     (("de", 0.5), ("fr", 0.25))], [{"run": "pretrain", "step": 1, "loss": 4.0}])
    {'final/pretrain/loss': 4.0, 'final/topics/accuracy/pretrained': 0.375}
    """
    last = {f"final/{row['run']}/loss": row["loss"] for row in rows if row["run"] in ("pretrain", "evaluation")
            and row.get("loss") is not None}  # fmt: skip
    found: dict[str, dict[int | None, list[float]]] = {}  # by seed
    systems: dict[tuple[str, str], set[str]] = {}
    for each in scores:
        systems.setdefault((each.task, each.metric), set()).add(each.system)
    for each in scores:
        if not is_baseline(each.system, systems[each.task, each.metric]):
            name = f"final/{each.task}/{each.metric}/{each.system}"
            found.setdefault(name, {}).setdefault(each.seed, []).append(math.nan if each.value is None else each.value)
    whole = {
        name: [v for own in seeds.values() if all(map(math.isfinite, own)) for v in own]
        for name, seeds in found.items()
    }
    return last | {name: sum(values) / len(values) for name, values in whole.items() if values}


class Watch:
    """The sinks of a run, together; none in a process that does not write.

    Args:
        sinks: the sinks.
        watched: what they watch.
    """

    def __init__(self, sinks: Sequence[Sink], watched: Watched):
        self.sinks, self.watched = sinks, watched
        self._opened: list[Sink] = []

    def open(self) -> None:
        """Opens the sinks, if that was not done."""
        for sink in self.sinks[len(self._opened) :]:
            _tell([sink], "open", self.watched)
            self._opened.append(sink)

    def begin(self, run: str, rows: Sequence[Mapping]) -> None:
        """A training begins or goes on; see `Sink.begin`."""
        self.open()
        _tell(self.sinks, "begin", run, rows)

    def draw(self, row: Mapping) -> None:
        """A row was logged."""
        _tell(self.sinks, "draw", row)

    def show_pieces(self, pieces: Pieces) -> None:
        """Pre-training is done; see `Sink.show_pieces`."""
        self.open()
        _tell(self.sinks, "show_pieces", pieces)

    def score(self, scores: Sequence[Score]) -> None:
        """A stage is done, with all scores so far."""
        self.open()
        _tell(self.sinks, "score", scores, self.watched.rows())

    def close(self, error: BaseException | None = None) -> None:
        """Closes the sinks that were opened.

        Args:
            error: what ended the run before its end; see `Sink.break_off`.
        """
        if error is not None:
            _tell(self._opened, "break_off", error)
        _tell(self._opened, "close")


def _tell(sinks, method, *what):
    """Calls a method of those sinks that have it, which one that is not derived from `Sink` need not."""
    for sink in sinks:
        if (call := getattr(sink, method, None)) is not None:
            call(*what)
