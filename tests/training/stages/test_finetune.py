"""Every kind of task is learnt, scored, and answers a file, by the stages that recipes run."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from rembed_keras.errors import UserError
from rembed_keras.modeling import Encoder
from rembed_keras.tasks import Candidates, Classification, QuestionAnswering, Regression, Tagging
from rembed_keras.tasks.kinds.examples import Labelled, Question, Splits, Tagged
from rembed_keras.tasks.scores import read_scores
from rembed_keras.training import AdamW, Answerer, evaluate, finetune, lines_of
from rembed_keras.training.loop import checkpoints, restoring
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.stages.evaluate import _record
from tests.modeling.forward import forward
from tests.training.pretraining import eagerly

WORDS = ("save", "open", "table", "file")


def labelled(count, numeric=False):
    """Texts whose first word decides."""
    texts = [(WORDS[i % 2], WORDS[2 + i // 2 % 2]) for i in range(count)]
    label = {"save": 1.0, "open": 4.0} if numeric else {"save": "yes", "open": "no"}
    return [Labelled(str(i), f"{first} the {last}", last, label[first]) for i, (first, last) in enumerate(texts)]


def candidates(count):
    pairs = [(question, word) for question in range(count) for word in ("save", "open")]
    return [
        Labelled(f"{q}-{word}", f"{word} the file", None, "true" if word == "save" else "false", str(q), word)
        for q, word in pairs
    ]


def tagged(count):
    return [Tagged(str(i), (WORDS[i % 2], "the", "file"), ("B-X" if i % 2 else "O", "O", "O")) for i in range(count)]


def questions(count):
    contexts = [f"the {WORDS[2 + i % 2]} and the end" for i in range(count)]
    return [Question(str(i), "what?", text, (text.split()[1],), (4,)) for i, text in enumerate(contexts)]


def splits(make, *arguments):
    return Splits(
        make(32, *arguments), {"en": make(8, *arguments)}, {"de": make(6, *arguments), "en": make(8, *arguments)}
    )


TASKS = {
    "classification": lambda: Classification("topics", splits(labelled), pooling="mean"),
    "regression": lambda: Regression("alike", splits(labelled, True)),
    "choice": lambda: Candidates("choice", splits(candidates), "choice"),
    "tagging": lambda: Tagging("names", splits(tagged)),
    "questions": lambda: QuestionAnswering("answers", splits(questions)),
}


def make_encoder():
    return Encoder(900, 1, 2, 24, 32, 12, max_sequence_length=32, dropout=0.0)


def optimizer(learning_rate):
    return AdamW(learning_rate)


def learn(workdir, task, **changes):
    settings = {
        "jit_compile": False,
        "sequence_length": 24,
        "starts": ("scratch",),
        "learning_rates": (2e-2,),
        "encoder": make_encoder,
    }
    how = {"batch_size": 8, "epochs": 12, "dropout": 0.0, "log_every": 10}
    finetune(workdir, optimizer, task, **(settings | how | changes))
    evaluate(
        workdir, task, **(settings | {key: value for key, value in changes.items() if key in settings | {"seeds": 0}})
    )


@pytest.fixture(scope="module", params=TASKS)
def learnt(request, corpus, tmp_path_factory):
    """The folder of a run that has learnt a task, the task, and its kind."""
    made = Workdir(tmp_path_factory.mktemp(request.param) / "run")
    (made.path / "corpus").symlink_to(corpus.path)
    task = TASKS[request.param]()
    learn(made, task)
    yield made, task, request.param
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "bfloat16"])
def test_a_task_is_learnt_and_answered_in_another_precision(corpus, tmp_path, dtype):
    made = Workdir(tmp_path / "run")
    (made.path / "corpus").symlink_to(corpus.path)
    task = TASKS["classification"]()
    learn(made, task, dtype=dtype)
    (score,) = {each.value for each in read_scores(made.scores) if each.system == "scratch"}
    assert score > 0.95
    (state,) = made.finetuned.rglob("state.json")
    model = restoring.restore(checkpoints.opened(state.parent))
    assert model.encoder.dtype_policy.name == dtype
    made.close()


@pytest.mark.slow
def test_a_task_of_every_kind_is_learnt_and_beats_what_needs_no_encoder(learnt):
    workdir, task, kind = learnt
    scores = read_scores(workdir.scores)
    assert {score.language for score in scores} == {"de", "en"}
    assert {score.metric for score in scores if score.system == "scratch"} == set(task.metric_names)
    # no ranks of numbers that differ agree wholly with those of labels that are equal
    learnt = [score.value for score in scores if score.system == "scratch" and score.metric != "spearman"]
    assert min(learnt) > 0.95
    assert {score.system for score in scores} == {"scratch", *task.baselines()}
    for score in scores:
        rows = [
            json.loads(line)
            for line in (
                workdir.path / f"predictions/{task.name}/{score.system}-seed{score.seed}.{score.language}.jsonl"
            )
            .read_text()
            .splitlines()
        ]
        examples = task.scored[score.language]
        counted = {getattr(example, "group", None) or example.id: None for example in examples}  # questions once
        assert [row["id"] for row in rows] == [*counted] and score.n == len(counted)
        if score.metric == "accuracy" and kind == "classification":
            assert np.mean([row["correct"] for row in rows]) == pytest.approx(score.value)


@pytest.mark.slow
@pytest.mark.parametrize("learnt", ["classification"], indirect=True)
def test_a_file_is_answered_as_the_examples_were(learnt, tmp_path):
    workdir, *_ = learnt
    (tmp_path / "mine.tsv").write_text("id\ttext\tpair\na\tsave the table\ttable\nb\topen the file\tfile\n")
    (tmp_path / "mine.jsonl").write_text('{"text": "open the file", "pair": "file"}\n')
    answerer = Answerer(workdir.path)
    lines = [json.loads(line) for line in lines_of(answerer.answers(answerer.read(tmp_path / "mine.tsv")))]
    assert lines == [{"id": "a", "answer": "yes"}, {"id": "b", "answer": "no"}]
    (line,) = lines_of(answerer.answers(answerer.read(tmp_path / "mine.jsonl")))
    assert json.loads(line) == {"id": "1", "answer": "no"}
    check_served(answerer, tmp_path)
    check_pooling(answerer)
    assert json.loads((workdir.finetuned / "topics/settings.json").read_text())["pooling"] == "mean"
    with pytest.raises(
        UserError, match="topics has models whose pooling is 'mean', not 'first': give each task a name"
    ):
        learn(workdir, Classification("topics", splits(labelled), pooling="first"))
    with pytest.raises(UserError, match="has no column words"):
        list(answerer.read(tmp_path / "mine.tsv", text="words"))
    with pytest.raises(UserError, match=r"has not been fine-tuned for topic; did you mean topics\?"):
        Answerer(workdir.path, "topic")


@pytest.mark.slow
def test_a_rate_is_chosen_by_the_training_language_alone_and_a_failed_seed_is_counted(workdir, capsys):
    task = TASKS["classification"]()
    learn(workdir, task, learning_rates=(1e-9, 2e-2), epochs=10)
    assert json.loads((workdir.finetuned / "topics/chosen.json").read_text()) == {"scratch": 2e-2}
    assert "takes learning rate 0.02, by en dev data" in capsys.readouterr().out
    with eagerly():  # it takes few steps
        fails = {"learning_rates": (1e30,), "epochs": 1, "log_every": 1, "seeds": (0, 1)}
        learn(workdir, Classification("broken", splits(labelled)), **fails)
    broken = [score for score in read_scores(workdir.scores) if score.task == "broken" and score.system == "scratch"]
    assert len(broken) == 4 and all(score.value is None for score in broken)
    assert "2 of 2 failed" in capsys.readouterr().out
    failed = workdir.finetuned / "broken/scratch-lr1e+30-seed1/failed.json"
    assert json.loads(failed.read_text())["dtype"] == "float32"  # the encoder's, which may be another when it goes on


@pytest.mark.slow
def test_a_model_is_what_it_would_be_alone_whatever_was_learnt_before(workdir, tmp_path):
    """Models of one rate share a program; nothing of one is left in the next, nor in what it answers."""
    alone = Workdir(tmp_path / "alone")
    (alone.path / "corpus").symlink_to(workdir.path / "corpus")
    for each, seeds in ((workdir, (3, 4)), (alone, (4,))):
        learn(each, TASKS["classification"](), epochs=3, dropout=0.3, seeds=seeds)
    alone.close()
    name = "topics/scratch-lr0.02-seed4"
    ours, theirs = (each.metrics.rows(f"finetune/{name}") for each in (workdir, alone))
    assert [row["loss"] for row in ours] == [row["loss"] for row in theirs] and len(ours) == 2
    folder = workdir.finetuned / name / "step-00000012"
    for file in (*folder.glob("*.safetensors"), *workdir.path.glob("predictions/topics/scratch-seed4.*")):
        assert file.read_bytes() == (alone.path / file.relative_to(workdir.path)).read_bytes()


def check_served(answerer, tmp_path):
    """The SavedModel says what the answerer says, of long texts too."""
    import tensorflow as tf

    answerer.export(tmp_path / "served")
    served = tf.saved_model.load(str(tmp_path / "served"))
    firsts = ["open the file", "save " * 40, "open the table and the file"]
    seconds = ["file", "the table " * 30, "table " * 40]
    encoded = answerer.task.encode(
        [Labelled(str(i), *texts) for i, texts in enumerate(zip(firsts, seconds, strict=True))], answerer.tokenizer, 24
    )
    expected = forward(answerer.model, encoded.inputs)
    for name in ("pairs", "serving_default"):  # the task is one of pairs: a text alone is not what is asked by default
        found = served.signatures[name](texts=tf.constant(firsts), pairs=tf.constant(seconds))
        np.testing.assert_allclose(found["probabilities"], tf.nn.softmax(expected), atol=1e-5)
        names = [label.decode() for label in found["labels"].numpy()]
        assert names == answerer.task.answers([None] * 3, encoded, expected)
    alone = answerer.task.encode([Labelled("0", text) for text in firsts], answerer.tokenizer, 24)
    found = served.texts(tf.constant(firsts))["probabilities"]
    np.testing.assert_allclose(found, tf.nn.softmax(forward(answerer.model, alone.inputs)), atol=1e-5)


def check_pooling(answerer):
    """The model that answers reads the mean of all tokens but padding."""
    inputs = answerer.task.encode([Labelled("0", "open the file", "file")], answerer.tokenizer, 24).inputs
    tokens = np.asarray(forward(answerer.model.encoder, inputs)["sequence_output"])[0]
    mean = tokens[inputs["padding_mask"][0] > 0].mean(axis=0)
    kernel, bias = (np.asarray(weight) for weight in answerer.model.head.weights)
    np.testing.assert_allclose(forward(answerer.model, inputs)[0], mean @ kernel + bias, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("without_graphs")
def test_starts_that_are_scored_by_stages_of_their_own_are_all_kept(workdir, pretrained):
    task = Classification("c", Splits(labelled(2), {}, {"en": labelled(2)}))
    settings = {"pretrained": str(pretrained), "sequence_length": 24, "jit_compile": False}
    for start, rate in (("pretrained", 0.01), ("scratch", 0.1), ("scratch", 0.1)):
        own = settings | {"starts": (start,), "learning_rates": (rate,)}
        finetune(workdir, optimizer, task, epochs=1, **own)
        evaluate(workdir, task, **own)
    systems = [score.system for score in read_scores(workdir.scores)]
    assert sorted(systems) == ["majority", "pretrained", "scratch", "tfidf"]
    assert json.loads((workdir.finetuned / "c/chosen.json").read_text()) == {"pretrained": 0.01, "scratch": 0.1}
    fewer = Classification("c", Splits(labelled(2), {}, {"en": labelled(1)}))
    evaluate(workdir, fewer, **settings, starts=("scratch",), learning_rates=(0.1,))
    assert {(score.system, score.n) for score in read_scores(workdir.scores)} == {
        ("scratch", 1), ("majority", 1), ("tfidf", 1)
    }  # fmt: skip


def test_a_metric_that_is_not_finite_is_no_score(workdir, capsys):
    task = Regression("alike", splits(labelled, True), {"r": lambda labels, answers: np.nan})
    asked = SimpleNamespace(task=task, workdir=workdir)
    (score,) = _record(asked, "scratch", 0, "de", task.scored["de"], [1.0] * 6)
    assert score.value is None
    assert capsys.readouterr().out == "evaluate/alike: scratch, seed 0, in de: r is nan; it counts as failed\n"


@pytest.mark.usefixtures("without_graphs")
def test_models_of_other_labels_are_not_asked(workdir):
    settings = {"encoder": make_encoder, "sequence_length": 24, "starts": ("scratch",), "jit_compile": False}
    rows, tagged_rows = Splits(labelled(2), {}, {"en": labelled(2)}), Splits(tagged(2), {}, {"en": tagged(2)})
    for task, other, said in (
        (Classification("c", rows), Classification("c", rows, labels=["yes", "no"]), r"the labels \['no', 'yes'\]"),
        (Tagging("t", tagged_rows), Tagging("t", tagged_rows, tags=["O", "B-X"]), r"the tags \['B-X', 'O'\]"),
    ):
        finetune(workdir, optimizer, task, epochs=1, **settings)
        with pytest.raises(UserError, match=f"has models that were fine-tuned with {said}, and this stage's task has"):
            evaluate(workdir, other, **settings)
    assert not workdir.scores.exists()


def test_settings_that_make_no_sense_are_named(workdir):
    task = TASKS["classification"]()
    with pytest.raises(UserError, match="fine-tuning needs an encoder"):
        finetune(workdir, optimizer, task)
    with pytest.raises(UserError, match="has no pre-trained encoder: run pretrain first"):
        finetune(workdir, optimizer, task, make_encoder, sequence_length=24, jit_compile=False)
    with pytest.raises(UserError, match="part is 'train'"):
        Classification("x", splits(labelled), part="train")
    hidden = Splits(labelled(4), {}, {"en": [Labelled("0", "save")]})
    with pytest.raises(UserError, match="has no labeled test examples of en"):
        Classification("x", hidden)
    strange = Splits(labelled(4), {}, {"en": [Labelled("7", "save", None, "maybe")]})
    with pytest.raises(UserError, match="test of en, example 7: label 'maybe' is not in the training data"):
        Classification("x", strange)
    (workdir.path / "ledger.json").write_text('{"kept": 1')
    with pytest.raises(UserError, match=r"ledger\.json is not JSON"):
        finetune(workdir, optimizer, task, make_encoder, sequence_length=24, starts=("scratch",), jit_compile=False)
