"""Models, runs and vocabularies with faults: read, or refused, and nothing half-written."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rembed_keras.data.json_files import SEAL
from tests.bad_input.attempts import attempt, attempts
from tests.bad_input.conftest import files_of
from tests.bad_input.mutations import mutated, mutated_json


@pytest.fixture(scope="session")
def files(models):
    return files_of(models)


def whole(folder):
    assert (folder / "config.json").stat().st_size and (folder / "tokenizer.model").stat().st_size


def convert(files, kind, target="preset", *options):
    source = next(iter(files)).split("/")[0]
    arguments = ["convert", source, "out", "--from", kind, "--to", target, *options]
    return attempt(arguments, files, whole=whole if target == "preset" else None)


def of(files, folder):
    return {name: content for name, content in files.items() if name.startswith(f"{folder}/")}


TOKENIZER = ["--tokenizer", "preset/tokenizer.model"]


def with_a_tokenizer(files):
    """The checkpoint of TensorFlow 1, and the tokenizer that it lacks."""
    return of(files, "tf1") | {name: files[name] for name in TOKENIZER[1:]}


def spoilt(data, files, names):
    """The files, one of them with faults in it."""
    name = data.draw(st.sampled_from([name for name in sorted(files) if name.endswith(names)]))
    content = files[name]
    if name.endswith(".json"):
        unsealed = {key: value for key, value in json.loads(content).items() if key != SEAL}  # faults are to be met
        return files | {name: data.draw(mutated_json(unsealed))}
    return files | {name: data.draw(mutated(content))}


def test_the_models_without_faults(files):
    assert convert(of(files, "huggingface"), "huggingface")[0] == 0
    assert convert(of(files, "preset"), "preset", "huggingface")[0] == 0
    assert convert(of(files, "run"), "run")[0] == 0
    assert convert(with_a_tokenizer(files), "tf1", "preset", *TOKENIZER)[0] == 0


@attempts(50)
@given(data=st.data())
def test_hugging_face_folders(files, data):
    convert(
        spoilt(data, of(files, "huggingface"), ("config.json", "config.json", "model.safetensors", ".model")),
        "huggingface",
    )


@attempts(40)
@given(data=st.data())
def test_presets(files, data):
    convert(spoilt(data, of(files, "preset"), ("config.json", "task.json", ".h5", ".model")), "preset")


@attempts(40)
@given(data=st.data())
def test_checkpoints_of_tensorflow_1(files, data):
    convert(spoilt(data, with_a_tokenizer(files), (".index", ".data-00000-of-00001")), "tf1", "preset", *TOKENIZER)


@attempts(30)
@given(data=st.data())
def test_runs(files, data):
    convert(spoilt(data, of(files, "run"), ("checkpoints/step-00000001/state.json", "encoder.safetensors")), "run")


PIECES = "\u2581newpiece\nold\n".encode()


@attempts(25)
@given(pieces=mutated(PIECES), data=st.data())
def test_pieces_to_add(files, pieces, data):
    there = of(files, "preset")
    if data.draw(st.booleans()):
        there, pieces = spoilt(data, there, (".model",)), PIECES
    attempt(["extend", "preset", "out", "--pieces", "pieces.txt"], there | {"pieces.txt": pieces}, whole=whole)


@attempts(25)
@given(
    text=mutated(b"save the file\nopen it\n"), languages=st.sampled_from([None, "en", "xx", "", ",", "en,en", "en,xx"])
)
def test_text_to_trim_to(files, text, languages):
    options = [] if languages is None else ["--languages", languages]
    attempt(
        ["trim", "preset", "out", "--text", "text", *options], of(files, "preset") | {"text/en.txt": text}, whole=whole
    )


FORMATS = {
    "tsv": b"text\tpair\nsave it\tfile\nopen it\ttable\n",
    "jsonl": b'{"text": "save it"}\n{"text": "a", "pair": "b"}\n',
}
FORMATS["csv"] = FORMATS["tsv"].replace(b"\t", b",")


@attempts(12)
@given(data=st.data())
def test_files_for_prediction_and_models_of_tasks(files, data):
    ending = data.draw(st.sampled_from(sorted(FORMATS)))
    there, content = of(files, "run"), FORMATS[ending]
    if data.draw(st.booleans()):
        content = data.draw(mutated(content))
    else:
        there = spoilt(data, there, ("topics/task.json", "seed0/step-00000001/state.json", "topics/tokenizer.model"))
    attempt(["predict", "run", f"x.{ending}", "--out", "out"], there | {f"x.{ending}": content})
