"""Distillation equals loops in float64, is 0 where nothing was lost, and is counted and saved."""

import keras
import numpy as np
import pytest

from rembed_keras.adaptation import Distillation, Teacher
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.embeddings import with_width
from rembed_keras.interop.reallocation.heads import keep_head
from rembed_keras.modeling import Encoder, MaskedLM, Sum
from rembed_keras.modeling.attention import Disentangled
from rembed_keras.modeling.blocks import Bottleneck, PreNorm, PreNormBert
from tests.interop.models import random_model
from tests.modeling.forward import QUICK, forward

BERT = {"input_embedding_dim": 16, "always_project": False}


def make_batch():
    """Padded rows with masked tokens, what was there, and an empty slot."""
    ids = np.random.default_rng(3).integers(5, 60, (3, 9)).astype("int32")
    ids[0, -3:] = 0
    labels = np.stack([ids[:, 1], ids[:, 4]], axis=1)
    weights = np.array([[1, 1], [1, 1], [1, 0]], "float32")
    x = {"token_ids": ids.copy(), "segment_ids": np.zeros_like(ids), "padding_mask": (ids > 0).astype("int32")}
    x["token_ids"][:, 1] = 4
    x["token_ids"][:2, 4] = 4
    x["mask_positions"] = np.array([[1, 4], [1, 4], [1, 0]], "int32")
    return x, np.where(weights > 0, labels, 0).astype("int32"), weights, ids


def losses_of(model):
    model.compile(optimizer="sgd", **QUICK)
    x, y, weights, _ = make_batch()
    return model.test_on_batch(x, y, weights, return_dict=True)


def taught_by(model):
    teacher = Teacher(model.encoder)
    teacher.take(model.encoder, model.head)
    return teacher


def reallocated(width):
    """A student with the head that its teacher has, and the teacher."""
    model = random_model(BERT | {"num_layers": 2}, {"output_embedding_dim": 16, "coupling": "coupled"})
    student, _ = keep_head(model, Encoder.from_config(with_width(model.encoder, width)[0].get_config()))
    student.encoder.set_weights(with_width(model.encoder, width)[0].get_weights())
    made = Distillation(student.encoder, taught_by(model), logits=1.0, output_embedding_dim=16)
    heads = {weight.path: weight for weight in student.droppable_variables}
    for weight in made.head.weights:
        weight.assign(heads[weight.path].value)
    return made, model


def test_nothing_is_to_learn_at_full_rank_and_much_below():
    model, _ = reallocated(16)
    whole = losses_of(model)
    assert whole["loss"] < 1e-6 and "accuracy" not in whole
    narrow = losses_of(reallocated(5)[0])
    assert all(narrow[part] > 1e-5 for part in ("hidden_states", "relations", "logits"))
    assert narrow["loss"] == pytest.approx(sum(narrow[part] for part in ("hidden_states", "relations", "logits")))


@pytest.mark.parametrize("reads_masked", [True, False])
def test_the_losses_are_those_of_loops(reads_masked):
    """A student of other width and depth, with maps that were trained."""
    teacher = random_model(BERT, {"output_embedding_dim": 16})
    student = random_model({"hidden_dim": 8, "num_layers": 2, "input_embedding_dim": 4}).encoder
    own = {"teacher_dim": 16, "states": [0, 1, 2], "reads_masked": reads_masked, "output_embedding_dim": 12}
    model = Distillation(student, taught_by(teacher), hidden_states=2.0, relations=0, logits=0.5, **own)
    rng = np.random.default_rng(0)
    for weight in model.droppable_variables:
        weight.assign(weight.numpy() + rng.normal(0, 0.3, weight.shape))
    found = losses_of(model)
    x, _, weights, ids = make_batch()
    read = {key: x[key] for key in ("token_ids", "segment_ids", "padding_mask")}
    read |= {} if reads_masked else {"token_ids": ids}
    ours, theirs = (
        [np.asarray(state, "float64") for state in forward(each, read)["hidden_states"]]
        for each in (student, teacher.encoder)
    )
    rows = []
    for row, documents in enumerate(x["padding_mask"]):
        shares = []
        for state, layer in ((0, 0), (1, 2), (2, 3)):  # 1 of 2 layers is between 1 and 2 of 3: Python rounds to even
            kernel, bias = (np.asarray(weight, "float64") for weight in model.maps[state].weights)
            gaps = [ours[state][row, t] @ kernel + bias - theirs[layer][row, t] for t in np.flatnonzero(documents)]
            wanted = [theirs[layer][row, t] for t in np.flatnonzero(documents)]
            shares.append(sum(gap @ gap for gap in gaps) / sum(each @ each for each in wanted))
        rows.append(np.mean(shares))
    assert found["hidden_states"] == pytest.approx(np.mean(rows), rel=1e-4)
    scored = zip((model.head, teacher.head), (ours[-1], theirs[-1]), strict=True)
    predicted = [np.asarray(head(last.astype("float32"), x["mask_positions"]), "float64") for head, last in scored]
    logs = [each - np.log(np.exp(each).sum(axis=-1, keepdims=True)) for each in predicted]
    nats = (np.exp(logs[1]) * (logs[1] - logs[0])).sum(axis=-1)
    assert found["logits"] == pytest.approx((nats * weights).sum() / weights.sum(), rel=1e-4)
    assert found["loss"] == pytest.approx(2 * found["hidden_states"] + 0.5 * found["logits"], rel=1e-5)


