"""TensorBoard's HPARAMS tab: a trial for each run, with its arm, seed and overrides, and its measures as metrics."""

import shutil
from collections.abc import Mapping
from pathlib import Path

OF_A_RUN = ("SEED", "WORKDIR")  # the first is a column of its own


def write_trials(folder: Path, record: Mapping) -> None:
    """Writes the event files of a study's finished runs, in place of those that are there.

    Args:
        folder: where TensorBoard looks for them.
        record: what `study.json` says.
    """
    from tensorboard.plugins.hparams import api

    runs = [run for run in record["runs"] if run["state"] == "finished"]
    settings = {run["name"]: {"arm": run["arm"], "seed": run["seed"]} | overrides(run["command"]) for run in runs}
    columns = list(dict.fromkeys(name for found in settings.values() for name in found))
    metrics = [api.Metric(each["name"], display_name=each["name"]) for each in record["measures"]]
    shutil.rmtree(folder, ignore_errors=True)
    _write(folder, [api.hparams_config_pb(hparams=[api.HParam(name) for name in columns], metrics=metrics)], {})
    for run in runs:
        trial = api.hparams_pb(settings[run["name"]], trial_id=run["name"])
        _write(folder / run["name"], [trial], _means(record, run))


def overrides(command) -> dict[str, str]:
    """What a run's command binds, without its seed and folder.

    >>> overrides(["run", "a.gin", "STEPS=3", "SEED=0"])
    {'STEPS': '3'}
    """
    pairs = (word.partition("=") for word in command[2:] if "=" in word)
    return {key: value for key, _, value in pairs if key not in OF_A_RUN}


def _means(record, run):
    """Each measure of a run, languages averaged."""
    values: dict[str, list[float]] = {}
    for row in record["scores"]:
        if (row["arm"], row["seed"]) == (run["arm"], run["seed"]):
            values.setdefault(row["measure"], []).append(row["value"])
    return {name: sum(each) / len(each) for name, each in values.items()}


def _write(folder, summaries, scalars):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    values = [Summary(value=[Summary.Value(tag=name, simple_value=value)]) for name, value in scalars.items()]
    writer = EventFileWriter(str(folder))
    for summary in (*summaries, *values):
        writer.add_event(Event(step=0, summary=summary))
    writer.close()
