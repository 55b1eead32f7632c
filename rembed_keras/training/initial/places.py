"""Places that an encoder can be taken from, and what stands beside it there: its tokenizer, and how it is called."""

import itertools
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rembed_keras.data.corpus import corpus_of_run, place_of_corpus
from rembed_keras.data.json_files import read_json
from rembed_keras.data.tokenizers.opening import open_tokenizer
from rembed_keras.data.tokenizers.protocol import AnyTokenizer
from rembed_keras.errors import UserError, did_you_mean, shortened
from rembed_keras.interop import encoder_arguments, opened_tokenizer, tokenizer_of
from rembed_keras.modeling.blocks.stack import check_encoder, kept_arguments
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.saving.configuration import class_named
from rembed_keras.modeling.saving.presets import folder_of
from rembed_keras.training.initial.finetuned import TRAINED, chosen_model, has_failed, stopped_at, trained_in
from rembed_keras.training.initial.reading import tokenizer_of_run
from rembed_keras.training.initial.weights import WhichCheckpoint
from rembed_keras.training.loop import checkpoints

LANGUAGES = "pretraining_languages"  # in what is said of a fine-tuned task, and of where pre-training started
BESIDE = "pretraining.json"  # beside an encoder that left its run: what is said of its pre-training
RECORD = "initial_weights.json"  # in a run's folder: where its pre-training started, if not from scratch
PREPARE_AGAIN = "set TOKENIZER, or training.prepare.tokenizer, to it and prepare the corpus in another folder"


@dataclass(frozen=True)
class Place:
    """Where an encoder is.

    Attributes:
        path: the folder of a checkpoint, a keras-hub preset or a Hugging Face model.
        name: what it is called in messages.
        run: the run that it was pre-trained in, if that is known.
        task: the folder of the task that it was fine-tuned for, if it was.
    """

    path: Path
    name: str
    run: Path | None = None
    task: Path | None = None

    @property
    def has_tokenizer(self) -> bool:
        """Whether it is known which tokenizer the encoder was trained with; a preset may have none beside it."""
        return self.run is not None or self.task is not None or tokenizer_of(self.path) is not None

    @cached_property
    def tokenizer(self) -> AnyTokenizer:
        """The tokenizer that the encoder was trained with.

        Raises:
            UserError: if there is none.
        """
        if self.task is not None:
            return self._of_task(self.task)
        if self.run is not None:
            return tokenizer_of_run(self.run, self._state, self.name)
        file = tokenizer_of(self.path)
        if file is None:
            raise UserError(f"{self.path} has no tokenizer, and texts cannot be read without it")
        return opened_tokenizer(file)

    @property
    def _state(self):
        """What the checkpoint of the encoder says, or the newest of its run; nothing where there is none."""
        if (self.path / "state.json").is_file():
            return checkpoints.opened(self.path).state
        found = _newest(self.path / "checkpoints")
        return {} if found is None else found.state

    def check_tokenizer(self, tokenizer: AnyTokenizer, remedy: str = PREPARE_AGAIN) -> None:
        """Checks that the encoder reads ids as a corpus has them.

        Args:
            tokenizer: that the corpus was prepared with.
            remedy: what to do if it is another, for the message.

        Raises:
            UserError: if the encoder was trained with another, or it is not known with which.
        """
        theirs = self.tokenizer
        if theirs.segmentation != tokenizer.segmentation:
            raise UserError(
                f"{self.name} was trained with the tokenizer {theirs.path}, and the corpus was prepared with another: "
                f"{remedy}"
            )

    def _of_task(self, folder):
        found = open_tokenizer(folder)
        about = folder / "task.json"
        if about.exists() and read_json(about).get("tokenizer_sha256") not in (None, found.sha256):
            raise UserError(f"{found.path} is not the tokenizer that the task was fine-tuned with: run finetune again")
        return found

    @property
    def languages(self) -> list[str]:
        """Languages that the encoder saw in pre-training, and in that of what it started from, as far as is known.

        Raises:
            UserError: if a file says it in another form.
        """
        of_task = None if self.task is None else _kept_languages(self.task / "task.json")
        if of_task is not None:
            return of_task
        if self.run is None:
            return _kept_languages(self.path / BESIDE) or []
        own = corpus_of_run(self.run).languages if place_of_corpus(self.run).is_dir() else []
        return sorted({*own, *(_kept_languages(self.run / RECORD) or ())})


