"""Weights & Biases: one run of theirs for a run of ours, whose curves are called as the log calls them."""

import importlib
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from rembed_keras.errors import UserError
from rembed_keras.interruption import Stopped
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks.sink import Sink, Watched, final_numbers, numbers_of, tables_of

Mode: TypeAlias = Literal["offline", "online"]


class WeightsAndBiases(Sink):
    """Curves `pretrain/loss`, `evaluation/loss`, `finetune/<task>/<model>/loss` over steps of their own.

    Offline, what `wandb sync` uploads lies in the run's folder `wandb/`; a run that goes on writes it all again, from
    the log, so upload it when the run has ended. Online, for those who are logged in, the same run of theirs goes on.

    Args:
        project: its name there.
        entity: whose it is; that of the user who is logged in by default.
        mode: "offline" asks the network for nothing.

    Raises:
        UserError: where the package wandb is not installed.
    """

    def __init__(self, project: str = "rembed-keras", entity: str | None = None, mode: Mode = "offline"):
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # which it would send to its makers
        self._wandb = extra("wandb", "wandb")
        self.project, self.entity, self.mode = project, entity, mode
        self._drawn: set[tuple[str, int]] = set()

    def open(self, watched: Watched) -> None:
        self._exit_code = 0
        if self.mode == "offline":
            shutil.rmtree(watched.path / "wandb", ignore_errors=True)
        self._run: Any = self._wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            id=watched.identity(),
            resume="allow" if self.mode == "online" else None,
            name=watched.name,
            dir=watched.path,
            config=watched.settings,
            settings=self._wandb.Settings(console="off", silent=True, x_disable_stats=True),
        )
        if watched.ledger is not None:
            self._run.config.update({name: watched.ledger[name] for name in ("kept", "dropped", "total")})
        for row in watched.rows():  # those that are logged again are left out then
            self.draw(row)

    def draw(self, row: Mapping) -> None:
        run, step = row["run"], row["step"]
        if (run, step) in self._drawn:
            return
        if not any(run == each for each, _ in self._drawn):
            self._run.define_metric(f"{run}/step", hidden=True)
            self._run.define_metric(f"{run}/*", step_metric=f"{run}/step")
        values: dict[str, Any] = {f"{run}/{name}": value for name, value in numbers_of(row).items()}
        for name, table in tables_of(row).items():
            values[f"{run}/{name}"] = self._wandb.Table(columns=list(table.columns), data=[*map(list, table.rows)])
        self._run.log(values | {f"{run}/step": step}, step=len(self._drawn))
        self._drawn.add((run, step))

    def score(self, scores: Sequence[Score], rows: Sequence[Mapping]) -> None:
        self._run.summary.update(final_numbers(scores, rows))

    def break_off(self, error: BaseException) -> None:
        self._exit_code = error.code if isinstance(error, Stopped) else 1

    def close(self) -> None:
        self._run.finish(self._exit_code)


def extra(module: str, name: str) -> Any:
    """A module that an extra of this package brings.

    Args:
        module: what is imported.
        name: of the extra.

    Raises:
        UserError: where it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{module} is not installed: pip install 'rembed-keras[{name}]' ({error})") from None
