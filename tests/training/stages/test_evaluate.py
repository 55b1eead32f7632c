"""Every part of a task is answered for itself, whatever it is called."""

import json
import shutil
from functools import partial
from types import SimpleNamespace

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import Biases
from rembed_keras.analysis.reports.results import Measure, read_run
from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.tasks import Candidates, Classification, QuestionAnswering, Regression, metrics
from rembed_keras.tasks.kinds.encoding import predict
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits
from rembed_keras.tasks.retrieval.bitext import Bitext, BitextSplits
from rembed_keras.tasks.scores import read_scores
from rembed_keras.training import (
    Answerer,
    InitialWeights,
    evaluate,
    finetune,
    mine,
    prepare,
    probe,
    retrieve,
    submit,
)
from rembed_keras.training.initial.encoder_start import check_length
from rembed_keras.training.stages import evaluate as evaluation
from rembed_keras.training.stages import submit as submission
from rembed_keras.training.stages.evaluate import rate_to_score
from rembed_keras.training.stages.retrieve import trace_retrieval
from rembed_keras.training.stages.run import RunRecord, run

pytestmark = pytest.mark.usefixtures("without_graphs")


def examples(words):
    return [Labelled(str(i), word, None, ("yes", "no")[i % 2]) for i, word in enumerate(words.split())]


PARTS = {"en": "save open the table", "dev": "window file", "test": "all in and", "test-dev": "of with the new name"}


SETTINGS = {"encoder": partial(Encoder, 900, 1, 2, 8, 16, 4, max_sequence_length=32), "sequence_length": 12}
MODELS = {"starts": ("scratch",), "seeds": (0,), "jit_compile": False}


def optimizer(learning_rate):
    return keras.optimizers.SGD(learning_rate, momentum=0.9)


def test_a_part_called_dev_is_not_answered_as_the_development_data(corpus, workdir):
    parts = {name: examples(words) for name, words in PARTS.items()}
    task = Classification("parts", Splits(examples("save open"), {"en": examples("name new old")}, parts))
    rates = MODELS | {"learning_rates": (0.1, 0.01)}
    finetune(workdir, optimizer, task, **SETTINGS, **rates)
    evaluate(workdir, task, **SETTINGS, **rates)
    answered = {}
    submit(workdir, task, lambda *of: answered.update({of[4]: of[3]}), **SETTINGS, start="scratch")
    answerer = Answerer(workdir.path)
    for name, part in parts.items():
        inputs = task.encode(part, corpus.tokenizer, 12).inputs
        right = [task.labels[i] for i in np.argmax(predict(answerer.model, inputs), axis=-1)]
        path = workdir.path / f"predictions/parts/scratch-seed0.{name}.jsonl"
        assert [json.loads(row)["answer"] for row in path.read_text().splitlines()] == right == answered[name]


def test_models_of_another_task_of_the_same_name_are_not_taken_for_its_own(workdir):
    def task(words):
        return Classification("same", Splits(examples(words), {}, {"en": examples("table file")}))

    finetune(workdir, optimizer, task("save open"), **SETTINGS, **MODELS)
    log = workdir.metrics.path.read_bytes()
    finetune(workdir, optimizer, task("save open"), **SETTINGS, **MODELS)
    assert workdir.metrics.path.read_bytes() == log  # done
    for others, key in (({}, "examples_sha256"), ({"epochs": 4}, "epochs"), ({"methods": [Biases()]}, "methods")):
        with pytest.raises(UserError, match=rf"finetuned/same has models whose {key} is .*: give each task a name"):
            finetune(workdir, optimizer, task("save open" if others else "open save"), **SETTINGS, **MODELS, **others)


