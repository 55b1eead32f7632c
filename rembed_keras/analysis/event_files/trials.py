"""TensorBoard's HPARAMS tab: a trial is a run, with its settings as columns and its scores as metrics."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from rembed_keras.analysis.event_files.events import EventFile, scalar

Setting = bool | int | float | str


def write_experiment(folder: Path, settings: Sequence[str], metrics: Sequence[str]) -> None:
    """Names the columns of the tab, in place of what is in a folder and those below.

    Args:
        folder: that of an experiment, whose trials are in folders below.
        settings: names of settings.
        metrics: names of metrics.
    """
    from tensorboard.plugins.hparams import summary_v2 as api  # `hparams.api` would import TensorFlow

    shutil.rmtree(folder, ignore_errors=True)
    columns = [api.Metric(name, display_name=name) for name in metrics]
    _write(folder, [api.hparams_config_pb(hparams=[api.HParam(name) for name in settings], metrics=columns)], {})


def write_trial(folder: Path, name: str, settings: Mapping[str, Setting], metrics: Mapping[str, float]) -> None:
    """Writes one trial, in place of what is in its folder.

    Args:
        folder: the trial's.
        name: the trial's, the same whenever it is written.
        settings: what it was made with.
        metrics: what it scored.
    """
    from tensorboard.plugins.hparams import summary_v2 as api  # `hparams.api` would import TensorFlow

    shutil.rmtree(folder, ignore_errors=True)
    _write(folder, [api.hparams_pb(dict(settings), trial_id=name)], metrics)


def _write(folder, summaries, metrics):
    file = EventFile(folder)
    file.add(*summaries, *(scalar(name, value) for name, value in metrics.items()))
    file.close()