def test_training_moves_the_student_and_not_the_teacher():
    model, teacher = reallocated(5)
    before = [np.asarray(weight).copy() for weight in teacher.weights]
    model.compile(optimizer=keras.optimizers.Lion(3e-3), **QUICK)
    x, y, weights, _ = make_batch()
    losses = [float(model.train_on_batch(x, y, weights, return_dict=True)["loss"]) for _ in range(7)]
    assert losses[-1] < 0.9 * losses[0]
    for weight, value in zip(teacher.weights, before, strict=True):
        np.testing.assert_array_equal(np.asarray(weight), value)


def test_what_the_loss_does_not_reach_stays_in_steps_of_parts_too():
    """Of the last block relations read queries, keys and values alone."""
    moved = []
    for parts in (1, 2):
        keras.utils.set_random_seed(2)
        student, teacher = (Encoder(60, 2, 2, 8, 16, 6, max_sequence_length=16, dropout=0.0) for _ in range(2))
        model = Distillation(student, Teacher(teacher), hidden_states=0, relations=1.0, micro_batches=parts)
        model.compile(keras.optimizers.SGD(0.5), **QUICK)
        before = [keras.ops.convert_to_numpy(weight).copy() for weight in student.weights]
        x, y, weights, _ = make_batch()
        model.train_on_batch(x, y, weights)
        moved.append([keras.ops.convert_to_numpy(weight).copy() for weight in student.weights])
    for weight, then, *now in zip(student.weights, before, *moved, strict=True):
        np.testing.assert_allclose(*now, atol=1e-6, err_msg=weight.path)
        assert "block_1/feed_forward" not in weight.path or (now[1] == then).all()
    assert sum((then != now).any() for then, now in zip(before, moved[1], strict=True)) > 15


RELATIONS = {"hidden_states": 0}
STATES = {"relations": 0}
PARTS = {
    "relations": (BERT | {"scalar_mix": True}, RELATIONS),
    "relations of norms first": ({"block": PreNormBert}, RELATIONS),
    "relations of rotary norms first": ({"block": PreNorm, "num_segments": 0}, RELATIONS),
    "relations of bottlenecks": ({"block": Bottleneck(2), "head_dim": 4}, RELATIONS),
    "relations of shared layers": ({"layer_sharing": "feed_forward"}, RELATIONS),
    "relations of one layer": ({"num_layers": 1}, RELATIONS),
    "a low state": ({"block": PreNorm, "num_segments": 0}, STATES | {"states": [1]}),
    "embeddings": (BERT, STATES | {"states": [0]}),
    "one of two tables of distances": (
        {"attention": [Disentangled(4, 9), Disentangled(6, 9)]},
        STATES | {"states": [1]},
    ),
    "the last state": ({"block": PreNorm, "num_segments": 0, "scalar_mix": True}, STATES | {"states": [3]}),
}


@pytest.mark.any_backend
@pytest.mark.parametrize("what", PARTS)
def test_what_is_trained_is_what_a_gradient_reaches(what):
    config, parts = PARTS[what]
    student, teacher = (random_model(config).encoder for _ in range(2))
    for weight in teacher.weights:
        weight.assign(1.1 * weight.numpy())
    model = Distillation(student, Teacher(teacher), **parts)
    before = [weight.numpy() for weight in model.weights]
    trained = {weight.path for weight in model.trainable_variables}
    model.compile(keras.optimizers.SGD(0.1), **QUICK)
    x, y, weights, _ = make_batch()
    model.train_on_batch(x, y, weights)
    pairs = zip(before, model.weights, strict=True)
    moved = {weight.path for value, weight in pairs if (value != weight.numpy()).any()}
    assert moved <= trained
    assert all(path.endswith("key/bias") for path in trained - moved)  # a softmax over keys is the same with any
    costs, size = ledger(model), sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
    assert costs.optimizer_bytes["total"] == 2 * 4 * size
    assert costs.total == model.count_params() and costs.kept == student.count_params()


@pytest.mark.any_backend
def test_what_another_objective_of_a_sum_reaches_is_trained():
    student, teacher = (random_model(BERT).encoder for _ in range(2))
    makers = [lambda each: Distillation(each, Teacher(teacher), hidden_states=0), lambda each: MaskedLM(each, 8)]
    for model in (Sum(student, makers[:1]), Sum(student, makers)):
        size = sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)
        assert ledger(model).optimizer_bytes["total"] == 2 * 4 * size