def test_models_that_started_elsewhere_are_not_taken_for_those_of_another_start(workdir, pretrained, tmp_path):
    """Nor are those of a folder that holds other weights now."""
    task = Classification("same", Splits(examples("save open"), {}, {"en": examples("table file")}))
    here = shutil.copytree(pretrained, tmp_path / "here")
    settings = MODELS | {"starts": ("pretrained",), "sequence_length": 12}
    finetune(workdir, optimizer, task, pretrained=str(here), **settings)
    log = workdir.metrics.path.read_bytes()
    moved = here.rename(tmp_path / "moved")
    finetune(workdir, optimizer, task, pretrained=str(moved), **settings)
    assert workdir.metrics.path.read_bytes() == log  # done
    state = moved / "checkpoints/step-00000001/state.json"
    state.write_text(state.read_text() + "\n")
    for start in (str(moved), InitialWeights(str(pretrained), scalar_mix=True)):
        with pytest.raises(
            UserError, match=r"finetuned/same has models whose initial_weights is .*: give each task a name"
        ):
            finetune(workdir, optimizer, task, pretrained=start, **settings)
    finetune(workdir, optimizer, task, pretrained=str(moved), **settings | {"starts": ("scratch",)})


def test_that_there_is_no_test_to_hand_in_is_said(workdir, capsys):
    rows = examples("save open")
    submit(workdir, Classification("x", Splits(rows, {"en": rows}), part="dev"), None, **SETTINGS)
    assert capsys.readouterr().out == "submit/x: there are no test examples to answer; nothing is handed in\n"


def test_what_was_not_scored_is_not_handed_in(workdir):
    task = Classification("x", Splits(examples("save open"), {}, {"en": examples("table file")}))
    (workdir.finetuned / "x").mkdir(parents=True)
    for chosen in (None, {"scratch": 0.1}):
        if chosen is not None:
            (workdir.finetuned / "x/chosen.json").write_text(json.dumps(chosen))
        with pytest.raises(UserError, match="submit/x: evaluate has scored no model that started pretrained"):
            submit(workdir, task, None, **SETTINGS)


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({1e-5: [-0.02, -0.04], 3e-5: [None, None]}, 1e-5),  # Matthews correlation goes below 0
        ({1e-5: [-0.02, None], 3e-5: [-0.01, -0.01]}, 3e-5),
        *(({1e-5: [0.6, failed], 3e-5: [0.4, 0.4]}, 3e-5) for failed in (None, np.nan)),
        ({1e-5: [None, None], 3e-5: [None, None]}, 1e-5),
    ],
)
def test_a_learning_rate_whose_trainings_failed_is_not_chosen(found, chosen, capsys):
    scores = {(rate, seed): value for rate, values in found.items() for seed, value in enumerate(values)}
    task = SimpleNamespace(name="cola", train_language="en", validation=[None], score=lambda _, answers, __: answers)
    asked = SimpleNamespace(
        task=task,
        model=lambda start, rate, seed: None if scores[rate, seed] is None else (rate, seed),
        answers=lambda model, examples: {"matthews": scores[model]},
    )
    assert rate_to_score(asked, "pretrained", [*found], (0, 1)) == chosen
    failed = [f"{rate:g}: failed" for rate, values in found.items() if not any(values)]
    shown = capsys.readouterr().out
    assert all(each in shown for each in failed)


def test_several_learning_rates_need_data_to_choose_by_before_anything_is_trained(workdir):
    task = Classification("blind", Splits(examples("save open"), {}, {"en": examples("table file")}))
    message = "task blind has no dev examples of en to choose a learning rate by: name one"
    with pytest.raises(UserError, match=message):
        finetune(workdir, optimizer, task, **SETTINGS, **MODELS, learning_rates=(0.1, 0.01))
    workdir.close()
    record = RunRecord("# a recipe\n", lambda: "", choices={0: (0.1, 0.01)})
    with pytest.raises(UserError, match=message):
        run([lambda folder: pytest.fail("it runs")], workdir.path, record, [task])
    assert not workdir.finetuned.exists()


def test_models_are_asked_as_they_were_trained(workdir, text_dir):
    """At another length, or in other pieces, their answers would be wrong without a message."""
    task = Classification("read", Splits(examples("save open"), {}, {"en": examples("table file")}))
    finetune(workdir, optimizer, task, **SETTINGS, **MODELS)
    evaluate(workdir, task, **SETTINGS, **MODELS)
    scores = workdir.scores.read_bytes()

    def assert_refused(settings, message):
        for stage in (
            lambda: evaluate(workdir, task, **settings, **MODELS),
            lambda: submit(workdir, task, None, **settings, start="scratch"),
        ):
            with pytest.raises(UserError, match=rf"finetuned/read has models that were fine-tuned with {message}: "):
                stage()
        assert workdir.scores.read_bytes() == scores

    assert_refused(SETTINGS | {"sequence_length": 8}, "sequence_length 12, and 8 is asked for")
    (workdir.path / "corpus").unlink()
    prepare(workdir, str(text_dir), vocabulary_size=800)
    assert_refused(SETTINGS, "another tokenizer than that of this stage")


