"""Merging the weights of encoders of one shape, such as runs of several seeds or fine-tuned on several tasks.

Tensors are merged in float64, one at a time, and written in their own dtype. Encoders that were trained from different
random weights are of one shape too, but between them lies no good encoder: merge those that started from the same.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Literal, TypeAlias, get_args

import keras
import numpy as np

from rembed_keras.errors import Share, UserError, check_counts, shortened
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks.stack import attention_of, has_position_table, has_projection, input_embedding_of
from rembed_keras.modeling.choices import computed
from rembed_keras.modeling.cost import heads_of
from rembed_keras.modeling.layers.adapters import added_variables
from rembed_keras.modeling.saving.changes import changes_of
from rembed_keras.modeling.sizes import groups_of

How: TypeAlias = Literal["average", "slerp", "ties", "greedy"]
HOWS = get_args(How)
PARALLEL = 1e-6  # radians within which two tensors are mixed linearly
OF_TRAINING = ("dropout", "freeze_input_embedding", "rematerialize")  # which change no tensor's shape or meaning
MEANINGS: dict[str, Callable] = {
    "always_project": has_projection,
    "head_dim": heads_of,
    "attention": lambda arguments: [computed(kind) for kind in attention_of(arguments)],
    "layer_groups": groups_of,
    "input_embedding": lambda arguments: computed(input_embedding_of(arguments)),
    "max_sequence_length": lambda arguments: arguments["max_sequence_length"] if has_position_table(arguments) else 0,
}
Tensors = list[np.ndarray]


def average(tensors: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of tensors of one shape. Source: Wortsman et al. 2022 (arXiv:2203.05482), uniform soups.

    >>> average([np.array([1.0, 2.0]), np.array([3.0, 2.0])]).tolist()
    [2.0, 2.0]
    """
    return np.mean([np.asarray(each, "float64") for each in tensors], axis=0)


def slerp(one: np.ndarray, other: np.ndarray, share: Share = 0.5) -> np.ndarray:
    """Spherical linear interpolation of two tensors, each taken as a vector, whose lengths are mixed linearly.

    Args:
        one: a tensor.
        other: another of its shape.
        share: how far to go from one to the other, 0 to 1.

    Source: Shoemake 1985, section 3.3.

    >>> bool(np.allclose(slerp(np.array([2.0, 0.0]), np.array([0.0, 4.0])), 3 * np.sqrt([0.5, 0.5])))
    True
    """
    one, other = np.asarray(one, "float64"), np.asarray(other, "float64")
    lengths = np.linalg.norm(one), np.linalg.norm(other)
    if not all(lengths):
        return (1 - share) * one + share * other
    angle = np.arccos(np.clip(np.vdot(one, other) / np.prod(lengths), -1, 1))
    if angle < PARALLEL or np.pi - angle < PARALLEL:
        return (1 - share) * one + share * other
    parts = (np.sin((1 - share) * angle) * one / lengths[0], np.sin(share * angle) * other / lengths[1])
    return ((1 - share) * lengths[0] + share * lengths[1]) * sum(parts) / np.sin(angle)


def ties(base: np.ndarray, tensors: Sequence[np.ndarray], density: Share = 0.2) -> np.ndarray:
    """What tensors that were trained from one have in common, added to that: trim, elect a sign, average those with it.

    Args:
        base: the tensor that all were trained from.
        tensors: what became of it.
        density: share of a tensor's changes that stay, the largest.

    Source: Yadav et al. 2023 (arXiv:2306.01708), algorithm 1, with lambda 1.

    >>> ties(np.zeros(3), [np.array([3.0, 0.1, -2.0]), np.array([1.0, 4.0, 1.0])], density=0.67).tolist()
    [2.0, 4.0, -2.0]
    """
    base = np.asarray(base, "float64")
    changes = np.stack([_largest(np.asarray(each, "float64") - base, density) for each in tensors])
    agrees = np.sign(changes) == np.sign(changes.sum(axis=0))
    agrees &= changes != 0
    return base + (changes * agrees).sum(axis=0) / np.maximum(agrees.sum(axis=0), 1)


def _largest(change, density):
    """A change of which the smallest entries are 0."""
    kept = max(1, round(density * change.size))
    if kept >= change.size:
        return change
    least = np.partition(np.abs(change), change.size - kept, axis=None)[change.size - kept]
    return np.where(np.abs(change) >= least, change, 0.0)


def greedy(models: Sequence[Tensors], score: Callable[[Tensors], float]) -> tuple[Tensors, list[int], float]:
    """The average of the models that each improve it, tried from the best to the worst.

    Args:
        models: the tensors of each.
        score: of a model's tensors on development data, the higher the better.

    Returns:
        The average, which of the models are in it, and its score, which is no lower than that of any model.

    Source: Wortsman et al. 2022 (arXiv:2203.05482), recipe 1.

    >>> near = lambda tensors: -abs(float(tensors[0][0]) - 2.1)
    >>> made, taken, _ = greedy([[np.array([1.0])], [np.array([3.0])], [np.array([9.0])]], near)
    >>> made[0].tolist(), taken
    ([2.0], [1, 0])
    """
    scores = [score(model) for model in models]
    order = sorted(range(len(models)), key=lambda i: -scores[i])
    taken, best = order[:1], scores[order[0]]
    made = models[taken[0]]
    for i in order[1:]:
        tried = [average(tensors) for tensors in zip(*(models[j] for j in (*taken, i)), strict=True)]
        found = score(tried)
        if found >= best:
            made, taken, best = tried, [*taken, i], found
    return made, taken, best


