"""The progress line of whatever trains: how fast it is, and how long what is left takes."""

import math
import statistics
import sys
import time

import keras
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text

from rembed_keras.analysis.cost.ledger import BACKWARD
from rembed_keras.data.json_files import read_json
from rembed_keras.training.loop.callbacks import StepClock
from rembed_keras.training.loop.workdir import Workdir


class Trainings:
    """Trainings of a stage, one after another, and about how long those that are left take.

    Args:
        count: how many there are.
        seconds: about how long each takes, see `forecast`; None if nobody knows before one has ended.

    Compilation is a large part of the first, and of no other.

    >>> trainings = Trainings(4)
    >>> trainings.number = 2
    >>> trainings.said(own_left=30.0)
    'model 2 of 4'
    >>> trainings.seconds = 60.0
    >>> trainings.said(own_left=30.0)
    'model 2 of 4, about 2:30 left for all'
    """

    def __init__(self, count: int, seconds: float | None = None):
        self.count, self.number = count, 0
        self.seconds = seconds  # of the last one that ended, once there is one
        self._begun = 0.0

    def announced(self) -> str:
        """What is known before the first begins; "" if that is nothing.

        >>> Trainings(4, seconds=45.0).announced()
        '4 models, about 3:00 at the speed of pre-training, without compilation'
        """
        if self.seconds is None:
            return ""
        models = "1 model" if self.count == 1 else f"{self.count} models"
        whole = _clock_face(self.count * self.seconds)
        return f"{models}, about {whole} at the speed of pre-training, without compilation"

    def begin(self) -> None:
        """Notes when a training begins."""
        self._begun = time.monotonic()

    def end(self, share: float = 1.0) -> None:
        """Notes how long it took.

        Args:
            share: of its steps, those since it began; from less than half nothing follows, since it compiled too.
        """
        if share >= 0.5:
            self.seconds = (time.monotonic() - self._begun) / share

    def said(self, own_left: float) -> str:
        """Which training it is, and what is left of all; "" for one alone.

        Args:
            own_left: seconds that are left of this one; NaN if nobody knows.
        """
        if self.count == 1:
            return ""
        place = f"model {self.number} of {self.count}"
        if self.seconds is None or math.isnan(own_left):
            return place
        return f"{place}, about {_clock_face(self.left(own_left))} left for all"

    def left(self, own_left: float) -> float:
        """Seconds that are left of all; NaN if nobody knows.

        Args:
            own_left: seconds that are left of this one; NaN if nobody knows.
        """
        others = self.count - self.number if self.count > 1 else 0
        return own_left + others * (math.nan if self.seconds is None else self.seconds) if others else own_left


class Forecast:
    """About how long a training takes that comes after pre-training: at as many FLOPs a second, by the ledger.

    Args:
        workdir: the run's, whose pre-training was logged, or is.
        tokens: that are trained on, padding too; each costs the encoder's forward pass and twice that for the
            backward pass, so the head, compilation and what a method leaves out are not counted.
    """

    def __init__(self, workdir: Workdir, tokens: float):
        self.workdir, self.tokens = workdir, tokens
        self.speeds: list[float] | None = None

    def seconds(self, row: dict | None = None) -> float | None:
        """The seconds; None if nothing is trained then, or the run has pre-trained nothing.

        Args:
            row: what was just logged, if anything was: a log may be long, and is read once.
        """
        path = self.workdir.path / "ledger.json"
        if not self.tokens or not path.exists():
            return None
        if self.speeds is None:
            self.speeds = _speeds(self.workdir.metrics.rows())
        elif row is not None:
            self.speeds += _speeds([row])
        if not self.speeds:
            return None
        flops = (1 + BACKWARD) * read_json(path)["flops_per_token"]["kept"]
        return self.tokens * flops / statistics.median(self.speeds)


def _speeds(rows):
    """FLOPs a second of rows of pre-training that say them."""
    own = (row.get("training_flops_per_second") for row in rows if row["run"] == "pretrain")
    return [speed for speed in own if speed]


class ProgressLine(keras.callbacks.Callback):
    """A progress bar on a terminal; elsewhere a line for each logged row.

    Args:
        clock: the step clock, which runs before this callback.
        title: what is going on.
        stage: which stage of the run it is, to be said beside it.
        trainings: of the stage, of which this is one.
        later: about how long later stages train.
    """

    def __init__(
        self,
        clock: StepClock,
        title: str,
        stage: str = "",
        trainings: Trainings | None = None,
        later: Forecast | None = None,
    ):
        super().__init__()
        self.clock, self.title, self.stage = clock, title, stage
        self.trainings = trainings or Trainings(1)
        self.later = later
        self.first_step = clock.step
        self.noted = ""
        self.bar = _BarWithText(
            TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
            BarColumn(bar_width=12),
            TextColumn("{task.completed}/{task.total}"),
            console=Console(file=sys.stdout),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task(title, total=clock.last_step, completed=clock.step, rate="compiling")

    def on_train_begin(self, logs=None):
        self.trainings.begin()
        self.bar.start()

    def on_train_batch_end(self, batch, logs=None):
        self.bar.update(self.task, completed=self.clock.step)

    def on_train_end(self, logs=None):
        self.trainings.end((self.clock.step - self.first_step) / self.clock.last_step)
        self.bar.stop()

    def note(self, text: str, is_new: bool = False) -> None:
        """Shows a text beside every row from now on; a new one also by itself where there is no terminal."""
        self.noted = text
        if is_new and self.bar.disable:
            print(f"{self.title} {self.clock.step}/{self.clock.last_step} · {text}", flush=True)

    def show(self, row: dict) -> None:
        """Shows a row of the log."""
        left = self.clock.seconds_left()
        loss = "?" if row["loss"] is None else f"{row['loss']:.3f}"
        speed = row["tokens_per_second"]
        said = "? tokens/s" if speed is None or math.isnan(speed) else f"{speed:,.0f} tokens/s"
        place = (self.trainings.said(left), self.stage, self._said_of_all(row, self.trainings.left(left)))
        rate = " · ".join([f"loss {loss} · {said} · {_clock_face(left)} left", *filter(None, place)])
        self.bar.update(self.task, rate=f"{rate} · {self.noted}" if self.noted else rate)
        if self.bar.disable:
            print(
                f"{self.title} {row['step']}/{self.clock.last_step} · {rate}",
                flush=True,
            )

    def _said_of_all(self, row, left):
        """What is left with later stages; "" if these train nothing, or nobody knows."""
        later = None if self.later is None else self.later.seconds(row)
        return f"about {_clock_face(left + later)} left to train in all" if later and not math.isnan(left) else ""


class _BarWithText(Progress):
    """A bar, and below it, on as many lines as the terminal's width asks for, how it goes."""

    def get_renderables(self):
        yield from super().get_renderables()
        yield from (Text(task.fields["rate"]) for task in self.tasks)


def _clock_face(seconds: float) -> str:
    if math.isnan(seconds):
        return "?"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
