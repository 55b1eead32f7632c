"""Healing by both recipes: from a reallocated model with a WordPiece vocabulary, killed and resumed to the bit."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file

from rembed_keras import config
from rembed_keras.data.corpus import Corpus
from rembed_keras.data.pipeline.mixture import Mixture
from rembed_keras.interop import Plan, read_model, reallocate, write
from rembed_keras.training.initial.places import find
from rembed_keras.training.loop.workdir import MEASURED
from tests.interop.huggingface.test_tokenizers import FAIRSEQ, trained
from tests.interop.models import random_model
from tests.modeling.forward import EAGER
from tests.recipes.test_recipes import KNOBS

ROOT = Path(__file__).parents[3]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "save", "open", "the", "table", "##s", "file", "."]
BERT = {"vocabulary_size": len(PIECES), "input_embedding_dim": 16, "always_project": False}
SMALL = {
    "INITIAL": "small",
    "TEXT_DIR": "text",
    "WORKDIR": "run",
    "STEPS": 2,
    "BATCH_SIZE": 4,
    "SEQUENCE_LENGTH": 12,
    "CHECKPOINT_EVERY": 1,
    "LOG_EVERY": 1,
    "WARMUP_STEPS": 1,
    "training.pretrain.jit_compile": False,
    "training.pretrain.keep_checkpoints": 3,
}
MASKED_LM = {"OUTPUT_EMBEDDING_DIM": 16}
DISTILLED = {"TEACHER": "bert", "LOGITS": 0.5, "OUTPUT_EMBEDDING_DIM": 16}
RECIPES = {"heal_mlm": MASKED_LM, "heal_distill": DISTILLED}

pytestmark = pytest.mark.usefixtures("without_graphs")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """`bert`, a Hugging Face folder with a head and a WordPiece vocabulary; `small` and `same`, made of it; `text`.

    `other` has another vocabulary, `short` fewer positions and `wide` wider blocks.
    """
    folder = tmp_path_factory.mktemp("healing")
    model = random_model(BERT, {"output_embedding_dim": 16, "coupling": "coupled"})
    tokenizers.BertWordPieceTokenizer(vocab={piece: i for i, piece in enumerate(PIECES)}).save(str(folder / "t.json"))
    write(model, str(folder / "bert"), "huggingface", folder / "t.json")
    model, tokenizer = read_model(str(folder / "bert"))
    for name, width in (("small", 5), ("same", 16)):
        reallocate(model, str(folder / name), Plan(input_embedding_dim=width), tokenizer)
    write(random_model(BERT | {"max_sequence_length": 8}).encoder, str(folder / "short"), "preset", folder / "t.json")
    wide = random_model(BERT | {"input_embedding_dim": 24, "hidden_dim": 24})
    write(wide.encoder, str(folder / "wide"), "preset", folder / "t.json")
    others = {piece: i for i, piece in enumerate(PIECES[:5] + PIECES[:4:-1])}
    tokenizers.BertWordPieceTokenizer(vocab=others).save(str(folder / "o.json"))
    write(model, str(folder / "other"), "preset", folder / "o.json")
    (folder / "text").mkdir()
    lines = [f"{'save' if i % 3 else 'open'} the {'table' if i % 2 else 'file'}s ." for i in range(40)]
    (folder / "text/en.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def place(models, tmp_path, monkeypatch):
    for name in ("bert", "small", "same", "other", "short", "wide", "text"):
        (tmp_path / name).symlink_to(models / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load(name, **knobs):
    bound = SMALL | RECIPES[name] | knobs
    return config.load(str(ROOT / f"recipes/reallocate/{name}.gin"), [f"{key}={value}" for key, value in bound.items()])


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipes_have_the_public_knobs_and_say_how_they_are_run(name):
    recipe = ROOT / f"recipes/reallocate/{name}.gin"
    knobs = config.load(str(recipe)).knobs()
    assert {*knobs} >= KNOBS | {"INITIAL", "TEXT_DIR"} and all(knob["about"] for knob in knobs.values())
    assert f"#   rembed run recipes/reallocate/{name}.gin INITIAL=" in recipe.read_text()


def rows(folder):
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in MEASURED} for row in found]


def files_of(folder):
    return {file.name: file.read_bytes() for file in (folder / "checkpoints/step-00000002").iterdir()}


def test_a_healing_that_was_killed_ends_in_the_same_bits_without_what_it_started_from(place, capsys):
    recipe = load("heal_distill")
    counted = config.ledger_of(recipe)
    config.run(recipe)
    assert "its pre-training head too" in capsys.readouterr().out
    assert counted.total == size_of_run(2)
    shutil.copytree("run", "whole")
    shutil.rmtree("run/checkpoints/step-00000002")
    Path("run/finished.json").unlink()
    Path("small").unlink()
    config.run(load("heal_distill"))
    assert files_of(Path("run")) == files_of(Path("whole")) and rows(Path("run")) == rows(Path("whole"))
    place_of_run = find(Path("run"))
    assert place_of_run.tokenizer.path.name == "tokenizer.json"


def size_of_run(step):
    parts = (load_file(f"run/checkpoints/step-{step:08d}/{part}.safetensors") for part in ("encoder", "head"))
    return sum(np.size(array) for part in parts for array in part.values())


@pytest.mark.parametrize("initial", ["small", "bert"])
def test_the_first_loss_is_that_of_the_model_as_it_was(initial, place, capsys):
    """Of a reallocated model, and of one that transformers wrote, which is trained on: with its head, to the bit."""
    coupling = "coupled" if initial == "bert" else "decoupled"
    recipe = load("heal_mlm", INITIAL=initial, COUPLING=coupling, STEPS=1)
    counted = config.ledger_of(recipe)
    config.run(recipe)
    assert "its pre-training head too" in capsys.readouterr().out and counted.total == size_of_run(1)
    model, _ = read_model(str(place / initial))
    model.compile(optimizer="sgd", **EAGER)
    batch = Mixture(Corpus(place / "run/corpus"), 4, 12)[0]
    wanted = model.test_on_batch(*batch, return_dict=True)["loss"]
    assert rows(place / "run")[0]["loss"] == pytest.approx(float(wanted), rel=1e-6)


def test_the_first_distance_from_the_teacher_is_none_at_full_rank(place):
    config.run(load("heal_distill", INITIAL="same", STEPS=1))
    first = rows(place / "run")[0]
    assert all(first[part] < 1e-5 for part in ("hidden_states", "relations", "logits", "loss"))


def test_a_term_may_ask_the_teacher_that_the_objective_asks_for_its_head(place):
    """The term's is opened first, and both are one."""
    term = "rembed_keras.adaptation.terms.MiniLM"
    terms = {"training.pretrain.terms": f"[@{term}()]", f"{term}.teacher": "@teachers.Teacher()"}
    config.run(load("heal_distill", INITIAL="same", STEPS=1, **terms, RELATIONS=0))
    first = rows(place / "run")[0]
    assert all(first[part] < 1e-5 for part in ("hidden_states", "mini_lm", "logits", "loss"))


