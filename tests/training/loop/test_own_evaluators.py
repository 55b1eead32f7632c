"""Evaluators of one's own: what they are given."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest

from own_parts.training.evaluator import Anisotropy
from rembed_keras.training.distributed import meshes
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.evaluators.evaluator import EvaluationData
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.loop.evaluation import Evaluation
from tests.training.evaluators.test_held_out_loss import compiled
from tests.training.loop.test_evaluation import make_gdes
from tests.training.pretraining import make_mixture


class FirstWeight:
    """Looks at the token table that is kept."""

    def evaluate(self, model, data):
        table = keras.ops.convert_to_numpy(model.encoder.token_embedding.embeddings)  # [V, E_in]
        return {"first": float(table[0, 0])}


def test_they_are_given_the_encoder_as_it_would_be_kept(held_out_corpus):
    model, data = compiled(make_gdes), EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))
    evaluation = Evaluation([FirstWeight()], 1, data)
    for value in (0.25, 0.5):
        table = model.generator.token_embedding.embeddings
        table.assign(keras.ops.full(table.shape, value))  # as a step moves it, and not the encoder's own
        assert evaluation.scalars(model) == {"first": value}


def test_what_is_made_once_is_of_its_owner_though_that_is_gone(held_out_corpus):
    data = EvaluationData(make_mixture(held_out_corpus), place("one_device", 4))
    assert [data.once(object(), lambda number=number: number) for number in range(9)] == [*range(9)]
    owner = object()
    assert [data.once(owner, lambda number=number: number) for number in (3, 4)] == [3, 3]


def test_that_of_own_parts_asks_all_processes_for_a_table_that_may_be_spread_over_them(monkeypatch):
    asked, rows = [], keras.Variable([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]])
    monkeypatch.setattr(checkpoints, "whole", lambda value: asked.append(value) or meshes.whole(value))
    model = SimpleNamespace(encoder=SimpleNamespace(token_embedding=SimpleNamespace(weights=[rows])))
    assert Anisotropy().evaluate(model, None) == {"anisotropy": pytest.approx(1 / 3)}
    np.testing.assert_array_equal([np.asarray(each) for each in asked], [np.asarray(rows)])