def find(folder: Path, checkpoint: WhichCheckpoint = "newest", is_verified: bool = True) -> Place:
    """The encoder that a folder holds: a run, a fine-tuned task or one of its models, a checkpoint, or another's model.

    Args:
        folder: the folder, or the name of a preset that comes with the package.
        checkpoint: which one of a run.
        is_verified: whether the files of the newest are read to compare their checksums.

    Raises:
        UserError: if it holds none.
    """
    named, folder = folder, folder_of(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder of a model{_suggestion(folder)}")
    if checkpoint == "best":
        return _of_checkpoint(_best(folder))
    if (folder / "state.json").is_file():
        return _of_checkpoint(_undamaged(folder))
    if (folder / "checkpoints").is_dir():
        found = (checkpoints.latest if is_verified else _newest)(folder / "checkpoints")
        if found is None:
            raise UserError(f"{folder / 'checkpoints'} has no pre-trained encoder: run pretrain first")
        return _of_checkpoint(found)
    if checkpoints.by_step(folder) and (found := checkpoints.latest(folder)) is not None:
        _check_trained(folder, found)
        return _of_checkpoint(found)
    if (folder / "config.json").is_file():
        return Place(folder, str(named))
    if trained_in(folder):
        return _of_checkpoint(chosen_model(folder))
    tasks = sorted(path.parent for path in folder.glob("finetuned/**/task.json"))
    if tasks:
        raise UserError(f"{folder} did not pre-train: name one of its fine-tuned tasks, for example {tasks[0]}")
    raise UserError(f"{folder} is not a run, a fine-tuned task, a keras-hub preset or a Hugging Face model")


def said_beside(folder: Path, task: str | None = None) -> dict[str, str]:
    """What is written beside the encoder of a run where it is passed on, by the names of files.

    Args:
        folder: as in `find`.
        task: the name of the task that it was fine-tuned for; None for the encoder as pre-trained.

    Returns:
        The languages of its pre-training; nothing where none is known.

    Raises:
        UserError: as `find` and `Place.languages`.
    """
    of_task = folder / "finetuned" / (task or "")
    place = Place(of_task, str(of_task), task=of_task) if task else find(folder, is_verified=False)
    return _beside(place.languages)


def said_of_all(*sources: str) -> dict[str, str]:
    """As `said_beside`, beside what is made of the encoders of one folder or several; nothing if one says nothing."""
    known = [find(Path(source), is_verified=False).languages for source in sources]
    return _beside(sorted({*itertools.chain(*known)})) if all(known) else {}


def said_by_preset(source: str) -> dict[str, str]:
    """As `said_of_all`, of a preset that is yet to be read: what is none says nothing."""
    return _beside(Place(folder_of(Path(source)), source).languages)


def _beside(languages):
    return {BESIDE: json.dumps({LANGUAGES: languages}) + "\n"} if languages else {}


def arguments_of(folder: Path, checkpoint: WhichCheckpoint = "newest") -> tuple[dict, str]:
    """The arguments of the encoder that a folder holds, of which nothing is built, and what it is called.

    Raises:
        UserError: if it holds none.
    """
    return arguments_at(find(folder, checkpoint, is_verified=False))


def arguments_at(place: Place) -> tuple[dict, str]:
    """What `arguments_of` gives, of a place that was found.

    Raises:
        UserError: if it describes no encoder.
    """
    try:
        if (place.path / "state.json").exists():
            described = checkpoints.opened(place.path).state["model"]
            model = described["config"]
            arguments = kept_arguments(model["encoder"]["config"], model)
            if issubclass(class_named(described) or object, TaskModel):  # what was added is folded into its matrices
                arguments.pop("hosted", None)
        else:
            arguments = encoder_arguments(place.path)
        check_encoder(arguments)
        return arguments, place.name
    except (KeyError, TypeError, AttributeError):
        raise UserError(f"{place.path} describes no encoder") from None


def _kept_languages(file):
    """What a JSON file keeps of the languages of pre-training; None if that is nothing."""
    kept = read_json(file).get(LANGUAGES) if file.exists() else None
    if kept is not None and (not isinstance(kept, list) or not all(isinstance(name, str) for name in kept)):
        raise UserError(f"{file}: {LANGUAGES} are {shortened(kept)}, not a list of texts")
    return kept


def _best(folder):
    found = checkpoints.best(folder / "checkpoints")
    if found is None:
        raise UserError(f"{folder} has no best checkpoint, as a run has whose pre-training had keep_best")
    return found


def _check_trained(folder, found):
    if has_failed(folder):
        raise UserError(f"{folder} is of a training that failed; its checkpoint of before that is {found.path}")
    if folder.name != "checkpoints" and (at := stopped_at(found)) is not None:  # a run's encoder is of use on the way
        raise UserError(
            f"{folder} was stopped at {at}: let its run go on; name its checkpoint, {found.path}, to start from it"
        )


def _undamaged(folder):
    found = checkpoints.whole_in(folder)
    if found is None:
        raise UserError(f"checkpoint {folder} is damaged: name another")
    return found


def _newest(folder):
    """The newest checkpoint that says what it is, of files that are not read to compare their checksums; None if none.

    Raises:
        UserError: if there are some, and none says it.
    """
    error = None
    for path in reversed(checkpoints.by_step(folder).values()):
        try:
            return checkpoints.opened(path)
        except UserError as damage:
            error = error or damage
    if error is not None:
        raise error
    return None


def _of_checkpoint(found):
    path, trained = found.path, found.path.parent
    if TRAINED.fullmatch(trained.name):
        runs = (each.parent for each in trained.parents if each.name == "finetuned")
        return Place(path, f"{trained} step {found.step}", next(runs, None), trained.parent)
    return Place(path, f"{trained.parent} step {found.step}", trained.parent)


def _suggestion(folder):
    """What may have been meant by the name of a task that is not there."""
    there = [path.name for path in folder.parent.iterdir()] if folder.parent.is_dir() else []
    return did_you_mean(folder.name, there)
