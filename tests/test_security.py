"""Untrusted input runs no code: models, checkpoints, recipes, archives, names."""

import ast
import base64
import json
import marshal
import pickle
import re
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest

from rembed_keras import config
from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.interop import read_model, write, write_served_task
from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.tasks import Classification
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.training.loop import checkpoints, restoring

ROOT = Path(__file__).parent.parent


def encoder():
    return Encoder(30, 1, 1, 8, 8, 4, max_sequence_length=8)


def payload(path):
    """Code that creates a file when it runs, in Keras's format of functions."""
    code = compile(f"lambda *_: open({str(path)!r}, 'w')", "x", "eval").co_consts[0]
    return base64.b64encode(marshal.dumps(code)).decode("ascii")


def harmful(path):
    """Configurations that would do harm if they were deserialized, by kind."""
    function = {"class_name": "__lambda__", "config": {"value": [payload(path), None, None]}}
    layer = {"name": "x", "function": function, "arguments": {}}
    python = {"function": {"code": payload(path), "defaults": None, "closure": None}}
    return {
        "a lambda": function,
        "a layer of a lambda": _class("keras.layers", "Lambda", layer),
        "a layer of a lambda, as old files have it": _class("keras.layers", "Lambda", {"name": "x"} | python),
        "a layer that loads a program": _class("keras.layers", "TFSMLayer", {"filepath": str(path.parent)}),
        "a layer of a pickle": _class("keras.layers", "TorchModuleWrapper", {"module": "x"}),
        "a function of the system": {"class_name": "function", "config": "system", "module": "os"},
        "a function of Python": {"class_name": "function", "config": "eval", "module": "builtins"},
        "a function of Keras's": {"class_name": "function", "config": "get_file", "module": "keras.utils"},
        "a class of Python": _class("subprocess", "Popen", {"args": ["touch", str(path)]}),
        "a module to import": _class("keras.src.utils.io_utils", "path_to_string", {}),
        "a model of layers": _class("keras", "Sequential", {"layers": [_class("keras.layers", "Lambda", layer)]}),
        "a name of ours that is none": _class("os", "system", {}, "rembed_keras>system"),
        "a name of ours over a lambda": function | {"registered_name": "rembed_keras>Encoder"},
        "another's class": _class("keras_hub", "BertBackbone", {}, "keras_hub>BertBackbone"),
        "a specification of a type": {
            "class_name": "__typespec__",
            "module": "os",
            "spec_name": "system",
            "config": [],
        },
    }


def _class(module, name, config, registered=None):
    return {"module": module, "class_name": name, "config": config, "registered_name": registered}


