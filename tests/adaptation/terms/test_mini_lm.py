"""MiniLM's relations and divergences equal loops in float64, in both kinds of blocks, packed and padded."""

import copy

import keras
import numpy as np
import pytest

from own_parts.modeling.attention import OneWay
from rembed_keras.adaptation.teachers import Teacher
from rembed_keras.adaptation.terms import MiniLM
from rembed_keras.analysis.cost.ledger import ledger
from rembed_keras.errors import UserError
from rembed_keras.modeling import Classifier, Encoder, LateMaskedLM, MaskedLM
from rembed_keras.modeling.attention import Local
from rembed_keras.modeling.blocks import PostNorm, PreNorm
from tests.modeling.forward import QUICK, forward
from tests.modeling.test_encoder import FIRST, SECOND, make_encoder, make_inputs

ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")
PRE_NORM = {"block": PreNorm, "layer_norm_epsilon": 1e-5}


def make_batch():
    """A packed row with padding, and a row of one document."""
    x = make_inputs([[FIRST, SECOND], [SECOND]], 12)
    x["mask_positions"] = np.array([[1, 2, 5], [2, 0, 0]], "int32")
    return x, np.array([[11, 7, 21], [32, 0, 0]], "int32"), np.array([[1, 1, 1], [1, 0, 0]], "float32")