@pytest.mark.parametrize("name", ["starts", "seeds", "learning_rates"])
def test_stages_train_and_score_one_model_or_more_and_each_once(name, workdir):
    task = Classification("lists", Splits(examples("save open"), {}, {"en": examples("table file")}))
    for values in ((), ("scratch",) * 2 if name == "starts" else (1, 1)):
        for stage in (partial(finetune, workdir, optimizer), partial(evaluate, workdir)):
            with pytest.raises(UserError, match=rf"^{name} is .*; it must have one value or more, and each once$"):
                stage(task, **SETTINGS, **MODELS | {name: values})
    assert not workdir.finetuned.exists()


def test_no_stage_reads_more_tokens_than_there_are_positions(workdir, tmp_path):
    task = Classification("long", Splits(examples("save open"), {}, {"en": examples("table file")}))
    settings, preset = SETTINGS | {"sequence_length": 33}, tmp_path / "preset"
    SETTINGS["encoder"]().save_to_preset(preset)
    stages = [
        lambda: finetune(workdir, optimizer, task, **settings, **MODELS),
        lambda: evaluate(workdir, task, **settings, **MODELS),
        lambda: submit(workdir, task, None, **settings),
        lambda: retrieve(workdir, [], **settings),
        lambda: trace_retrieval(workdir, SETTINGS["encoder"], [], 33),
        lambda: mine(workdir, "long", SimpleNamespace(dev={}, test={}), **settings, start="scratch"),
        lambda: probe(
            workdir, [], [SimpleNamespace(name="long", languages=["de"])], pretrained=str(preset), sequence_length=33
        ),
    ]
    for stage in stages:
        with pytest.raises(UserError, match="sequence_length is 33; the model's max_sequence_length is 32"):
            stage()
    rotary = Encoder(900, 1, 2, 8, 16, 4, max_sequence_length=32, block=PreNorm)
    check_length(rotary, 33)  # has no table of positions


def test_what_is_not_scored_or_not_read_whole_is_said(workdir, capsys):
    long = Labelled("9", "the file and the window and the table and the name", None, "yes")
    test = {"en": [*examples("table file"), Labelled("8", "name")], "de": [*examples("window name open"), long]}
    task = Classification("said", Splits([*examples("save open all"), long], {}, test))
    finetune(workdir, optimizer, task, **SETTINGS, **MODELS)
    assert "finetune/said: 25.0% of the training examples are cut to 12 tokens\n" in capsys.readouterr().out
    evaluate(workdir, task, **SETTINGS, **MODELS)
    said = capsys.readouterr().out
    assert "evaluate/said: 2 of 3 test examples of en have labels, and are scored\n" in said
    assert "evaluate/said: of the examples that are scored, 25.0% of de are cut to 12 tokens\n" in said


def test_answers_that_no_window_has_whole_are_said_before_they_are_trained_on(workdir, capsys):
    passage = "save the file and open the window " * 3
    asked = [Question(str(i), "save", passage, (answer,), (0,)) for i, answer in enumerate(("save", passage.strip()))]
    task = QuestionAnswering("asked", Splits(asked, {}, {"en": asked[:1]}))
    finetune(workdir, optimizer, task, **SETTINGS, **MODELS, epochs=1)
    said = "finetune/asked: 50.0% of the training examples have an answer that no window of 12 tokens has whole\n"
    assert said in capsys.readouterr().out


