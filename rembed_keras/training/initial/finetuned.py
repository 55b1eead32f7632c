"""Fine-tuned models on disk: a folder for each task, and in it one for each start, learning rate and seed."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from rembed_keras.data.json_files import json_text, read_json
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError, shortened
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.loop.workdir import Workdir

Start: TypeAlias = Literal["pretrained", "scratch"]
STARTS: tuple[Start, ...] = get_args(Start)
CHOSEN = "chosen.json"  # of a task's models: the learning rate that was chosen for each start
FAILED = "failed.json"  # of a model whose training ended in a non-finite loss
SETTINGS = "settings.json"  # of a task's models: what they have in common, besides what their folders' names say
INITIAL = "initial_weights"  # among them
PRETRAINING = "pretraining"  # among them, of a start from the run itself: its "step", and whether it "is_done"
TRAINED = re.compile(r"(?P<start>[a-z]+)-lr(?P<rate>[0-9.]+(e[+-][0-9]+)?)-seed(?P<seed>[0-9]+)")


class Trained(NamedTuple):
    """A training of a task, and where its checkpoints are; its learning rate is written as in the folder's name."""

    start: str
    rate: str
    seed: int
    folder: Path


def folder_of(workdir: Workdir, task: Task, start: str, rate: float, seed: int) -> Path:
    """Where the checkpoints of a fine-tuned model are."""
    return workdir.finetuned / task.name / f"{start}-lr{rate:g}-seed{seed}"


def trained_in(folder: Path) -> list[Trained]:
    """The trainings in a task's folder, by start, learning rate and seed, each in the order of its numbers."""
    matches = ((TRAINED.fullmatch(path.name), path) for path in folder.iterdir() if path.is_dir())
    found = [Trained(each["start"], each["rate"], int(each["seed"]), path) for each, path in matches if each]
    return sorted(found, key=lambda each: (each.start, float(each.rate), each.seed))


def chosen_rates(folder: Path) -> dict[str, Any]:
    """The learning rate that `evaluate` chose for each start in a task's folder; of none, if it has not been there."""
    return read_json(folder / CHOSEN) if (folder / CHOSEN).exists() else {}


def keep_chosen_rates(folder: Path, rates: Mapping[Start, float]) -> None:
    """Keeps the learning rates that were chosen for some starts, beside those of others."""
    write_atomically(folder / CHOSEN, json.dumps(chosen_rates(folder) | {**rates}))


def description_of(task: Task) -> dict[str, Any]:
    """A task's description as JSON has it, of which a list that is a tuple, or an array of NumPy's, is a list.

    Raises:
        UserError: for one that JSON cannot say, as that of a task of one's own may be.
    """
    return json.loads(json_text(task.description(), f"task {task.name}: its description"))


def model_settings_of(task: Task) -> dict[str, Any]:
    """As `description_of`, of the settings of a task's head."""
    return json.loads(json_text(task.model_settings(), f"task {task.name}: its model_settings"))


