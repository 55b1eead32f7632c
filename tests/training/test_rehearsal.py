"""Mistakes of fine-tuning are found before the first stage begins."""

import contextlib
from functools import partial
from inspect import signature
from types import SimpleNamespace

import keras
import pytest

from rembed_keras import config
from rembed_keras.adaptation import Biases, FisherChosen, Lora, MiniLM, RoAd, Teacher
from rembed_keras.adaptation.methods import Method
from rembed_keras.adaptation.terms import RDrop
from rembed_keras.config.forecasts import batches
from rembed_keras.errors import UserError
from rembed_keras.modeling import LateMaskedLM, ReplacedTokenDetection
from rembed_keras.modeling.blocks import PreNorm
from rembed_keras.tasks import Classification, ParallelText, QuestionAnswering
from rembed_keras.tasks.kinds.examples import Labelled, Splits
from rembed_keras.tasks.suites.submissions import write_glue
from rembed_keras.training import (
    InitialWeights,
    benchmark,
    finetune,
    mine,
    pretrain,
    probe,
    retrieve,
    submit,
    trace_retrieval,
)
from rembed_keras.training.distributed.processes import together
from rembed_keras.training.evaluators import BitsPerByte, FilledMasks
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.rehearsal import rehearse, rehearsed
from rembed_keras.training.stages.run import RunRecord, run
from tests.training import pretraining
from tests.training.stages.test_starting import classify, make_encoder, optimizer

NO_DROPOUT = {"encoder": partial(make_encoder, dropout=0.0), "dropout": 0.0}
FITTING = {
    "no method": {},
    "methods": {"methods": [Lora(2), Biases(), FisherChosen(count=3)], "terms": [RDrop()]},
    "an encoder to come": {"encoder": None, "pretrained": InitialWeights(task="first"), "methods": [Lora(layers=[7])]},
}


LATE = {"model": lambda encoder: LateMaskedLM(encoder, 8, decoder_layers=1)}
DETECTION = {"model": lambda encoder: ReplacedTokenDetection(encoder, 8), "eval_every": 1}


class Own(Method):
    """A stranger's, which is not registered, with what it says is trained."""

    def __init__(self, gives):
        self.apply = gives

    def get_config(self):
        return {}


def too_new(**_):
    raise UserError("Muon needs Keras 3.13 or later")


MISTAKES = {
    "a method that gives nothing": ({"methods": [Own(lambda model: None)]}, "Own.apply gives None; it must be a list"),
    "one that gives layers": ({"methods": [Own(lambda model: [model.encoder])]}, "it must be a list of variables"),
    "one that no file can name": (
        {"methods": [Own(lambda model: model.encoder.weights[:1])]},
        "'Own' of 'tests.training.test_rehearsal', which no model of ours is made of; if it is your own, decorate it",
    ),
    "biases of blocks that have none": (
        {"encoder": partial(make_encoder, block=PreNorm), "methods": [Biases()]},
        "Biases trains biases, and this encoder's blocks have none",
    ),
    "a block that is not there": ({"methods": [Lora(layers=[7])]}, "there is no block 7: this encoder has 2"),
    "more norms than there are": ({"methods": [FisherChosen(count=30)]}, "is to train 30 norms; this encoder has 5"),
    "a norm that is not there": ({"methods": [FisherChosen(chosen=["norm"])]}, "has chosen 'norm', which this encoder"),
    "no method": ({"methods": [Biases]}, "is no fine-tuning method; in a recipe it ends in ()"),
    "groups that do not divide": ({"methods": [RoAd(group_size=5)]}, "group_size"),
    "passes that nothing tells apart": ({"terms": [RDrop()]} | NO_DROPOUT, "give the model dropout over 0"),
    "an optimizer that needs a newer Keras": ({"optimizer": too_new}, "Muon needs Keras 3.13 or later"),
    "one that clips": (
        {"optimizer": partial(keras.optimizers.AdamW, global_clipnorm=1.0)},
        "AdamW.global_clipnorm is 1.0",
    ),
    "no callback": ({"callbacks": [dict]}, "makes no keras.callbacks.Callback"),
}