KINDS = [*harmful(Path("x"))]
PLACES = {
    "the model": lambda state, harm: state.update(model=harm),
    "its encoder": lambda state, harm: state["model"]["config"].update(encoder=harm),
    "a dtype": lambda state, harm: state["model"]["config"]["encoder"]["config"].update(dtype=harm),
    "a dtype of some layers": lambda state, harm: state["model"]["config"]["encoder"]["config"].update(
        dtype=_class("keras.dtype_policies", "DTypePolicyMap", {"default_policy": None, "policy_map": {"x": harm}})
    ),
    "the dtype of all others": lambda state, harm: state["model"]["config"]["encoder"]["config"].update(
        dtype=_class("keras.dtype_policies", "DTypePolicyMap", {"default_policy": harm, "policy_map": {}})
    ),
    "an activation": lambda state, harm: state["model"]["config"]["encoder"]["config"].update(activation=harm),
    "a fine-tuning method": lambda state, harm: state["model"]["config"].update(methods=[harm]),
    "one as version 0.1 called it": lambda state, harm: [
        state["model"]["config"].pop("methods"),
        state["model"]["config"].update(ways=[harm]),
    ],
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint of a classifier, and a preset of an encoder."""
    folder = tmp_path_factory.mktemp("saved")
    model = Classifier(encoder(), 2)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "checkpoints", 1, parts, state)
    encoder().save_to_preset(str(folder / "preset"))
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_makes_classes_of_ours_and_nothing_else(kind, saved, tmp_path):
    trace = tmp_path / "trace"
    restoring.restore(
        checkpoints.latest(saved / "checkpoints")
    )  # an unchanged one, for which rooms of ours are imported
    for place, put in PLACES.items():
        found = checkpoints.latest(saved / "checkpoints")
        put(found.state, harmful(trace)[kind])
        imported = set(sys.modules)
        with pytest.raises(UserError) as caught:
            restoring.restore(found)
        assert "\n" not in str(caught.value) and str(found.path) in str(caught.value), place
        assert not trace.exists() and set(sys.modules) == imported, place


@pytest.mark.parametrize("kind", KINDS)
def test_a_preset_makes_classes_of_ours_and_nothing_else(kind, saved, tmp_path):
    preset, trace = tmp_path / "preset", tmp_path / "trace"
    preset.mkdir()
    config = json.loads((saved / "preset/config.json").read_text())
    for change in (harmful(trace)[kind], config | {"config": config["config"] | {"dtype": harmful(trace)[kind]}}):
        (preset / "config.json").write_text(json.dumps({"registered_name": None} | change))
        with pytest.raises(UserError):
            read_model(str(preset))
        assert not trace.exists()


class Trap:
    """An object that runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_a_corpus_with_a_pickle_in_it_runs_nothing(corpus, tmp_path):
    for file in corpus.path.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "counts.npy").unlink()
    np.save(tmp_path / "counts.npy", np.array([Trap(tmp_path / "trace")], object), allow_pickle=True)
    with pytest.raises(UserError, match=r"counts\.npy"):
        Corpus(tmp_path).unigram_counts("en")
    assert not (tmp_path / "trace").exists()