def test_a_run_from_xlmr_reads_text_by_the_numbers_that_it_gives_pieces(place):
    path = trained(place / "sentencepiece.bpe.model", FAIRSEQ)
    encoder = random_model({"input_embedding_dim": 16, "always_project": False, "num_segments": 1}).encoder
    write(encoder, "xlmr", "huggingface", None, "xlm-roberta")
    path.rename(place / "xlmr" / path.name)
    named = {"training.prepare.tokenizer": "xlmr/sentencepiece.bpe.model"}  # as messages advise
    for workdir, knobs in (("run", {}), ("named", named)):
        config.run(load("heal_mlm", INITIAL="xlmr", STEPS=1, WORKDIR=workdir, **knobs))
    Path("named/finished.json").unlink()
    shutil.rmtree("named/checkpoints")
    config.run(load("heal_mlm", INITIAL="xlmr", STEPS=1, WORKDIR="named", **named))
    corpus = Corpus("run/corpus")
    assert corpus.sha256 == Corpus("named/corpus").sha256
    find(Path("xlmr")).check_tokenizer(corpus.tokenizer)
    assert [corpus.tokenizer.piece(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]


MISTAKES = {
    "no such model": ({"INITIAL": "smal"}, "takes its encoder from smal, which is not a folder of a model"),
    "no model": ({"INITIAL": "None"}, "has no encoder and no initial weights to take one from: set INITIAL"),
    "no such teacher": ({"TEACHER": "brt"}, "the teacher brt of training.pretrain is not a folder of a model"),
    "a teacher of other pieces": ({"TEACHER": "other"}, "the teacher other of training.pretrain was trained with"),
    "a teacher of another width": ({"TEACHER": "wide"}, "is of width 24 and the maps lead to 16: set teacher_dim"),
    "a teacher of shorter rows": ({"TEACHER": "short"}, "a teacher: sequence_length is 12; the model's max_sequence_"),
    "long rows": ({"SEQUENCE_LENGTH": 64}, "sequence_length is 64; the model's max_sequence_length is 20"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_mistakes_cost_one_line_and_nothing_is_written(what, place, command):
    knobs, message = MISTAKES[what]
    bound = SMALL | DISTILLED | knobs
    before = sorted(place.rglob("*"))
    recipe = ROOT / "recipes/reallocate/heal_distill.gin"
    code, _, err = command("run", recipe, *[f"{key}={value}" for key, value in bound.items()], cwd=place)
    lines = [line for line in err.splitlines() if line.startswith("rembed: ")]
    assert code == 2 and len(lines) == 1 and message in lines[0], err
    assert sorted(place.rglob("*")) == before
