"""Models made again from checkpoints: whole, the encoder that is kept, or what fine-tuning trained on starting weights.

What a checkpoint says of its model may be anybody's, so no model is made that is larger than the files beside it.
"""

import contextlib
from pathlib import Path

import keras

from rembed_keras.adaptation.tuning import task_variables
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.data.corpus import place_of_corpus
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model, read_with_notes
from rembed_keras.interop.tensors import Tensors
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.choices import with_class
from rembed_keras.modeling.heads.task_model import TaskModel
from rembed_keras.modeling.objectives import PretrainingModel
from rembed_keras.modeling.saving.configuration import class_named, made
from rembed_keras.modeling.saving.filling import blank
from rembed_keras.modeling.sizes import Dtype
from rembed_keras.training.initial.held import Held, folded
from rembed_keras.training.initial.reading import tokenizer_of_run
from rembed_keras.training.initial.weights import Changes
from rembed_keras.training.loop import checkpoints, starting
from rembed_keras.training.optimizers.masters import MASTER, across_dtypes

WEIGHTS = (".safetensors", ".h5")  # what files of weights end in
SCALE = ("/dynamic_scale", "/step_counter")  # what names of variables end in that scale a loss in float16
RATE = "/learning_rate"  # what the name of one ends in that is no schedule
NO_CORPUS = "no tokenizer is stored: the corpus of the run, which has it, is gone; put it back; convert has --tokenizer"


def load_parts(model, found: checkpoints.Checkpoint) -> None:
    """Gives a model the encoder and the head of a checkpoint; what a checkpoint of trained weights has not, it keeps.

    Raises:
        UserError: if it is a checkpoint of another model, or of one that started from other weights.
    """
    start = found.state.get("start")
    if start is not None and not starting.are_same(start, getattr(model, "start", None)):
        raise UserError(f"{found.path} was fine-tuned from other starting weights than those that this model has")
    for part, owned in parts_of(model, is_whole=start is None).items():
        arrays, source = found.arrays(part), found.path / f"{part}.safetensors"
        unknown = sorted(arrays.keys() - {variable.path for variable in owned})
        if unknown:
            raise UserError(f"{source} has {unknown[0]}, which the model has not: it is of another model")
        checkpoints.assign_arrays(owned, arrays, source)


def load_optimizer(learner, found: checkpoints.Checkpoint, has_own_rate: bool = False) -> None:
    """Gives the optimizer of a model, which has its weights, what a checkpoint's remembers.

    The checkpoint may be of another precision, see `masters.across_dtypes`. A loss that was not scaled is scaled as at
    the start of a run.

    Args:
        learner: the model.
        found: the checkpoint.
        has_own_rate: whether it keeps its learning rate, as a training does that goes on from another.

    Raises:
        UserError: if it is of another optimizer.
    """
    source, arrays = found.path / "optimizer.safetensors", found.arrays("optimizer")
    stored = Tensors(*(found.path / f"{part}.safetensors" for part in parts_of(learner)))
    weights, masters = across_dtypes(learner, arrays, stored)
    checkpoints.assign_named(weights, arrays, source)
    checkpoints.assign_named(masters, stored, found.path)
    others = {
        name: variable
        for name, variable in learner.optimizer.named_variables().items()
        if (name in arrays or not (name.startswith(MASTER) or name.endswith(SCALE)))
        and not (has_own_rate and name.partition("#")[0].endswith(RATE))  # of an optimizer that it holds, too
    }
    checkpoints.assign_named(others, arrays, source, "optimizer")


def restore(found: checkpoints.Checkpoint) -> keras.Model:
    """The model of a checkpoint, rebuilt from its configuration.

    Raises:
        UserError: if its files are not of that model, or its starting weights are gone or others now.
    """
    start, (_, *sources) = found.state.get("start"), _folders(found)
    with blank():
        model = _made(found, found.state.get("model"), keras.Model)
    if start is not None:
        weights, source = starting.base_weights(model), sources[0]
        held_in(source).changed(Changes.of(start)).fill(weights)
        if starting.checksum(weights) != starting.checksum_of(start):
            raise UserError(f"{found.path}: the starting weights in {source} differ from those that it started from")
        model.start = start
    load_parts(model, found)
    return model


