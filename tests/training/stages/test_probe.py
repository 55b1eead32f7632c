"""Probes of every layer: rows for each, equal for equal encoders, the encoder as it was, whatever the batches."""

import json
import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from scipy.stats import binom

from rembed_keras.analysis.layers import token_cosines
from rembed_keras.analysis.reports.results import read_run
from rembed_keras.data.corpus import Corpus
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.tasks import Candidates, Classification, ParallelText, Tagging
from rembed_keras.tasks.kinds.examples import Labelled, Splits, Tagged
from rembed_keras.training import probe
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.probing.bitext import BitextProbing
from rembed_keras.training.probing.features import measure_layers

LAYERS, SEED = 2, 5
ENCODER = partial(Encoder, 900, LAYERS, 2, 8, 16, 4, max_sequence_length=32)
SETTINGS = {"encoder": ENCODER, "sequence_length": 16, "seed": SEED}
WORDS = {"file": "file file file file", "table": "table table table table"}
TEXTS = ["save the file now", "open", "the table of all files is in the window", "name", "new and old names"]


def examples(count, shift=0):
    labels = [("file", "table")[i % 2] for i in range(count)]
    return [Labelled(str(i), f"{WORDS[label]} {i + shift}", None, label) for i, label in enumerate(labels)]


def task(name="words", **parts):
    dev, test = {"en": examples(6, 20)}, {"en": examples(8, 40), "de": examples(4, 60)}
    return Classification(name, Splits(examples(20), parts.get("dev", dev), parts.get("test", test)))


@pytest.fixture(scope="module", autouse=True)
def eager():
    """To trace a graph takes longer than all there is to compute."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def run(corpus, tmp_path_factory):
    """The folder of a run whose checkpoint has the weights that its encoder begins with."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "corpus").symlink_to(corpus.path)
    keras.utils.set_random_seed(SEED)
    model = MaskedLM(ENCODER(), 12)
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "checkpoints", 1, parts, state)
    return folder


@pytest.fixture(scope="module")
def probed(run):
    """The same folder after the stage."""
    before = bytes_below(run / "checkpoints")
    workdir = Workdir(run)
    probe(workdir, [task()], **SETTINGS)
    workdir.close()
    assert bytes_below(run / "checkpoints") == before
    return run


@pytest.fixture
def without_figure(monkeypatch):
    """To draw it takes longer than to probe."""
    monkeypatch.setattr(sys.modules[probe.__module__], "draw_layers", lambda *_: None)


