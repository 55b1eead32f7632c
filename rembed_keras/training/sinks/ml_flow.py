"""MLflow: one run of theirs for a run of ours, in files of the run's folder or on a server."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rembed_keras.interruption import Interrupted
from rembed_keras.tasks.scores import Score
from rembed_keras.training.sinks.sink import Sink, Watched, final_numbers, numbers_of, tables_of
from rembed_keras.training.sinks.weights_and_biases import extra

IDENTITY = "rembed_keras.run_id"  # the tag by which a run that goes on is found
LONGEST = 6000  # characters of a parameter that MLflow takes


class MLflow(Sink):
    """Metrics `pretrain/loss`, `evaluation/loss`, `finetune/<task>/<model>/loss` by step, and the knobs as parameters.

    Those of a language are called `pretrain/loss.de`, since metrics are files there, and no file is a folder too.
    A run that goes on is found there, and what it has of a metric and step is not logged again. A knob that may change
    meanwhile, such as DTYPE, keeps its first value as a parameter, and a tag of its name has the last.

    Args:
        tracking_uri: where it is kept; the run's folder `mlruns/` by default.
        experiment: the name of the experiment.

    Raises:
        UserError: where the package mlflow is not installed.
    """

    def __init__(self, tracking_uri: str | None = None, experiment: str = "rembed-keras"):
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._mlflow = extra("mlflow", "mlflow")
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self._steps: dict[str, set[int]] = {}  # of each metric that is there

    def open(self, watched: Watched) -> None:
        self._status = "FINISHED"
        where = self.tracking_uri or (watched.path.resolve() / "mlruns").as_uri()
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # without which MLflow 3 refuses a folder
        client = self._client = self._mlflow.MlflowClient(tracking_uri=where)
        known = client.get_experiment_by_name(self.experiment)
        number = client.create_experiment(self.experiment) if known is None else known.experiment_id
        identity = watched.identity()
        (found, *_) = client.search_runs([number], f"tags.`{IDENTITY}` = '{identity}'") or [None]
        if found is None:
            found = client.create_run(number, run_name=watched.name, tags={IDENTITY: identity})
        self._run = found.info.run_id
        client.update_run(self._run, status="RUNNING")
        for name in found.data.metrics:
            self._steps[name] = {point.step for point in client.get_metric_history(self._run, name)}
        self._log_settings(found.data, watched)
        client.log_text(self._run, watched.recipe, "config.gin")
        if watched.ledger is not None:
            client.log_dict(self._run, dict(watched.ledger), "ledger.json")
        for row in watched.rows():  # what a kill kept from being logged
            self.draw(row)

    def _log_settings(self, known: Any, watched: Watched) -> None:
        """Logs each knob as a parameter, or as a tag where its parameter has another value, which stays."""
        for name, value in watched.settings.items():
            said = str(value)[:LONGEST]
            if name in known.tags or known.params.get(name, said) != said:
                self._client.set_tag(self._run, name, said)
            else:
                self._client.log_param(self._run, name, said)

    def draw(self, row: Mapping) -> None:
        run, step = row["run"], row["step"]
        self._log({metric_of(run, name): value for name, value in numbers_of(row).items()}, step)
        for name, table in tables_of(row).items():
            self._client.log_text(self._run, table.markdown(), f"{run}/{name}/step-{step:08d}.md")

    def _log(self, values: Mapping[str, float], step: int) -> None:
        now, entity = int(1000 * time.time()), self._mlflow.entities.Metric
        new: list[Any] = []
        for name, value in values.items():
            steps = self._steps.setdefault(name, set())
            if step not in steps:
                steps.add(step)
                new.append(entity(name, value, now, step))
        self._client.log_batch(self._run, metrics=new)

    def score(self, scores: Sequence[Score], rows: Sequence[Mapping]) -> None:
        found = {metric_of(*name.split("/", 1)): value for name, value in final_numbers(scores, rows).items()}
        self._log(found, step=len(rows))

    def break_off(self, error: BaseException) -> None:
        self._status = "KILLED" if isinstance(error, Interrupted | KeyboardInterrupt) else "FAILED"

    def close(self) -> None:
        self._client.set_terminated(self._run, self._status)


def metric_of(run: str, name: str) -> str:
    """What MLflow calls a number of a run: it takes few characters, and no name that begins with another and a slash.

    >>> metric_of("pretrain", "loss/de"), metric_of("final", "retrieval/help/P@1 from en/pretrained")
    ('pretrain/loss.de', 'final/retrieval.help.P_1 from en.pretrained')
    >>> metric_of("finetune/c++ (fr)/seed0", "perte/été")
    'finetune/c__ _fr_/seed0/perte.été'
    """
    return re.sub(r"[^-_. /\w]", "_", f"{run}/{name.replace('/', '.')}")
