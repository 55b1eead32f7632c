"""Models made again from checkpoints: whole, or the encoder that is kept.

What a checkpoint says of its model may be anybody's, so no model is made that is larger than the files beside it.
"""

from pathlib import Path

import keras

from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.saving.changes import changes_of
from rembed_keras.modeling.saving.configuration import class_of, made
from rembed_keras.modeling.saving.filling import blank
from rembed_keras.training.loop import checkpoints


def load_parts(model, found: checkpoints.Checkpoint) -> None:
    """Gives a model the encoder and the head of a checkpoint.

    Raises:
        UserError: if it is a checkpoint of another model.
    """
    for part, owned in parts_of(model).items():
        arrays, source = found.arrays(part), found.path / f"{part}.safetensors"
        unknown = sorted(arrays.keys() - {variable.path for variable in owned})
        if unknown:
            raise UserError(f"{source} has {unknown[0]}, which the model has not: it is of another model")
        checkpoints.assign_arrays(owned, arrays, source)


def restore(found: checkpoints.Checkpoint) -> keras.Model:
    """The model of a checkpoint, made anew from its configuration.

    Raises:
        UserError: if its files are not of that model.
    """
    with blank():
        model = _made(found, found.state.get("model"), keras.Model)
    load_parts(model, found)
    return model


def _made(found, config, kind):
    """What a part of a checkpoint's configuration describes, no larger than the files beside it."""
    try:
        sizes = config["config"]
        whole = sizes if "output_embedding_dim" in sizes else sizes.get("encoder", sizes)
        entries = getattr(class_of(config.get("class_name")), "ledger_entries", None)
        if ledger(whole, entries=entries).total > sum(file.stat().st_size for file in found.path.glob("*.safetensors")):
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
    """The encoder that a checkpoint's model keeps, made anew with initial weights."""
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


def parts_of(model) -> dict[str, list]:
    """A model's weights by the file that they are saved in: its encoder's are kept, the others are a head's."""
    kept = {id(weight) for weight in model.encoder.weights}
    head = [weight for weight in model.weights if id(weight) not in kept]
    return {"encoder": model.encoder.weights, "head": head}
