"""TensorBoard's HPARAMS tab of a study: a trial for each run, with its arm, seed and overrides, and its measures."""

from collections.abc import Mapping
from pathlib import Path

from rembed_keras.analysis.event_files.trials import write_experiment, write_trial

OF_A_RUN = ("SEED", "WORKDIR")  # the first is a column of its own


def write_trials(folder: Path, record: Mapping) -> None:
    """Writes the event files of a study's finished runs, in place of those that are there.

    Args:
        folder: where TensorBoard looks for them.
        record: what `study.json` says.
    """
    runs = [run for run in record["runs"] if run["state"] == "finished"]
    settings = {run["name"]: {"arm": run["arm"], "seed": run["seed"]} | overrides(run["command"]) for run in runs}
    columns = list(dict.fromkeys(name for found in settings.values() for name in found))
    write_experiment(folder, columns, [each["name"] for each in record["measures"]])
    for run in runs:
        write_trial(folder / run["name"], run["name"], settings[run["name"]], _means(record, run))


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