def rotated(heads, positions, base=10_000.0):
    """Rotary positions of [S, H, K], a pair of features at a time."""
    half = heads.shape[-1] // 2
    angles = positions[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = heads[..., :half], heads[..., half:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def reference_heads(encoder, layer, states, positions):
    """Queries, keys and values [S, H, K] of one row in float64."""
    hidden = np.asarray(states[layer], "float64")
    attention = encoder.parts.blocks[layer].attention
    values = {name: [np.asarray(w, "float64") for w in dense.weights] for name, dense in attention.projections.items()}
    if encoder.block.norms_first:
        if attention.norm is not None:
            scale = np.asarray(attention.norm.weights[0], "float64")
            centered = hidden - hidden.mean(-1, keepdims=True)
            hidden = scale * centered / np.sqrt(hidden.var(-1, keepdims=True) + 1e-5)
        made = {name: np.einsum("sd,dhk->shk", hidden, values[name][0]) for name in ("query", "key", "value")}
        return made | {name: rotated(made[name], positions) for name in ("query", "key")}
    return {
        name: np.einsum("sd,dhk->shk", hidden, values[name][0]) + values[name][1] for name in ("query", "key", "value")
    }


def reference_loss(student, teacher, x, relations, count, teacher_layer=-1):
    """The mean over rows of KL(teacher, student), by loops over documents, relations, heads and tokens."""
    outputs = [forward(each, {key: x[key] for key in ENCODER_INPUTS}) for each in (student, teacher)]
    rows = []
    for row, documents in enumerate(x["padding_mask"]):
        nats, tokens = 0.0, np.count_nonzero(documents)
        for number in range(1, documents.max() + 1):
            (at,) = np.nonzero(documents == number)
            ours, theirs = (
                reference_heads(each, layer % each.num_layers, [s[row][at] for s in out["hidden_states"]], at - at[0])
                for each, out, layer in zip((student, teacher), outputs, (-1, teacher_layer), strict=True)
            )
            for name in relations:
                left, right = name.split("-")
                shares = []
                for heads in (theirs, ours):
                    cut = [heads[side].reshape(len(at), -1) for side in (left, right)]
                    width = cut[0].shape[1] // count
                    for_head = []
                    for h in range(count):
                        span = slice(h * width, (h + 1) * width)
                        scores = cut[0][:, span] @ cut[1][:, span].T / np.sqrt(width)
                        powers = np.exp(scores - scores.max(-1, keepdims=True))
                        for_head.append(powers / powers.sum(-1, keepdims=True))
                    shares.append(for_head)
                for p, q in zip(*shares, strict=True):
                    nats += (p * np.log(p / q)).sum() / count
        rows.append(nats / tokens)
    return np.mean(rows)


def loss_of(model, term, batch=None):
    """What a term logs of a step, and the logs."""
    model.use_terms([term])
    model.compile(optimizer=keras.optimizers.SGD(0.0), **QUICK)
    logs = model.train_on_batch(*(batch or make_batch()), return_dict=True)
    return float(logs[term.name]), logs


@pytest.mark.parametrize(
    ("changes", "relations", "count", "of_teacher", "layer"),
    [
        ({}, ("query-key", "value-value"), None, {"num_layers": 3}, -1),
        (PRE_NORM, ("query-key", "value-value"), None, {"num_layers": 3}, -1),
        (PRE_NORM, ("query-query", "key-key", "value-value"), 4, {"num_heads": 4, "hidden_dim": 24}, -1),
        ({}, ("value-value",), 8, {"num_layers": 3}, 1),
    ],
)
def test_equals_a_loop_in_float64(changes, relations, count, of_teacher, layer):
    student, teacher = make_encoder(**changes), make_encoder(**changes | of_teacher)
    term = MiniLM(Teacher(teacher), relations=relations, relation_heads=count, teacher_layer=layer)
    seen, logs = loss_of(MaskedLM(student, 20), term)
    expected = reference_loss(student, teacher, make_batch()[0], relations, count or 2, layer)
    assert expected > 0.002
    assert np.isclose(seen, expected, rtol=1e-4)
    assert np.isclose(logs["term_losses"], seen)


@pytest.mark.parametrize("block", [PostNorm, PreNorm])
def test_a_teacher_like_its_student_gives_0(block):
    student, teacher = make_encoder(block=block), make_encoder(block=block)
    seen, _ = loss_of(MaskedLM(student, 20), MiniLM(Teacher(teacher)))
    assert seen == 0


def test_padding_changes_nothing():
    (x, y, weights), wide = make_batch(), {}
    for key in ENCODER_INPUTS:
        wide[key] = np.pad(x[key], [(0, 0), (0, 5)])
    changes = {"max_sequence_length": 20}
    pairs = []
    for inputs in (x, x | wide):
        student, teacher = make_encoder(**changes), make_encoder(**changes, num_layers=3)
        pairs.append(loss_of(MaskedLM(student, 20), MiniLM(Teacher(teacher)), (inputs, y, weights))[0])
    assert np.isclose(*pairs, rtol=1e-5)


def test_a_student_learns_its_teachers_relations_and_the_teacher_nothing():
    teacher = make_encoder()
    values = [weight.numpy() for weight in teacher.weights]
    model = MaskedLM(make_encoder(num_layers=1), 20)
    model.use_terms([MiniLM(Teacher(teacher), weight=10.0)])
    model.compile(optimizer=keras.optimizers.Lion(3e-3))
    seen = []
    for _ in range(30):
        seen.append(model.train_on_batch(*make_batch(), return_dict=True)["mini_lm"])
        model.reset_metrics()
    assert seen[-1] < 0.3 * seen[0]
    for weight, value in zip(teacher.weights, values, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


def test_fine_tuning_distills_too():
    x, _, _ = make_batch()
    inputs = {key: x[key] for key in ENCODER_INPUTS}
    student, teacher = make_encoder(), make_encoder(num_layers=3)
    seen, _ = loss_of(Classifier(student, 3, dropout=0.0), MiniLM(Teacher(teacher)), (inputs, np.array([0, 2])))
    assert np.isclose(seen, reference_loss(student, teacher, x, ("query-key", "value-value"), 2), rtol=1e-4)


@pytest.mark.parametrize(
    ("model", "teacher", "arguments", "reason"),
    [
        (lambda: MaskedLM(make_encoder(), 20), {"num_heads": 4}, {}, "relation_heads"),
        (lambda: MaskedLM(make_encoder(), 20), {}, {"relation_heads": 3}, "does not divide"),
        (lambda: MaskedLM(make_encoder(), 20), {}, {"teacher_layer": 2}, "has 2 blocks"),
        (lambda: MaskedLM(make_encoder(attention=Local(4)), 20), {}, {}, "the student's block has Local"),
        (lambda: MaskedLM(make_encoder(), 20), {"attention": Local(4)}, {}, "the teacher's block has Local"),
        (lambda: MaskedLM(make_encoder(attention=OneWay()), 20), {}, {}, "the student's block has OneWay"),
        (lambda: LateMaskedLM(make_encoder(), 20), {}, {}, "sees only some"),
    ],
)
def test_refuses_what_it_cannot_compare(model, teacher, arguments, reason):
    with pytest.raises(UserError, match=reason):
        model().use_terms([MiniLM(Teacher(make_encoder(**teacher)), **arguments)])


def test_a_student_does_not_teach_itself():
    model = MaskedLM(make_encoder(), 20)
    with pytest.raises(UserError, match="student itself"):
        model.use_terms([MiniLM(Teacher(model.encoder))])


def test_a_student_that_was_cut_from_its_teacher_is_refused_and_a_copy_learns():
    whole = make_encoder(num_layers=2)
    cut = copy.deepcopy(whole).with_layers(1)
    with pytest.raises(UserError, match=r"mini_lm has layers of the student's, .* copy.deepcopy\(encoder\)"):
        MaskedLM(whole.with_layers(1), 20).use_terms([MiniLM(Teacher(whole))])
    model = MaskedLM(cut, 20)
    model.use_terms([MiniLM(Teacher(whole))])
    assert cut.token_embedding.embeddings in model.trainable_variables


@pytest.mark.any_backend
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabulary_size": 20}, "the teacher: token id .* vocabulary_size is 20"),
        ({"max_sequence_length": 4}, "the teacher: a document is longer than max_sequence_length, 4"),
    ],
)
def test_inputs_that_the_teacher_has_no_rows_for_are_a_sentence(changes, message):
    model = Classifier(make_encoder(num_layers=1), 3)
    model.use_terms([MiniLM(Teacher(make_encoder(num_layers=1, **changes)))])
    model.compile("sgd")
    x = {key: column for key, column in make_batch()[0].items() if key in ENCODER_INPUTS}
    for loop in (model.fit, model.train_on_batch):
        with pytest.raises(UserError, match=message):
            loop(x, np.array([0, 1]))
    model.check_taught("test", x)  # in which no term is computed


def test_a_teacher_of_one_segment_reads_pairs_in_it():
    x, y, weights = make_batch()
    pairs = x | {"segment_ids": np.tile(np.arange(12, dtype="int32") > 3, (2, 1)).astype("int32")}
    teacher = Teacher(make_encoder(num_segments=1))
    seen, _ = loss_of(MaskedLM(make_encoder(), 20), MiniLM(teacher), (pairs, y, weights))
    assert np.isfinite(seen)
    plain, read = (
        teacher.read(inputs)["sequence_output"] for inputs in (x | {"segment_ids": 0 * x["segment_ids"]}, pairs)
    )
    np.testing.assert_array_equal(plain, read)


@pytest.mark.parametrize(
    "arguments", [{"relations": ("query-values",)}, {"relations": ()}, {"weight": -1.0}, {"relation_heads": 0}]
)
def test_wrong_arguments_are_refused_by_name(arguments):
    with pytest.raises(UserError, match="mini_lm"):
        MiniLM(Teacher(make_encoder()), **arguments)


def test_the_ledger_has_the_teacher_in_a_column_of_its_own():
    student, teacher = make_encoder(), make_encoder(num_layers=3, hidden_dim=24)
    model = MaskedLM(student, 20)
    before = ledger(model)
    model.use_terms([MiniLM(Teacher(teacher))])
    costs = ledger(model)
    assert (costs.kept, costs.dropped, costs.total) == (before.kept, before.dropped, before.total)
    assert costs.teacher["parameters"] == teacher.count_params()
    assert costs.teacher["flops_per_token"] == ledger(teacher).flops["total"]
    assert costs.flops["kept"] == before.flops["kept"]
    extra = costs.flops["dropped"] - before.flops["dropped"]
    assert extra == 3 * 2 * 16 * 16 + 2 * (2 * 12 * 16)  # projections; two relations of 12 tokens
    assert costs.to_json()["teacher"] == costs.teacher
    assert "teacher" not in before.to_json()


def test_a_teacher_is_an_encoder_or_a_place():
    with pytest.raises(UserError, match="place of a teacher"):
        Teacher(7)
    assert isinstance(Teacher(make_encoder()).encoder, Encoder)