@pytest.fixture
def begin(tmp_path):
    """Begins a run of three stages, the second of which fine-tunes; gives the first ones that began."""

    def begin(chosen=None, **settings):
        given = {"task": classify(), "encoder": make_encoder, "optimizer": optimizer} | settings
        tune = partial(finetune, **given)
        rehearsed(tune)
        begun = []
        stages = [lambda folder: begun.append("first"), tune, lambda folder: begun.append("last")]
        try:
            run(stages, tmp_path / "run", RunRecord("# a recipe\n", lambda: ""), chosen=chosen)
        except UserError as error:
            return begun, str(error)
        return begun, ""

    return begin


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_found_before_the_first_stage(what, begin):
    settings, message = MISTAKES[what]
    begun, error = begin(**settings)
    assert not begun and error.startswith("finetune/topics: ") and message in error


@pytest.mark.parametrize("what", FITTING)
def test_what_fits_is_not_refused(what, begin):
    begun, error = begin(**FITTING[what])
    assert begun == ["first"] and error  # of the stage itself, which has nothing to start from


def test_dropout_before_a_head_that_has_none(begin):
    begun, error = begin(task=QuestionAnswering("topics", None), dropout=0.3)
    assert not begun and error == (
        "finetune/topics: dropout is 0.3, and QuestionAnswering has none before its head: leave dropout out"
    )
    for fitting in ({}, {"dropout": None}, {"dropout": 0.0}):
        assert begin(task=QuestionAnswering("topics", None), **fitting)[0] == ["first"]


def test_a_batch_that_replicas_cannot_share(begin, monkeypatch):
    from rembed_keras.training import rehearsal

    def place(strategy, batch_size, knob):
        raise UserError(f"{knob} is {batch_size} under {strategy}")

    monkeypatch.setattr(rehearsal, "place", place)
    assert begin(batch_size=31) == ([], "FINETUNE_BATCH_SIZE is 31 under one_device")


@pytest.mark.parametrize("stage", [retrieve, trace_retrieval, partial(probe, tasks=[])])
def test_a_parallel_text_in_the_pivot_alone(stage, tmp_path):
    (tmp_path / "en.txt").write_text("save\n")
    (name,) = {"texts", "parallel"} & signature(stage).parameters.keys()
    later = rehearsed(partial(stage, encoder=make_encoder, **{name: [ParallelText(tmp_path)]}))
    begun = []
    with pytest.raises(UserError, match="has no language beside en: there is nothing to find"):
        run([begun.append, later], tmp_path / "run", RunRecord("# a recipe\n", lambda: ""))
    assert not begun and all(vars(each)["is_rehearsed"] for each in (retrieve, trace_retrieval, probe, mine, submit))


def test_labels_that_a_submission_does_not_take(tmp_path):
    own = [Labelled(str(i), "text", label=label) for i, label in enumerate(("negative", "positive"))]
    task = Classification("sst2", Splits(own, {"en": own}, {"en": own}))
    later, begun = rehearsed(partial(submit, task=task, write=write_glue)), []
    with pytest.raises(
        UserError, match="submit/sst2: the task has the label 'negative', and a submission takes 0, 1: "
    ):
        run([begun.append, later], tmp_path / "run", RunRecord("# a recipe\n", lambda: ""))
    assert not begun