def merge(
    encoders: Sequence[Encoder],
    how: How = "average",
    base: Encoder | None = None,
    share: Share = 0.5,
    density: Share = 0.2,
    score: Callable[[Encoder], float] | None = None,
) -> tuple[Encoder, list[str]]:
    """An encoder of merged weights.

    Args:
        encoders: two or more of the same arguments; they stay as they are.
        how: "average"; "slerp", of two; "ties", of encoders that were trained from `base`; or "greedy", by `score`.
        base: for "ties", what all were trained from.
        share: for "slerp", how far to go from the first to the second.
        density: for "ties", share of each tensor's changes that stay.
        score: for "greedy", of an encoder on development data, the higher the better.

    Returns:
        The encoder, with the preprocessor of the first, and notes.

    Raises:
        UserError: for an unknown method, fewer than two encoders or too many, encoders of different shapes or with
            non-finite values, or what a method needs and is not given.

    >>> from rembed_keras.modeling import Encoder
    >>> sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16, "input_embedding_dim": 4}
    >>> one, other = Encoder(50, **sizes), Encoder(50, **sizes)
    >>> made, _ = merge([one, other])
    >>> found = [np.asarray(each.token_embedding.embeddings) for each in (made, one, other)]
    >>> bool(np.allclose(found[0], (found[1] + found[2]) / 2))
    True
    """
    check_how(how, len(encoders), base is not None, score is not None, share, density)
    notes = _differences([*encoders, *([] if base is None else [base])])
    models = [_finite(each, f"model {i}", "leave this model out") for i, each in enumerate(encoders, start=1)]
    before = [] if base is None else _finite(base, "the base", "take another one")
    made = type(encoders[0]).from_config(encoders[0].get_config())
    made.preprocessor = encoders[0].preprocessor  # which `score` may read texts by
    if how == "greedy" and score is not None:

        def score_of(tensors):
            _fill(made, tensors)
            return score(made)

        tensors, taken, best = greedy(models, score_of)
        names = ", ".join(str(i + 1) for i in taken)
        notes.append(f"{len(taken)} of {len(models)} models are in it, number {names}; its score is {best:.4f}")
    else:
        columns = [[model[i] for model in models] for i in range(len(models[0]))]
        each = {
            "average": lambda i, column: average(column),
            "slerp": lambda i, column: slerp(column[0], column[1], share),
            "ties": lambda i, column: ties(before[i], column, density),
        }[how]
        tensors = [each(i, column) for i, column in enumerate(columns)]
    _fill(made, tensors)
    return made, notes


def _finite(encoder, name, advice):
    """The tensors of an encoder; a name of it and advice are for the error message about non-finite values."""
    tensors = [np.asarray(weight) for weight in encoder.weights]
    for weight, tensor in zip(encoder.weights, tensors, strict=True):
        if not np.isfinite(tensor).all():
            raise UserError(f"{weight.path} of {name} has non-finite values: {advice}")
    return tensors


def _fill(encoder, tensors):
    for weight, value in zip(encoder.weights, tensors, strict=True):
        weight.assign(np.asarray(value).astype(weight.dtype))


def check_how(how: str, count: int, has_base: bool, has_score: bool, share: float, density: float) -> None:
    """Checks how models are to be merged, which needs none of them.

    Args:
        how: as of `merge`.
        count: of models.
        has_base: whether there is a base.
        has_score: whether there is a score.
        share: as of `merge`.
        density: as of `merge`.

    Raises:
        UserError: for an unknown method, too few models or too many, or what a method needs and is not given.
    """
    if how not in HOWS:
        raise UserError(f"--how is {shortened(how)}; it can be one of {', '.join(HOWS)}")
    if count < 2 or (how == "slerp" and count > 2):
        raise UserError(f"{how} merges {'two' if how == 'slerp' else 'two or more'} models; {count} are given")
    check_counts({"share": share, "density": density}, "Share")
    if (how == "ties") != has_base:
        raise UserError("a base, the model that all were trained from, is needed by ties and by nothing else")
    if (how == "greedy") != has_score:
        raise UserError("development data are needed by greedy and by nothing else")


def _differences(encoders):
    """Notes on what encoders of one shape differ in.

    Raises:
        UserError: for encoders of different shapes, or with layers that were added or quantized.
    """
    first, notes = encoders[0].arguments, {}
    policies = [keras.dtype_policies.serialize(encoder.dtype_policy) for encoder in encoders]
    if any(policy != policies[0] for policy in policies):
        notes["dtype"] = f"dtype is {encoders[0].dtype_policy.name}, as in the first model; others have other values"
    for number, encoder in enumerate(encoders, start=1):
        if added_variables(encoder) or changes_of(encoder):
            raise UserError(f"model {number} has LoRA, adapters or quantized layers: merge models without them")
        for key, value in encoder.arguments.items():
            if _meaning(encoder.arguments, key) == _meaning(first, key):
                continue
            if key not in OF_TRAINING:
                raise UserError(
                    f"{key} is {shortened(value)} in model {number} and {shortened(first[key])} in the first: merged "
                    "models have one shape"
                )
            notes[key] = f"{key} is {shortened(first[key])}, as in the first model; others have other values"
    return [*notes.values()]


def _meaning(arguments, key):
    """An argument of an encoder, as what it makes of the graph if that can be said in several ways."""
    return MEANINGS.get(key, itemgetter(key))(arguments)