def test_a_pickle_of_weights_runs_nothing(peers, tmp_path):
    sizes = {"vocab_size": 9, "num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 4, "type_vocab_size": 2}
    sizes |= {"intermediate_size": 4, "max_position_embeddings": 4, "model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "trace")))
    with pytest.raises(UserError, match="cannot be read with weights_only=True"):
        read_model(str(tmp_path))
    assert not (tmp_path / "trace").exists()


RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import training
{imports}
training.run.workdir = "run"
training.run.stages = [{stage}]
"""
TRICKS = {
    "import os": "@os.system",
    "import os.path as training": "@training.join",
    "from os import system": "@system",
    "import keras.os": "@keras.os.system",
    "import keras": "@keras.src.utils.file_utils.shutil.rmtree",
    "import keras as k": "@k.utils.get_file",
    "from keras import saving": "@saving.load_model",
    "from keras import config": "@config.enable_unsafe_deserialization()",
    "from keras import layers": "@layers.Lambda",
    "from keras.src import backend": "@backend.common.global_state.sys.exit",
    "import keras_hub": "@keras_hub.src.utils.preset_utils.os.remove",
    "from keras_hub import models": "@models.Backbone.from_preset",
    "from rembed_keras import config": "@config.os.system",
    "from rembed_keras.cli import runs": "@runs.shutil.rmtree",
    "import rembed_keras": "@rembed_keras.training.workdir.shutil.rmtree",
    "from rembed_keras.training import workdir": "@workdir.os.remove",
    "import builtins": "@builtins.eval",
    "import __main__": "@__main__.x",
    "from __gin__ import x": "@x.y",
    "import gin": "@gin.singleton",
    "": "@eval",
    "# ": "@gin.macro",
}


@pytest.mark.parametrize("imports", TRICKS)
def test_a_recipe_names_nothing_that_it_has_no_use_for(imports, tmp_path):
    recipe = tmp_path / "recipe.gin"
    recipe.write_text(RECIPE.format(imports=imports, stage=TRICKS[imports]))
    load, imported = config.load, set(sys.modules)  # the first imports gin
    with pytest.raises(UserError, match=r"may not|not imported|there is no|in another file"):
        load(str(recipe))
    assert not {name for name in set(sys.modules) - imported if name.split(".")[0] != "rembed_keras"}


def test_what_a_user_trusts_may_be_named(tmp_path):
    recipe = tmp_path / "recipe.gin"
    recipe.write_text(
        RECIPE.format(imports="import keras\nimport shutil", stage="@keras.utils.get_file, @shutil.rmtree")
    )
    with pytest.raises(UserError, match=r"recipe\.gin:4: a recipe may not import shutil"):
        config.load(str(recipe))
    with pytest.raises(UserError, match=r"recipe\.gin:6: a recipe may not name keras\.utils\.get_file"):
        config.load(str(recipe), allow_import=["shutil"])
    assert config.load(str(recipe), allow_import=["shutil", "keras"]).imports["shutil"] == "shutil"


UNSAFE = re.compile(
    r"pickle\.|marshal|yaml|joblib\.load|allow_pickle=True|weights_only=False|safe_mode=False|enable_unsafe|extract\(|extractall"
    r"|unpack_archive|shell=True|os\.system|^eval\(|^exec\("
)
ALWAYS = {"np.load": "allow_pickle=False", "torch.load": "weights_only=True"}


@pytest.mark.parametrize("folder", ["rembed_keras", "benchmarks"])
def test_nothing_unsafe_is_called(folder):
    """Archives are read member by member and never extracted."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom | ast.Call):
                code = ast.unparse(node)
                assert not UNSAFE.search(code), f"{path}: {code}"
            if isinstance(node, ast.Call):
                assert ALWAYS.get(ast.unparse(node.func), "") in ast.unparse(node), path


NAMES = ["../out", "a/../../out", "/out", "..", "."]


@pytest.mark.parametrize("name", NAMES)
def test_names_that_data_brings_stay_in_their_folder(name, tmp_path, corpus, saved):
    """Names of files in a manifest and a checkpoint, of a task, and of languages."""
    manifest = json.loads((corpus.path / "manifest.json").read_text())
    manifest["languages"]["en"]["file"] = name
    manifest["files"][name] = "0"
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UserError, match="is damaged"):
        Corpus(tmp_path)
    examples = [Labelled(str(i), "text", label="ab"[i % 2]) for i in range(4)]
    with pytest.raises(UserError, match="is not a valid name of a task"):
        Classification(name, Splits(examples, {}, {"en": examples}))
    with pytest.raises(UserError, match="is not a valid language"):
        Classification("topics", Splits(examples, {}, {name: examples}))


def test_a_checkpoint_reads_its_own_files_alone(saved, tmp_path):
    folder = tmp_path / "checkpoints/step-00000001"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps({"step": 1, "state": {}, "sha256": {"/dev/zero": "0"}}))
    said = []
    with pytest.raises(UserError, match="has no checkpoint that is whole"):
        checkpoints.latest(folder.parent, said.append)
    assert "is passed over" in said[0]


SERVED = """
import sys
without = ("rembed_keras", "keras_hub", "jax", "sklearn", "scipy", "matplotlib")
sys.modules |= dict.fromkeys(without)  # importing them fails, or is left out: TensorFlow would take what is there
import json
import tensorflow as tf
import tensorflow_text
models = [tf.saved_model.load(path) for path in sys.argv[1:]]
answers = [model.signatures["serving_default"](texts=tf.constant(["a text"])) for model in models]
print(json.dumps([sorted(answer) for answer in answers]))
"""


@pytest.mark.slow
def test_a_saved_model_runs_without_this_package(corpus, tmp_path):
    pytest.importorskip("tensorflow_text", reason="forms of TensorFlow's")
    if keras.config.backend() != "tensorflow":
        pytest.skip("forms of TensorFlow's")
    kept = Encoder(900, 1, 1, 8, 8, 4, max_sequence_length=8)
    write(kept, str(tmp_path / "encoder"), "savedmodel", corpus.tokenizer.path)
    write_served_task(Classifier(kept, 2), tmp_path / "task", corpus.tokenizer, 8, ["a", "b"])
    command = [sys.executable, "-c", SERVED, str(tmp_path / "encoder"), str(tmp_path / "task")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    encoder_outputs, task_outputs = json.loads(done.stdout.splitlines()[-1])
    assert "sentence_vectors" in encoder_outputs and task_outputs == ["labels", "probabilities"]
