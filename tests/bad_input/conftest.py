"""Small valid inputs to mutate: a tokenizer, and models in every format."""

import json
import shutil

import pytest

from rembed_keras.data.prepare.corpora import prepare
from rembed_keras.data.tokenizers.sentence_piece import train_tokenizer
from tests.interop.original import write_original

WORDS = ["save", "open", "the", "a", "table", "file", "window", "of", "and", "with", "name", "new", "old", "all", "in"]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """A tokenizer of 60 pieces."""
    lines = [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 7)) for i in range(60)]
    return train_tokenizer(lines, tmp_path_factory.mktemp("tokenizer") / "tokenizer.model", 30)


@pytest.fixture(scope="session", autouse=True)
def _frameworks():
    """Imports the frameworks before the first attempt is timed."""
    import rembed_keras.training  # noqa: F401


@pytest.fixture(scope="session")
def encoder(tokenizer):
    from rembed_keras.modeling import Encoder

    return Encoder(tokenizer.vocabulary_size, 1, 1, 8, 8, 4, max_sequence_length=16)


@pytest.fixture(scope="session")
def models(encoder, tokenizer, tmp_path_factory):
    """A folder with `huggingface`, `preset`, `tf1`, and `run`: checkpoints of pre-training and of a classifier."""
    from rembed_keras.interop import write
    from rembed_keras.modeling import Classifier, Encoder, MaskedLM
    from rembed_keras.training.loop import checkpoints, restoring

    folder = tmp_path_factory.mktemp("models")
    learner = MaskedLM(encoder, 8)
    for kind in ("huggingface", "preset"):
        write(learner, str(folder / kind), kind, tokenizer.path)
    write_original(Encoder(tokenizer.vocabulary_size, 1, 1, 64, 8, 4, max_sequence_length=8), folder / "tf1/model.ckpt")
    for model, place in ((learner, "checkpoints"), (Classifier(encoder, 2), "finetuned/topics/pretrained-lr0.1-seed0")):
        _checkpoint(checkpoints, restoring, model, folder / "run" / place)
    columns = {"text": "text", "pair": "pair", "id": "id", "delimiter": None, "pairs": None}
    about = {"kind": "Classification", "name": "topics", "labels": ["file", "table"], "format": columns}
    about |= {"sequence_length": 12}
    (folder / "run/finetuned/topics/task.json").write_text(json.dumps(about))
    shutil.copyfile(tokenizer.path, folder / "run/finetuned/topics/tokenizer.model")
    text = tmp_path_factory.mktemp("text")
    (text / "en.txt").write_text("save the file\nopen a table\n", encoding="utf-8")
    prepare(text, folder / "run/corpus", tokenizer=tokenizer.path)
    return folder


def _checkpoint(checkpoints, restoring, model, folder):
    import keras

    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    checkpoints.save(folder, 1, parts, {"running": [], "model": keras.saving.serialize_keras_object(model)})


def files_of(folder):
    """The files of a folder: bytes by path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
