"""Models made again from checkpoints: whole, the encoder that is kept, or what fine-tuning trained on starting weights.

What a checkpoint says of its model may be anybody's, so no model is made that is larger than the files beside it.
"""

from pathlib import Path

import keras

from rembed_keras.adaptation.tuning import task_variables
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.objectives import PretrainingModel
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.modeling.saving.changes import changes_of
from rembed_keras.modeling.saving.configuration import class_named, made
from rembed_keras.modeling.saving.filling import blank
from rembed_keras.training.loop import checkpoints, starting

WEIGHTS = (".safetensors", ".h5")  # what files of weights end in


def load_parts(model, found: checkpoints.Checkpoint) -> None:
    """Gives a model the encoder and the head of a checkpoint; what a checkpoint of trained weights has not, it keeps.

    Raises:
        UserError: if it is a checkpoint of another model, or of one that started from other weights.
    """
    start = found.state.get("start")
    if start is not None and starting.checksum_of(start) != starting.checksum_of(getattr(model, "start", None)):
        raise UserError(f"{found.path} was fine-tuned from other starting weights than those that this model has")
    for part, owned in parts_of(model, is_whole=start is None).items():
        arrays, source = found.arrays(part), found.path / f"{part}.safetensors"
        unknown = sorted(arrays.keys() - {variable.path for variable in owned})
        if unknown:
            raise UserError(f"{source} has {unknown[0]}, which the model has not: it is of another model")
        checkpoints.assign_arrays(owned, arrays, source)


def restore(found: checkpoints.Checkpoint) -> keras.Model:
    """The model of a checkpoint, rebuilt from its configuration.

    Raises:
        UserError: if its files are not of that model, or its starting weights are gone or others now.
    """
    start = found.state.get("start")
    source = None if start is None else starting.folder_of(start, found.path)
    with blank():
        model = _made(found, found.state.get("model"), keras.Model, source)
    if source is not None:
        weights = starting.base_weights(model)
        _fill_from(weights, source)
        if starting.checksum(weights) != starting.checksum_of(start):
            raise UserError(f"{found.path}: the starting weights in {source} differ from those that it started from")
        model.start = start
    load_parts(model, found)
    return model


def _fill_from(weights, source):
    """Gives an encoder's own weights those of a starting checkpoint, preset or Hugging Face folder."""
    if not (source / "state.json").exists():
        held = encoder_of(read_model(str(source))[0])
        checkpoints.assign_in_order(weights, [(each.path, each) for each in held.weights], source)
        return
    found = checkpoints.opened(source)
    with blank():
        paths = [weight.path for weight in kept_encoder(found).weights]
    arrays = found.arrays("encoder")
    checkpoints.assign_in_order(weights, [(path, arrays[path]) for path in paths if path in arrays], source)


def _made(found, config, kind, source=None):
    """What a part of a checkpoint's configuration describes, no larger than its files and those it started from."""
    try:
        sizes = config["config"]
        entries = getattr(class_named(config), "ledger_entries", None)
        whole = sizes if entries is not None else sizes.get("encoder", sizes)
        files = [file for folder in (found.path, source) if folder for file in folder.glob("*")]
        weights = [file for file in files if file.suffix in WEIGHTS and file.is_file()]
        if ledger(whole, entries=entries).total > sum(file.stat().st_size for file in weights):
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
    source = found.path / "encoder.safetensors"
    with blank():
        kept = kept_encoder(found)
    if kept.num_layers != encoder.num_layers:
        raise UserError(f"{source} keeps {kept.num_layers} layers; the encoder of this stage has {encoder.num_layers}")
    if changes_of(kept) != changes_of(encoder):
        raise UserError(f"{source} has adapters or quantized layers that the encoder of this stage has not")
    paths = [weight.path for weight in kept.weights]  # of layers that are kept, as they are called in the file
    del kept
    arrays, pairs = found.arrays("encoder"), zip(encoder.weights, paths, strict=False)
    values = {wanted.path: arrays[path] for wanted, path in pairs if path in arrays}
    checkpoints.assign_arrays(encoder.weights, values, source)


def kept_encoder(found: checkpoints.Checkpoint):
    """The encoder that a checkpoint's model keeps, rebuilt with initial weights."""
    model = found.state.get("model")
    config = model.get("config") if isinstance(model, dict) else None
    config = config if isinstance(config, dict) else {}
    whole = _made(found, config.get("encoder"), Encoder)
    return whole.with_layers(config.get("kept_layers") or whole.num_layers, config.get("keep", "bottom"))


def model_of_run(folder: str | Path) -> tuple[keras.Model, Path | None]:
    """The newest pre-trained model of a run, and the file of its tokenizer if the run has one of its own.

    Args:
        folder: the run's WORKDIR.

    Raises:
        UserError: if it has no checkpoint.
    """
    found = checkpoints.latest(Path(folder) / "checkpoints")
    if found is None:
        raise UserError(f"{folder} has no checkpoints: it is not the folder of a run that pre-trained")
    corpus = Path(folder) / "corpus"
    return restore(found), Corpus(corpus).tokenizer.path if corpus.exists() else None


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


def state_of(model) -> dict:
    """What a checkpoint says of a model: "model", its configuration; "terms", the names of its loss terms.

    And "start", where the weights are that are not in it.
    """
    state = {"model": keras.saving.serialize_keras_object(model), "terms": [term.name for term in model.terms]}
    start = getattr(model, "start", None)
    return state if start is None else state | {"start": dict(start)}