def test_a_report_counts_and_pairs_questions_and_not_their_candidates(workdir):
    rows = [
        Labelled(f"{group}-{i}", f"save {group}", "open", label, group)
        for group in "abc"
        for i, label in enumerate(("true", "false"))
    ]
    task = Candidates("copa", Splits(rows, {"en": rows}), part="dev")
    finetune(workdir, optimizer, task, **SETTINGS, **MODELS, epochs=1)
    evaluate(workdir, task, **SETTINGS, **MODELS)
    assert {score.n for score in read_scores(workdir.scores)} == {3}
    paired = read_run(workdir.path).examples(Measure("copa", "accuracy"), "scratch", 0, "en")
    assert paired.keys() == {"a", "b", "c"}


def test_a_model_whose_outputs_are_not_finite_counts_as_failed(workdir, monkeypatch, capsys):
    rows = [Labelled(str(i), word, None, float(i)) for i, word in enumerate(["save", "open", "the"])]
    task = Regression("numbers", Splits(rows, {"en": rows}, {"en": rows}))
    rates = MODELS | {"learning_rates": (0.1, 0.01)}
    finetune(workdir, optimizer, task, **SETTINGS, **rates, epochs=1)
    evaluate(workdir, task, **SETTINGS, **rates)
    left = workdir.path / "predictions/numbers"  # of models whose outputs are finite
    for value in (np.nan, np.inf):
        monkeypatch.setattr(evaluation, "predict", lambda *_, value=value: np.array([0.0, value, 1.0]))
        workdir.scores.unlink(missing_ok=True)
        evaluate(workdir, task, **SETTINGS, **rates)
        found = {score.value for score in read_scores(workdir.scores) if score.system == "scratch"}
        said = capsys.readouterr().out
        assert found == {None}
        why = "task numbers: the model's outputs are not finite; it counts"
        assert f"evaluate/numbers: scratch, seed 0, in en: {why}" in said and not [*left.glob("scratch-*")]


def test_what_is_handed_in_is_of_the_first_model_whose_outputs_are_finite(workdir, monkeypatch, capsys):
    task = Classification("x", Splits(examples("save open"), {}, {"en": examples("all in"), "de": examples("of with")}))
    seeds = MODELS | {"seeds": (0, 1)}
    finetune(workdir, optimizer, task, **SETTINGS, **seeds, epochs=1)
    evaluate(workdir, task, **SETTINGS, **seeds)
    outputs, answered = [np.eye(2), np.eye(2) * np.nan, np.eye(2), np.eye(2)[::-1]], {}
    monkeypatch.setattr(evaluation, "predict", lambda *_: outputs.pop(0))
    submit(workdir, task, lambda *of: answered.update({of[4]: of[3]}), **SETTINGS, start="scratch", seeds=(0, 1))
    assert answered == {"en": ["no", "yes"], "de": ["yes", "no"]}
    assert "scratch, seed 0: task x: the model's outputs are not finite; it counts" in capsys.readouterr().out


def test_a_metric_that_does_not_suit_the_labels_is_refused_before_anything_is_trained(workdir):
    parts = Splits(examples("save open"), {}, {"en": examples("table file")})
    task = Classification("blind", parts, {"f1": metrics.span_f1})
    with pytest.raises(UserError, match="task blind: the metric 'f1' cannot be computed: "):
        finetune(workdir, optimizer, task, **SETTINGS, **MODELS)
    workdir.is_rehearsal = True
    with pytest.raises(UserError, match="task blind: the metric 'f1' cannot be computed: "):
        finetune(workdir, optimizer, task, **SETTINGS, **MODELS)
    assert not workdir.finetuned.exists()


def test_an_untrained_encoder_mines_the_same_with_the_same_seed(workdir, monkeypatch):
    english = {str(i): word for i, word in enumerate(["save", "open", "file"])}
    texts = BitextSplits({}, {"de": Bitext(english, english, frozenset((name, name) for name in english))})
    weights, seeds, vectors = [], [], submission._vectors
    monkeypatch.setattr(
        submission, "_vectors", lambda model, *others: (weights.append(model.get_weights()), vectors(model, *others))[1]
    )
    for seed in (1, 1, 2):
        mine(workdir, "tatoeba", texts, **SETTINGS, start="scratch", seed=seed)
        seeds += [score.seed for score in read_scores(workdir.scores)]
    one, same, other = (np.concatenate([each.ravel() for each in found]) for found in weights[::2])
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other) and seeds == [1, 1, 2]