def begin_task(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Makes a task's folder ready for models of some settings.

    Models that were trained otherwise are refused: they would be taken for these, as if they had been trained. Those
    that started from the run's own pre-training on its way, which has gone on since, are removed, to be trained again;
    this is printed.

    Args:
        folder: of the task.
        settings: what its models have in common.

    Returns:
        The settings to keep: these, and where models started that a stage which trains others does not speak of.

    Raises:
        UserError: naming the first setting that differs.
    """
    kept = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else settings
    # version 0.1 says `ways`, and knows no terms, no other pooling, random batches alone and no initial weights
    there: dict[str, Any] = {"methods": kept.get("ways"), "terms": [], "pooling": "first", "group_by_length": False}
    there |= {INITIAL: settings.get(INITIAL)} | kept
    differs = [key for key in settings if key != PRETRAINING and there.get(key) != settings[key]]
    before, now = (_step(each.get(PRETRAINING)) for each in (kept, settings))
    if differs == [INITIAL] and before is not None and now is not None and before < now:
        began = f"{folder} has models that started from step {before:,} of the run's pre-training"
        if kept[PRETRAINING].get("is_done"):
            raise UserError(
                f"{began}, which has {now:,} by now: give the task a name of its own, or remove that folder to "
                "fine-tune again"
            )
        print(f"{began}, which has gone on to {now:,}: they are fine-tuned again", flush=True)
        for each in trained_in(folder):
            if each.start == "pretrained":
                shutil.rmtree(each.folder)
        (folder / CHOSEN).unlink(missing_ok=True)
    elif differs:
        key = differs[0]
        raise UserError(
            f"{folder} has models whose {key} is {shortened(there.get(key))}, not {shortened(settings[key])}: "
            "give each task a name of its own, choose another WORKDIR, or remove that folder to fine-tune again"
        )
    return {key: kept[key] for key in (INITIAL, PRETRAINING) if key in kept} | settings


def _step(pretraining):
    """The step of a run's pre-training that models started from; None if that is not said."""
    step = pretraining.get("step") if isinstance(pretraining, dict) else None
    return step if isinstance(step, int) else None


def refuse_others(folder: Path, task: Task, sequence_length: int, tokenizer: AnyTokenizer) -> None:
    """Refuses to ask models that were fine-tuned otherwise than a stage asks.

    Args:
        folder: of the task's models.
        task: of the stage that asks.
        sequence_length: as in `refuse_another_reading`.
        tokenizer: as in `refuse_another_reading`.

    Raises:
        UserError: as `refuse_another_reading` and `refuse_other_labels`.
    """
    there = read_json(folder / "task.json") if (folder / "task.json").exists() else {}
    refuse_another_reading(folder, there, sequence_length, tokenizer)
    refuse_other_labels(folder, there, task)


def refuse_another_reading(
    folder: Path, there: Mapping[str, Any], sequence_length: int, tokenizer: AnyTokenizer
) -> None:
    """Refuses to ask models that read texts otherwise in training: their answers would be wrong without a message.

    Args:
        folder: of the task.
        there: what `task.json` has in it.
        sequence_length: S of the stage that asks.
        tokenizer: its tokenizer.

    Raises:
        UserError: naming what differs.
    """
    length, checksum = there.get("sequence_length"), there.get("tokenizer_sha256")
    if length not in (None, sequence_length):
        raise UserError(
            f"{folder} has models that were fine-tuned with sequence_length {shortened(length)}, and {sequence_length} "
            "is asked for: give both stages the same"
        )
    own = tokenizer if checksum in (None, tokenizer.sha256) else open_tokenizer(folder)
    if checksum not in (None, own.sha256) or own.segmentation != tokenizer.segmentation:
        raise UserError(
            f"{folder} has models that were fine-tuned with another tokenizer than that of this stage: give both "
            "stages the same pretrained"
        )


def refuse_other_labels(folder: Path, there: Mapping[str, Any], task: Task) -> None:
    """Refuses to ask models of other labels than a task's, or in another order: answers would have others' names.

    Args:
        folder: of the task's models.
        there: what `task.json` has in it.
        task: of the stage that asks.

    Raises:
        UserError: naming both.
    """
    ours = description_of(task)
    for kind in ("labels", "tags"):
        if kind in there and there[kind] != ours.get(kind):
            raise UserError(
                f"{folder} has models that were fine-tuned with the {kind} {shortened(there[kind])}, and this stage's "
                f"task has {shortened(ours.get(kind))}: give both stages the same task"
            )


def retry_failed(folder: Path, dtype: str) -> None:
    """Removes what is left of a task's models that failed in another precision, in which a run may go on.

    Args:
        folder: of the task; of another one, whose folder is in it, nothing is removed.
        dtype: of its models.
    """
    for file in [*folder.glob(f"*/{FAILED}")]:
        before = read_json(file).get("dtype", dtype)
        if before != dtype:
            print(f"{file.parent} failed in {before}: it is fine-tuned again, in {dtype}", flush=True)
            shutil.rmtree(file.parent)


def has_failed(folder: Path) -> bool:
    """Whether a model's training ended in a non-finite loss."""
    return (folder / FAILED).exists()


def stopped_at(found: checkpoints.Checkpoint) -> str | None:
    """Where a model's training was stopped, as "step 2 of 4"; None if it came to its end.

    A checkpoint that does not say how long its training was to be, as those of version 0.1, is believed.
    """
    until = found.state.get("until")
    if not isinstance(until, int) or found.step >= until or found.state.get("has_ended"):
        return None
    return f"step {found.step} of {until}"


def chosen_model(folder: Path) -> checkpoints.Checkpoint:
    """The model of the lowest seed that started pre-trained, if any did, at the learning rate that was chosen.

    One whose training failed, or was stopped, is passed over, though it may have a checkpoint of before.

    Args:
        folder: of a task.

    Raises:
        UserError: if nobody has chosen among several learning rates, or no model was trained to its end, or all failed.
    """
    trained = trained_in(folder)
    start = next((start for start in STARTS if any(each.start == start for each in trained)), "none")
    chosen = chosen_rates(folder).get(start)
    rates = {each.rate: None for each in trained if each.start == start}
    if isinstance(chosen, int | float):
        rates = {f"{chosen:g}": None}
    if len(rates) > 1:
        raise UserError(f"{folder} has models of learning rates {', '.join(rates)}: run evaluate, which chooses one")
    eligible = [each.folder for each in trained if each.start == start and each.rate in rates]
    whole = [each for each in eligible if not has_failed(each)]
    newest = filter(None, map(checkpoints.latest, whole))
    found = next((each for each in newest if stopped_at(each) is None), None)
    if found is not None:
        return found
    if eligible and not whole:
        raise UserError(f"{folder} has no model but those whose training failed: lower the learning rate")
    raise UserError(f"{folder} has no model that was trained to its end")
