"""SentencePiece models as protocol buffers: read, renumbered and written."""

from pathlib import Path
from typing import Any

from rembed_keras.data.json_files import read_json
from rembed_keras.errors import UserError, shortened

FAIRSEQ_PIECES = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq's special pieces, before those of the model


def message_class() -> Any:
    """The class of SentencePiece's models as protocol buffers.

    SentencePiece 0.2.3 was made with protobuf 7, and says that it wants no older one. What it uses is older: a
    descriptor and the builder of classes, which protobuf 5.29 has too.
    """
    from google.protobuf import runtime_version

    try:
        from sentencepiece import sentencepiece_model_pb2
    except runtime_version.VersionError:
        check = runtime_version.ValidateProtobufRuntimeVersion
        runtime_version.ValidateProtobufRuntimeVersion = lambda *versions: None
        try:
            from sentencepiece import sentencepiece_model_pb2
        finally:
            runtime_version.ValidateProtobufRuntimeVersion = check
    return sentencepiece_model_pb2.ModelProto


def read_model(path: Path) -> Any:
    """A SentencePiece model as a protocol buffer.

    Raises:
        UserError: if the file is not one.
    """
    from google.protobuf.message import DecodeError

    model = message_class()()
    try:
        model.ParseFromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        raise UserError(f"tokenizer {path} cannot be read: {error}") from None
    return model


def from_fairseq(path: Path, target: Path) -> None:
    """Rewrites a model as XLM-R numbers its pieces: four special ones, then the model's own from its fourth, [MASK].

    Args:
        path: the model, `sentencepiece.bpe.model`, which begins with <unk>, <s> and </s>.
        target: where to write it.

    Raises:
        UserError: if it is not such a model.
    """
    model = read_model(path)
    if [piece.piece for piece in model.pieces[:3]] != ["<unk>", "<s>", "</s>"]:
        raise UserError(f"tokenizer {path} does not begin with <unk>, <s> and </s>, as XLM-R's does")
    kinds = message_class().SentencePiece
    first = [
        kinds(piece=name, score=0.0, type=kinds.UNKNOWN if name == "<unk>" else kinds.CONTROL)
        for name in FAIRSEQ_PIECES
    ]
    mask = kinds(piece="<mask>", score=0.0, type=kinds.USER_DEFINED)
    write_model(model, [*first, *model.pieces[3:], mask], target)


def from_deberta(path: Path, target: Path) -> None:
    """Rewrites a model as DeBERTa's versions 2 and 3 number its pieces: its own, then [MASK].

    Args:
        path: the model, `spm.model`, which has [PAD], [CLS], [SEP] and [UNK]; `added_tokens.json` may be beside it.
        target: where to write it.

    Raises:
        UserError: if it is not such a model.
    """
    model = read_model(path)
    if "[MASK]" in [piece.piece for piece in model.pieces]:
        write_model(model, [*model.pieces], target)
        return
    beside = path.with_name("added_tokens.json")
    added = read_json(beside) if beside.exists() else {}
    last = len(model.pieces)
    if added not in ({}, {"[MASK]": last}):
        raise UserError(
            f"{beside} has {shortened(added)}; after the {last} pieces of {path.name} [MASK] alone can come"
        )
    kinds = message_class().SentencePiece
    write_model(model, [*model.pieces, kinds(piece="[MASK]", score=0.0, type=kinds.USER_DEFINED)], target)


def write_model(model: Any, pieces: list, path: Path) -> None:
    """Writes a model with other pieces, and updates the ids of special pieces in its specification.

    Args:
        model: a protocol buffer, as `read_model` gives it; it is changed.
        pieces: the new pieces, in the order of their ids; may be some of its own.
        path: where to write it.
    """
    kept = message_class()(pieces=pieces).pieces  # copies, which outlive the originals
    del model.pieces[:]
    model.pieces.extend(kept)
    ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    spec = model.trainer_spec
    spec.vocab_size = len(model.pieces)
    for role in ("unk", "bos", "eos", "pad"):
        setattr(spec, f"{role}_id", ids.get(getattr(spec, f"{role}_piece"), -1))
    path.write_bytes(model.SerializeToString())
