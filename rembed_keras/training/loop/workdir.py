"""The folder of a run, and the one log that everything else is drawn from.

`metrics.jsonl` is the truth about a run: one JSON object a logged step. A resumed run first rewinds it to the
checkpoint it continues from, so the file of a killed and resumed run equals that of an undisturbed one. What sinks
show, such as TensorBoard, is drawn from it.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.json_files import check_rows, read_whole_lines
from rembed_keras.data.writing import locked, write_atomically
from rembed_keras.errors import UserError
from rembed_keras.training.sinks.sink import Sink, Watch, Watched
from rembed_keras.training.sinks.tensorboard import TensorBoard

# numbers of a row that the clock and the machine decide, and that differ when a run is repeated
MEASURED = ("tokens_per_second", "seconds_per_step", "training_flops_per_second", "mfu", "peak_memory_bytes")


class Workdir:
    """A run's folder, held by one process at a time; those that work with it may read along.

    Args:
        path: the folder; made if it is not there.
        recipe: the resolved recipe, which sinks show.
        ledger: of the model, as JSON says it; None without one.
        sinks: where the run is watched; TensorBoard alone by default.
        is_chief: whether this process is the one that writes; the others make nothing, hold nothing, write no log and
            show nothing.

    Attributes:
        watch: its sinks, together.
        stage: which stage of the run is going on, as "stage 2 of 5"; "" if it has one alone.
        later_tokens: how many tokens later stages train on, as far as that is known.
        is_rehearsal: whether a stage shall check its arguments and end; see `training.rehearsal`.
        asked_of_corpus: checks that later stages leave in their rehearsal, of the `Corpus` that pre-training reads.

    Raises:
        UserError: if the folder cannot be made or written, or another process holds it.
    """

    def __init__(
        self,
        path: str | Path,
        recipe: str = "",
        ledger: Mapping | None = None,
        sinks: Sequence[Sink] | None = None,
        is_chief: bool = True,
    ):
        self.path = Path(path)
        self.is_chief = is_chief
        self.stage = ""
        self.later_tokens = 0.0
        self.is_rehearsal = False
        self.asked_of_corpus: list[Callable[[Corpus], object]] = []
        self.metrics = MetricsLog(self.path / "metrics.jsonl", is_chief)
        sinks = [TensorBoard()] if sinks is None else sinks
        self.watch = Watch(sinks if is_chief else (), Watched(self.path, recipe, ledger, self.metrics.rows))
        self._lock: IO | None = None
        if is_chief:
            self._hold()

    def _hold(self):
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock = open(self.path / ".lock", "w")  # noqa: SIM115 - held as long as the run
        except OSError as error:
            raise UserError(f"WORKDIR {self.path} cannot be used: {error.strerror}") from None
        if not locked(lock):
            lock.close()
            raise UserError(f"WORKDIR {self.path} is in use by another process: wait for it or choose another")

    @property
    def checkpoints(self) -> Path:
        """Folder of pre-training checkpoints."""
        return self.path / "checkpoints"

    @property
    def corpus(self) -> Path:
        """Folder of the prepared text."""
        return self.path / "corpus"

    @property
    def tensorboard(self) -> Path:
        """Folder of TensorBoard's event files, a folder a run."""
        return self.path / "tensorboard"

    @property
    def finetuned(self) -> Path:
        """Folder of fine-tuned models."""
        return self.path / "finetuned"

    @property
    def diverged(self) -> Path:
        """Folder of steps that diverged, kept to be repeated."""
        return self.path / "diverged"

    @property
    def scores(self) -> Path:
        """File of scores."""
        return self.path / "scores.json"

    def __enter__(self) -> "Workdir":
        return self

    def __exit__(self, _, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """Closes the sinks, and lets other processes use the folder.

        Args:
            error: what ended the run before its end, which sinks may show.
        """
        try:
            self.watch.close(error)
        finally:
            if self._lock is not None:
                self._lock.close()


class MetricsLog:
    """The run's log: appended to while a stage runs, rewound when it is resumed.

    Args:
        path: the JSON-lines file; it need not exist.
        is_written: whether this process writes it; if not, it is read alone.
    """

    def __init__(self, path: Path, is_written: bool = True):
        self.path, self.is_written = path, is_written

    def rows(self, run: str | None = None) -> list[dict]:
        """Rows that were written whole, of one run of a stage or of all; see `append`.

        Raises:
            UserError: for a damaged log, since to write it again would lose the rows that cannot be read.
        """
        rows = read_whole_lines(self.path)
        check_rows(rows, {"run": str, "step": int}, self.path)
        return rows if run is None else [row for row in rows if row["run"] == run]

    def rewind(self, run: str, step: int) -> list[dict]:
        """Forgets what `run` logged after `step`.

        Args:
            run: name of the run within the workdir, for example "pretrain".
            step: the last step that stays.

        Returns:
            The rows of `run` that stay.
        """
        kept = [row for row in self.rows() if row["run"] != run or row["step"] <= step]
        if self.is_written:
            write_atomically(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        return [row for row in kept if row["run"] == run]

    def append(self, row: dict) -> None:
        """Adds a row, which has at least `stage`, `run` (the stage and, where it trains several models, which) and
        `step`; it is on disk when this returns, and nothing of it if it cannot be written."""
        if not self.is_written:
            return
        with open(self.path, "ab", buffering=0) as file:
            line, before = json.dumps(row).encode() + b"\n", file.tell()
            try:
                written = file.write(line)
                if written < len(line):  # the rest says why
                    file.write(line[written:])
                os.fsync(file.fileno())
            except OSError as error:
                file.truncate(before)
                raise OSError(error.errno, error.strerror, str(self.path)) from None