def bytes_below(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_layer_has_rows_of_every_system_and_language(probed):
    rows = json.loads((probed / "scores.json").read_text())
    found = [(row["task"], row["system"], row["language"], row["seed"], row["n"]) for row in rows]
    assert sorted(found, key=str) == sorted(
        (
            (f"probe/words/layer{layer}", system, language, seed, n)
            for layer in range(LAYERS + 1)
            for system, seed in {"pretrained": SEED, "untrained": SEED, "tfidf": None, "majority": None}.items()
            for language, n in (("en", 8), ("de", 4))
        ),
        key=str,
    )
    assert all(row["metric"] == "accuracy" for row in rows)
    assert [measure.task for measure in read_run(probed).values] == [f"probe/words/layer{i}" for i in range(LAYERS + 1)]
    assert (probed / "layers.png").read_bytes().startswith(b"\x89PNG")


def test_identical_encoders_differ_by_0(probed):
    rows = json.loads((probed / "scores.json").read_text())
    values = [{**row, "system": ""} for row in rows if row["system"] == "pretrained"]
    assert values == [{**row, "system": ""} for row in rows if row["system"] == "untrained"]
    layers = json.loads((probed / "layers.json").read_text())["words"]
    assert layers["pretrained"] == layers["untrained"]
    assert (layers["language"], layers["n"]) == ("en", 20)
    assert [len(layers["pretrained"][key]) for key in ("token_cosine", "cka_with_next")] == [LAYERS + 1, LAYERS]


def test_a_word_that_gives_the_label_away_is_read_at_the_embeddings(probed):
    rows = json.loads((probed / "scores.json").read_text())
    of = {(row["task"], row["system"], row["language"]): row["value"] for row in rows}
    for language in ("en", "de"):
        assert of["probe/words/layer0", "pretrained", language] == 1
        assert of["probe/words/layer0", "majority", language] == 0.5


@pytest.mark.usefixtures("without_figure")
def test_done_twice_it_gives_the_same_rows_and_leaves_those_of_others(probed):
    path = probed / "scores.json"
    before = path.read_text()
    other = json.loads(before)[:1]
    other[0]["task"] = "probe/words/layer1/layer0"  # of a task words/layer1
    stale = [{**json.loads(before)[0], "task": f"probe/words/layer{LAYERS + 1}"}]  # of a deeper encoder
    path.write_text(json.dumps(other + stale + json.loads(before)))
    layers = (probed / "layers.json").read_text()
    workdir = Workdir(probed)
    probe(workdir, [task(), task("again")], **SETTINGS)
    workdir.close()
    rows = json.loads(path.read_text())
    assert [row for row in rows if row["task"].startswith("probe/words/layer")] == other + json.loads(before)
    again = [row | {"task": row["task"].replace("again", "words")} for row in rows if "again" in row["task"]]
    assert again == json.loads(before)
    assert json.loads((probed / "layers.json").read_text()) == {
        name: json.loads(layers)["words"] for name in ("words", "again")
    }


@pytest.mark.usefixtures("without_figure")
def test_shuffled_labels_give_chance(run):
    """In every layer of an encoder that has the true label in its embeddings."""
    random = np.random.default_rng(2)

    def shuffled(count):
        rows = examples(count)
        labels = random.permutation([row.label for row in rows])
        return [replace(row, label=str(label)) for row, label in zip(rows, labels, strict=True)]

    splits = Splits(shuffled(80), {"en": shuffled(40)}, {"en": shuffled(200), "de": shuffled(200)})
    scores = scores_of(run, Classification("shuffled", splits))
    low, high = binom.interval(0.9999, 200, 0.5)
    assert len(scores) == (LAYERS + 1) * 2 * 4
    assert all(low <= 200 * row["value"] <= high for row in scores)


@pytest.mark.usefixtures("without_figure")
def test_of_several_candidates_the_one_with_the_highest_logit_is_the_answer(run):
    def questions(count):
        rows = [(i, word) for i in range(count) for word in WORDS]
        of = {"file": "true", "table": "false"}
        return [Labelled(f"{i}{word}", f"{WORDS[word]} {i}", f"question {i}", of[word], str(i)) for i, word in rows]

    splits = Splits(questions(20), {"en": questions(4)}, {"en": questions(9)})
    scores = scores_of(run, Candidates("candidates", splits))
    values = {row["value"] for row in scores if row["system"] in ("pretrained", "untrained")}
    assert values == {1.0} and {row["metric"] for row in scores} == {"accuracy"}


def scores_of(run, task):
    """Rows of a task in the run's scores, after it is probed."""
    workdir = Workdir(run)
    probe(workdir, [task], batch_size=200, **SETTINGS)  # a batch takes as long as one of few rows
    workdir.close()
    rows = json.loads((run / "scores.json").read_text())
    return [row for row in rows if row["task"].startswith(f"probe/{task.name}/")]


@pytest.mark.usefixtures("without_figure")
def test_shuffled_tags_give_chance_and_tags_that_words_give_away_are_read(run):
    random = np.random.default_rng(4)

    def tagged(count, is_shuffled):
        words = [tuple(random.choice(["file", "table"], 6)) for _ in range(count)]
        tags = [
            random.choice(["A", "B"], 6) if is_shuffled else ["AB"[word == "file"] for word in each] for each in words
        ]
        return [
            Tagged(str(i), each, tuple(map(str, own))) for i, (each, own) in enumerate(zip(words, tags, strict=True))
        ]

    for is_shuffled in (True, False):
        splits = Splits(tagged(15, is_shuffled), {"en": tagged(8, is_shuffled)}, {"en": tagged(40, is_shuffled)})
        name = "shuffled tags" if is_shuffled else "plain tags"
        rows = scores_of(run, Tagging(name, splits))
        assert {row["system"] for row in rows} == {"pretrained", "untrained", "lexicon", "majority"}
        if is_shuffled:
            low, high = binom.interval(0.9999, 240, 0.5)
            assert all(low <= 240 * row["value"] <= high for row in rows)
        else:
            assert {row["value"] for row in rows if row["system"] != "majority"} == {1.0}


@pytest.mark.usefixtures("without_figure")  # which recipes/options/probes.gin has drawn
def test_retrieval_and_words_by_layer_of_equal_encoders_are_equal_and_found(run, tmp_path):
    (tmp_path / "lines").mkdir()
    for language in ("de", "en", "fr"):  # fr is the same as en, and de in another order
        lines = [*TEXTS, ""] if language != "de" else [*reversed(TEXTS), ""]
        (tmp_path / f"lines/{language}.txt").write_text("\n".join(lines) + "\n")
    workdir = Workdir(run)
    probe(workdir, parallel=[ParallelText(tmp_path / "lines")], words=("en",), finetuned=None, **SETTINGS)
    workdir.close()
    rows = [row for row in json.loads((run / "scores.json").read_text()) if row["task"].startswith("retrieval/lines/")]
    of = {(row["task"][-1], row["system"], row["language"], row["metric"]): row["value"] for row in rows}
    systems = ("pretrained", "untrained", "tfidf", "chance")
    assert len(of) == len(rows) == (LAYERS + 1) * len(systems) * 2 * 2
    assert {row["n"] for row in rows} == {5}
    for (layer, system, language, metric), value in of.items():
        if system == "chance":
            assert value == pytest.approx(0.2)
        elif language == "fr":
            assert value == 1
        assert system != "pretrained" or value == of[layer, "untrained", language, metric]
    words = json.loads((run / "layers.json").read_text())["words of en"]
    assert words["pretrained"] == words["untrained"] and words["n"] > 20
    assert len(words["pretrained"]["layers"]) == LAYERS + 1 and -1 <= words["pretrained"]["table"] <= 1


def test_sentences_are_read_by_an_encoder_without_segments(corpus, tmp_path):
    for language in ("de", "en"):
        (tmp_path / f"{language}.txt").write_text("\n".join(TEXTS) + "\n")
    initial = SimpleNamespace(tokenizer=corpus.tokenizer, num_segments=0)
    rows = BitextProbing(ParallelText(tmp_path), initial, 16, 4, SEED).score("pretrained", ENCODER(num_segments=0))
    assert [row.value for row in rows] == [1.0] * (LAYERS + 1) * 2


@pytest.mark.parametrize("layers", [LAYERS, 1])
def test_an_encoder_after_fine_tuning_is_measured_beside(layers, run, tmp_path, capsys, request):
    """It has no more layers than were fine-tuned."""
    if layers == LAYERS:
        request.getfixturevalue("without_figure")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("corpus", "checkpoints"):
        (folder / name).symlink_to(run / name)
    keras.utils.set_random_seed(SEED)
    model = task().make_model(ENCODER().with_layers(layers), 0.0)
    for variable in model.encoder.trainable_variables:
        variable.assign(variable + 0.1 * keras.random.normal(variable.shape, seed=3))
    parts = {name: checkpoints.read_arrays(owned) for name, owned in restoring.parts_of(model).items()}
    state = {"running": [], "model": keras.saving.serialize_keras_object(model)}
    checkpoints.save(folder / "finetuned/words/pretrained-lr0.001-seed0", 1, parts, state)
    workdir = Workdir(folder)
    probe(workdir, [task("others")], finetuned="words", **SETTINGS)
    workdir.close()
    known = json.loads((folder / "layers.json").read_text())["others"]
    assert known["pretrained"] == known["untrained"] != known["finetuned"]
    inputs = task().encode(task().splits.train, Corpus(run / "corpus").tokenizer, 16, 2).inputs
    (cosines,) = measure_layers(model.encoder, inputs, 32, token_cosines)
    np.testing.assert_allclose(known["finetuned"]["token_cosine"], cosines.mean(axis=1), atol=1e-5)
    scores = json.loads((folder / "scores.json").read_text())
    assert {row["system"] for row in scores} == {"pretrained", "untrained", "finetuned", "tfidf", "majority"}
    tasks = {row["task"] for row in scores if row["system"] == "finetuned"}
    assert tasks == {f"probe/others/layer{layer}" for layer in range(layers + 1)}
    assert ("- / -" in capsys.readouterr().out) is (layers < LAYERS)


@pytest.mark.usefixtures("without_figure")
def test_weights_that_are_pretrained_give_other_rows_than_untrained_ones(run):
    workdir = Workdir(run)
    probe(workdir, [task("moved")], **SETTINGS | {"seed": SEED + 1})
    workdir.close()
    layers = json.loads((run / "layers.json").read_text())["moved"]
    assert layers["pretrained"]["token_cosine"] != layers["untrained"]["token_cosine"]


@pytest.mark.parametrize(
    ("tasks", "settings", "message"),
    [
        ([task(), task()], {}, "two tasks words to probe"),
        ([], {}, "nothing to probe"),
        ([task()], {"words": ("xx",)}, "no language 'xx'"),
        ([task()], {"finetuned": "words"}, "finetuned/words"),
        ([task(dev={})], {}, "task words: .*no validation examples"),
        ([task()], {"inverse_strengths": (0.0, 1.0)}, "task words: .*above 0"),
        ([Classification("few", Splits(examples(3), {}, {"en": examples(2)}))], {}, "3 training examples; .* needs 4"),
        ([task()], {"encoder": ENCODER}, "no pre-trained encoder"),
    ],
)
def test_what_cannot_be_probed_is_refused_and_nothing_is_written(tasks, settings, message, corpus, tmp_path):
    workdir = Workdir(tmp_path)
    (tmp_path / "corpus").symlink_to(corpus.path)
    with pytest.raises(UserError, match=message):
        probe(workdir, tasks, **SETTINGS | settings)
    workdir.close()
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", ".lock"}