def test_batches_that_devices_cannot_share_are_refused_before_text_is_prepared(tmp_path, monkeypatch):
    recipe, begun = config.load("recipes/options/growing_rows.gin", ["STRATEGY=data_parallel"]), []
    assert batches(recipe) == {1: ("data_parallel", {0: 64, 2520: 16}, 1)}
    monkeypatch.setattr("rembed_keras.training.stages.run.place", lambda *_: SimpleNamespace(replicas=32))
    record = RunRecord("# a recipe\n", lambda: "", batches=batches(recipe))
    with pytest.raises(UserError, match="BATCH_SIZE is 16 from step 2520 on, which 32 replicas and micro-batches"):
        run([begun.append, print], tmp_path / "run", record)
    assert not begun
    run([begun.append, print], tmp_path / "run", record, chosen=[0])
    assert begun


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"optimizer": too_new}, "Muon needs Keras 3.13"),
        ({"optimizer": partial(keras.optimizers.SGD, use_ema=True)}, "SGD.use_ema is True"),
        ({"callbacks": [dict]}, "makes no"),
        ({"steps": 0}, "STEPS"),
        ({"terms": [RDrop()]}, "give the model dropout over 0"),
        (LATE | {"terms": [MiniLM(Teacher("yet to be trained"))]}, "the encoder of late_masked_lm sees only some"),
        (DETECTION | {"evaluators": [BitsPerByte()]}, "BitsPerByte needs the loss of masked tokens by language"),
        (DETECTION | {"evaluators": [FilledMasks()]}, "FilledMasks needs logits of masked tokens"),
    ],
)
def test_mistakes_of_pre_training_are_found_before_text_is_prepared(tmp_path, mistake, message):
    parts = {"encoder": pretraining.make_encoder, "model": pretraining.make_head, "mixture": pretraining.make_mixture}
    given = parts | {"optimizer": pretraining.make_optimizer, "steps": 1} | mistake
    begun, train = [], rehearsed(partial(pretrain, **given))
    timed = rehearsed(partial(benchmark, pretrain=train, mixture=pretraining.make_mixture))
    for stage in (train, timed):
        with pytest.raises(UserError, match=message):
            run([begun.append, stage], tmp_path / "run", RunRecord("# a recipe\n", lambda: ""))
    assert not begun and "is_rehearsed" in vars(pretrain)


def test_words_that_are_not_in_the_corpus_are_missed_before_anything_is_trained(corpus, tmp_path):
    parts = {"encoder": pretraining.make_encoder, "model": pretraining.make_head, "mixture": pretraining.make_mixture}
    train = partial(pretrain, optimizer=pretraining.make_optimizer, steps=1, corpus=str(corpus.path), **parts)
    for settings, message in (
        ({"words": ("en", "xx")}, "has no language 'xx' whose words could be compared"),
        ({"words": ("en",), "sequence_length": 10**6}, "en has too little text to compare words"),
    ):
        later = rehearsed(partial(probe, encoder=make_encoder, **settings))
        with pytest.raises(UserError, match=message):
            run([print, together(train), later], tmp_path / "run", RunRecord("# a recipe\n", lambda: ""))
        assert not any((tmp_path / "run" / name).exists() for name in ("checkpoints", "metrics.jsonl", "corpus.json"))


def test_a_stage_of_the_chief_is_rehearsed_by_the_chief_alone(tmp_path):
    called = []
    alone, shared = (rehearsed(partial(called.append)) for _ in range(2))
    with contextlib.closing(Workdir(tmp_path, sinks=())) as workdir:
        rehearse([print, alone, together(shared)], workdir, by_chief=lambda action: None)  # as another process does
        assert called == [workdir]
        rehearse([print, alone, shared], workdir)
        assert called == [workdir] * 3 and not workdir.is_rehearsal


def test_stages_that_are_not_to_come_are_not_rehearsed(begin):
    settings, _ = MISTAKES["no callback"]
    assert begin(chosen=[0, 2], **settings) == (["first", "last"], "")


def test_a_rehearsal_leaves_the_names_of_what_is_built_after_it_as_they_are(begin):
    before = [weight.path for weight in make_encoder().weights]
    begin(**FITTING["methods"])
    assert [weight.path for weight in make_encoder().weights] == before


def test_a_rehearsal_leaves_the_name_of_the_optimizer_that_trains_as_it_is(begin):
    make = partial(keras.optimizers.Lion, name=None)
    make(learning_rate=1e-3)  # a process's first is not numbered
    before, made = make(learning_rate=1e-3).name, []
    begin(optimizer=lambda learning_rate: made.append(make(learning_rate)))
    assert len(made) == 1 and make(learning_rate=1e-3).name == f"lion_{int(before.removeprefix('lion_')) + 1}"