def test_it_is_counted_and_made_again():
    model, teacher = reallocated(5)
    counted = ledger(model)
    assert counted.total == model.count_params() and counted.kept == model.encoder.count_params()
    assert sum(entry.parameters for entry in counted.teachers) == teacher.encoder.count_params()
    again = Distillation.from_config(model.get_config())
    assert [weight.shape for weight in again.weights] == [weight.shape for weight in model.weights]
    assert [weight.path for weight in again.droppable_variables] == [
        weight.path for weight in model.droppable_variables
    ]
    with pytest.raises(UserError, match="has no teacher"):
        losses_of(again)


def test_it_is_summed_with_masked_language_modeling():
    model, teacher = reallocated(5)
    student = model.encoder
    makers = [lambda each: Distillation(each, taught_by(teacher)), lambda each: MaskedLM(each, 8)]
    both = Sum(student, makers, weights=[2.0, 1.0])
    assert [each.encoder for each in both.teachers] == [teacher.encoder]
    found = losses_of(both)
    parts = 2 * found["distillation/loss"] + found["masked_lm/loss"]
    assert found["loss"] == pytest.approx(float(parts), rel=1e-5) and found["accuracy"] == found["masked_lm/accuracy"]


@pytest.mark.parametrize("summed", [False, True])
def test_rows_that_fill_a_batch_count_nothing(summed):
    model, teacher = reallocated(5)
    if summed:
        makers = [lambda each: Distillation(each, taught_by(teacher)), lambda each: MaskedLM(each, 8)]
        model = Sum(model.encoder, makers)
    model.track_groups(["de", "en"])
    model.compile(optimizer="sgd", **QUICK)
    x, y, weights, _ = make_batch()
    batch = (x | {"language_ids": np.array([0, 0, 1], "int32")}, y, weights)
    filled = keras.tree.map_structure(lambda part: np.concatenate([part, np.zeros_like(part)]), batch)
    halved = (*batch[:2], weights / 2)
    own, found, of_halves = (model.test_on_batch(*each, return_dict=True) for each in (batch, filled, halved))
    assert found == pytest.approx(own, rel=1e-5, abs=1e-6)
    assert of_halves == pytest.approx(own, rel=1e-5, abs=1e-6)  # what all weigh alike changes no mean


def test_weights_of_rows_are_those_of_what_is_compared():
    model, _ = reallocated(5)
    model.compile(optimizer="sgd", **QUICK)
    x, y, _, _ = make_batch()
    first = {name: column[:1] for name, column in x.items()}
    alone = model.test_on_batch(first, y[:1], return_dict=True)
    found = model.test_on_batch(x, y, sample_weight=np.array([1.0, 0.0, 0.0]), return_dict=True)
    assert found == pytest.approx(alone, rel=1e-4, abs=1e-6)


MISTAKES = {
    "nothing to learn": ({"hidden_states": 0, "relations": 0}, "has nothing to learn"),
    "logits without a head": ({"logits": 1.0}, "logits of Distillation need output_embedding_dim"),
    "a head without logits": ({"output_embedding_dim": 8}, "logits of Distillation need output_embedding_dim"),
    "no such state": ({"states": [4]}, r"states of Distillation are \[4\]; they can be 0 to 3"),
    "another width": ({"teacher_dim": 8}, "of width 16 and the maps lead to 8: set teacher_dim"),
    "a teacher without a head": (
        {"logits": 1.0, "output_embedding_dim": 8},
        "has no masked-LM head: set logits of distillation to 0",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_what_cannot_be_compared_is_refused(what):
    arguments, message = MISTAKES[what]
    student, teacher = (random_model(BERT).encoder for _ in range(2))
    with pytest.raises(UserError, match=message):
        Distillation(student, Teacher(teacher), **arguments)
    if what == "no such state":
        with pytest.raises(UserError, match="is the student itself"):
            Distillation(student, Teacher(student))
        with pytest.raises(UserError, match=r"the teacher of distillation is <Encoder .* make a Teacher of it"):
            Distillation(student, teacher)


@pytest.mark.any_backend
def test_tokens_that_its_teacher_has_no_rows_for_are_a_sentence():
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "input_embedding_dim": 4}
    model = Distillation(Encoder(50, **sizes), Teacher(Encoder(30, **sizes)), output_embedding_dim=None)
    model.compile("sgd")
    ids = np.full((2, 4), 9, "int32")
    x = {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": 0 * ids + 1, "mask_positions": ids[:, :1] - 7}
    with pytest.raises(UserError, match="no label 40: vocabulary_size is 30"):  # which both read in its place
        model.train_on_batch(x, ids[:, :1] + 31)
    with pytest.raises(UserError, match="the teacher: token id 40 has no row"):
        model.test_on_batch(x | {"token_ids": ids + 31}, ids[:, :1])