def _folders(found):
    """A checkpoint's folder, and those of the starting weights that it leaves out, and of those that they leave out."""
    folders, state = [found.path], found.state
    while state.get("start") is not None:
        source = starting.folder_of(state["start"], folders[-1])
        if source in folders:
            raise UserError(f"checkpoint {found.path}: {source} is said to start from itself")
        folders.append(source)
        state = checkpoints.opened(source).state if (source / "state.json").exists() else {}
    return folders


def _made(found, config, kind):
    """What a part of a checkpoint's configuration describes, no larger than its files and those it started from."""
    try:
        sizes = config["config"]
        entries = getattr(class_named(config), "ledger_entries", None)
        whole = sizes if entries is not None else sizes.get("encoder", sizes)
        files = [file for folder in _folders(found) for file in folder.glob("*")]
        weights = [file for file in files if file.suffix in WEIGHTS and file.is_file()]
        if ledger(whole, entries=entries).total > 2 * sum(file.stat().st_size for file in weights):  # in int4
            raise UserError("it describes a larger model than its files hold")
        return made(config, kind)
    except UserError as error:
        raise UserError(f"checkpoint {found.path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        raise UserError(f"checkpoint {found.path}: state.json describes no model") from None


def load_kept(encoder, found: checkpoints.Checkpoint) -> None:
    """Gives an encoder the weights that a checkpoint's model keeps: without its head, and without layers that it cuts.

    Raises:
        UserError: if the encoder is another than the one that is kept; nothing was changed then.
    """
    _held_of_run(found).give(encoder)


def held_in(path: Path, with_head: bool = False) -> Held:
    """The encoder of a folder: what a run keeps, a fine-tuned one with what its methods added folded in, or another's.

    Args:
        path: the folder of a checkpoint, a keras-hub preset or a Hugging Face model.
        with_head: whether to hold the pre-training head too, if there is one.

    Raises:
        UserError: if there is no encoder, or one with additions that do not fold.
    """
    if (path / "state.json").exists():
        found = checkpoints.opened(path)
        model = found.state.get("model")
        kind = class_named(model) if isinstance(model, dict) else None
        is_tuned = isinstance(kind, type) and issubclass(kind, TaskModel)
        return folded(restore(found).encoder, path) if is_tuned else _held_of_run(found, with_head)
    model, _ = read_model(str(path))
    if not isinstance(model, PretrainingModel):
        return Held.whole(model, path)
    held = Held.whole(model.drop_heads(), path)
    if with_head:
        held.head = {variable.path: variable for variable in model.droppable_variables}
        held.objective = keras.saving.get_registered_name(type(model))
    return held


def _held_of_run(found, with_head=False):
    with blank():
        kept = kept_encoder(found)
    source, arrays = found.path / "encoder.safetensors", found.arrays("encoder")
    paths = [weight.path for weight in kept.weights]  # of layers that are kept, as they are called in the file
    missing = [path for path in paths if path not in arrays]
    if missing:
        raise UserError(f"{source} has no {missing[0]}: it is of another model")
    held = Held(kept, [(path, arrays[path]) for path in paths], source)
    if with_head:
        held.head, held.objective = found.arrays("head"), found.state["model"].get("registered_name")
    return held


def encoder_in(found: checkpoints.Checkpoint, dtype: Dtype | None = None) -> Encoder:
    """The encoder that a checkpoint's model pre-trains, with all of its layers, newly initialized.

    Args:
        found: the checkpoint.
        dtype: of the encoder; its own by default.
    """
    model = found.state.get("model")
    config = model.get("config") if isinstance(model, dict) else None
    with contextlib.nullcontext() if dtype is None else blank():
        encoder = _made(found, config.get("encoder") if isinstance(config, dict) else None, Encoder)
    return encoder if dtype is None else type(encoder).from_config(encoder.get_config() | {"dtype": dtype})


def kept_encoder(found: checkpoints.Checkpoint):
    """The encoder that a checkpoint's model keeps, rebuilt with initial weights."""
    model = found.state.get("model")
    config = model.get("config") if isinstance(model, dict) else None
    config = config if isinstance(config, dict) else {}
    whole, kept = _made(found, config.get("encoder"), Encoder), config.get("kept_layers")
    return whole.with_layers(kept, config.get("keep", "bottom")) if kept else whole


def masked_lm_in(path: Path) -> MaskedLM | None:
    """The masked LM of a folder, with its weights; None if another model is there.

    Args:
        path: as in `held_in`.
    """
    is_checkpoint = (path / "state.json").exists()
    model = restore(checkpoints.opened(path)) if is_checkpoint else read_model(str(path))[0]
    return model if isinstance(model, MaskedLM) else None


def model_of_run(folder: str | Path, least_step: int = 0) -> tuple[keras.Model, Path | None]:
    """The newest pre-trained model of a run, and the file of its tokenizer if the run has one of its own.

    Args:
        folder: the run's WORKDIR.
        least_step: the step that it must have been trained to, where an earlier checkpoint is not to take its place.

    Raises:
        UserError: if it has no checkpoint, or none of such a step that is whole.
    """
    found = checkpoints.latest(Path(folder) / "checkpoints")
    if found is None:
        raise UserError(f"{folder} has no checkpoints: it is not the folder of a run that pre-trained")
    if found.step < least_step:
        raise UserError(
            f"{folder} has trained for {least_step} steps, and its newest checkpoint that is whole is of step "
            f"{found.step}: bring the last one back"
        )
    run = Path(folder)
    is_there, name = place_of_corpus(run).exists(), str(found.path)
    return restore(found), tokenizer_of_run(run, found.state, name).path if is_there else None


def model_of(source: str | Path) -> tuple[keras.Model, Path | None]:
    """The model of a run, a keras-hub preset or a Hugging Face folder, and the file of its tokenizer if there is one.

    Raises:
        UserError: if it is none of these.
    """
    return model_with_notes(source)[:2]


def model_with_notes(source: str | Path) -> tuple[keras.Model, Path | None, list[str]]:
    """As `model_of`, and notes on what of the source is left out, a line each.

    Raises:
        UserError: if it is none of these.
    """
    if not (Path(source) / "checkpoints").is_dir():
        return read_with_notes(str(source))
    model, tokenizer = model_of_run(source)
    return model, tokenizer, [] if tokenizer else [NO_CORPUS]


def parts_of(model, is_whole: bool | None = None) -> dict[str, list]:
    """A model's weights by the file that they are saved in: its encoder's are kept, the others are a head's.

    Args:
        model: a model that has an `encoder`.
        is_whole: whether all of the encoder's are in the file, and not only those that fine-tuning trained or added; by
            default, unless the model says where the others are.
    """
    if isinstance(model, PretrainingModel):
        model.fold()
        return {"encoder": model.encoder.weights, "head": model.droppable_variables}
    kept = {id(weight) for weight in model.encoder.weights}
    head = [weight for weight in model.weights if id(weight) not in kept]
    is_whole = getattr(model, "start", None) is None if is_whole is None else is_whole
    own = kept if is_whole else {id(variable) for variable in task_variables(model)}
    return {"encoder": [weight for weight in model.encoder.weights if id(weight) in own], "head": head}


def running_of(model) -> list:
    """What a step changes besides weights: states of random generators, and means of the open interval of the log."""
    weights = {id(weight) for weight in model.weights}
    means = [variable for metric in _metrics_of(model) for variable in metric.variables]
    running = {id(variable): variable for variable in (*model.variables, *means)}
    return [variable for key, variable in running.items() if key not in weights]


def _metrics_of(model):
    """A model's metrics, as many and in the same order under every strategy.

    A task model has a mean of its loss that is read in the place of Keras's, the first.
    """
    own = model.loss_mean if isinstance(model, TaskModel) else None
    return model.metrics if own is None else [own, *(each for each in model.metrics[1:] if each is not own)]


def state_of(model) -> dict:
    """What a checkpoint says of a model: "model", its configuration; "terms", the names of its loss terms.

    And "start", where the weights are that are not in it. It is nothing of how the model was compiled: an optimizer or
    a schedule of others may not say it.
    """
    config = keras.saving.serialize_keras_object(model.get_config())
    state = {"model": with_class(type(model), config), "terms": [term.name for term in model.terms]}
    start = getattr(model, "start", None)
    return state if start is None else state | {"start": dict(start)}
