"""Loss terms: what is added to a model's own loss, and where the model shows them what it computes.

A term gives a loss for each row or prediction; the model takes their mean as it takes that of its own loss, over all
replicas and micro-batches, and logs it by the term's name. What a term draws at random is apart from what the model
draws: its dropout is the same with the term and without. A teacher's weights are handed to a step as the model's own
are, so that on JAX no program has them as constants, and are in no file that the model is saved in.
"""

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.losses.row_weights import fits, of_each, of_rows
from rembed_keras.modeling.losses.weights import by_step, counts, weight_at
from rembed_keras.modeling.micro_batches import optimizer_at
from rembed_keras.modeling.objectives.running_means import RECORDED, MeanOfNumbers
from rembed_keras.modeling.replicas import shares, take_places

TAKEN = ("loss", "accuracy", "layer_losses", "term_losses", *RECORDED)
OFFSET = 40503  # between the seeds of a model's draws and those of its terms


class HasTerms:
    """A model whose loss has terms; a mixin that stands before the model's class.

    Attributes:
        terms: those that count: of a weight that is not always 0.
    """

    terms: Sequence[Any] = ()

    def use_terms(self, terms: Sequence[Any]) -> None:
        """Makes terms a part of the loss of training, in place of those before; evaluation's stays as it is.

        No file holds them: a model that is read from one, to be trained on, is given them again.

        Args:
            terms: see `adaptation.terms.Term`. One of weight 0 is left out, and costs nothing.

        Raises:
            UserError: for what is no term, two of one name, a name that logs have already, or one that does not suit
                this model.
        """
        model: Any = self
        if not isinstance(terms, Sequence):
            raise UserError(f"loss terms are a list, and {shortened(terms)} is none: put it in []")
        for term in terms:
            if isinstance(term, type) or not callable(getattr(term, "loss", None)):
                raise UserError(f"{term!r} is no loss term; in a recipe it ends in (), as @terms.RDrop()")
        names = [term.name for term in terms]
        for name in names:
            if not isinstance(name, str) or names.count(name) > 1 or {name, name.split("/")[0]} & self.names_of_logs:
                raise UserError(
                    f"a loss term is called {shortened(name)}: give each a name of its own, not one of logs"
                )
        counted = tuple(term for term in terms if counts(term))
        for term in counted:
            if hasattr(term, "check"):
                term.check(model)
        self.terms = counted
        self._schedules = {term.name: by_step(term.weight, term.name) for term in self.terms}
        self._weights_now = Held()  # of terms whose weights change, in the present step
        for former in (getattr(self, "term_means", []), getattr(self, "term_weights", [])):
            former.clear()  # or logs would have them on
        self.term_means = [MeanOfNumbers(name=term.name) for term in self.terms]
        self.term_weights = [keras.metrics.Mean(name=f"{name}/weight") for name in self._changing]
        model.train_function = None  # which was compiled for other terms, if it was
        if self.terms:
            model.compiles_gradients = False  # a term may ask other replicas, which XLA cannot
            model.reading.note.want()

    @property
    def names_of_logs(self) -> set[str]:
        """Names of logs besides those of terms."""
        model: Any = self
        former = {id(metric) for metric in (*getattr(self, "term_means", []), *getattr(self, "term_weights", []))}
        others = [metric for metric in model.metrics if id(metric) not in former]
        return {*TAKEN, *(each.name for metric in others for each in getattr(metric, "metrics", [metric]))}

    def get_compile_config(self) -> dict:
        """Keras's, and the names of the terms."""
        config = super().get_compile_config()  # type: ignore[misc] # the model's
        return config | {"terms": [term.name for term in self.terms]} if config and self.terms else config

    def note_terms(self, config: dict) -> dict:
        """What `compile` takes of a configuration, of terms that are not there a warning."""
        model: Any = self
        if names := config.get("terms"):
            warnings.warn(
                f"{model.name} was trained with the loss terms {', '.join(names)}, which are in no file: give them to "
                "use_terms before you train on",
                stacklevel=3,
            )
        return {key: value for key, value in config.items() if key != "terms"}

    @property
    def _changing(self):
        """Schedules of the weights that change by step."""
        return {name: pairs for name, pairs in getattr(self, "_schedules", {}).items() if len(pairs) > 1}

    @property
    def teacher_variables(self) -> list:
        """The weights of all teachers, of terms and of the model's own."""
        weights = (weight for teacher in self._teachers_of((*self.terms, self)) for weight in teacher.weights)
        return [*{id(weight): weight for weight in weights}.values()]

    def check_taught(self, step: str, x: object) -> None:
        """Raises a UserError for inputs in memory that a teacher has no rows for, if the step asks it.

        Args:
            step: "train" or "test", in which no term is computed.
            x: the model's inputs.
        """
        for teacher in self._teachers_of((*self.terms, self) if step == "train" else (self,)):
            if hasattr(teacher, "check_inputs"):  # which one of a user's own need not have
                teacher.check_inputs(x)

    @staticmethod
    def _teachers_of(asking):
        return [teacher for each in asking for teacher in getattr(each, "teachers", ())]

    @property
    def non_trainable_variables(self):
        """The model's, and those of its teachers, which are no others of its `variables`."""
        return [*super().non_trainable_variables, *self.teacher_variables]  # type: ignore[misc] # the model's

    def make_train_function(self, force=False):
        """The model's, after teachers took their places."""
        take_places(self.teacher_variables)
        return super().make_train_function(force)  # type: ignore[misc] # the model's

    def make_test_function(self, force=False):
        """As `make_train_function`: a teacher's weights are handed to every step."""
        take_places(self.teacher_variables)
        return super().make_test_function(force)  # type: ignore[misc] # the model's

    def make_predict_function(self, force=False):
        """As `make_train_function`."""
        take_places(self.teacher_variables)
        return super().make_predict_function(force)  # type: ignore[misc] # the model's

    def train_step(self, *args):
        """The model's, at the step's weights of its terms."""
        model: Any = self
        with optimizer_at(model.optimizer, *args[:-1]):
            self.weigh_terms()
        return super().train_step(*args)  # type: ignore[misc] # the model's

    def test_step(self, *args):
        """The model's, in which no term is computed."""
        _TESTS.value = True
        try:
            return super().test_step(*args)  # type: ignore[misc] # the model's
        finally:
            _TESTS.value = None

    @property
    def logs_terms(self) -> bool:
        """Whether logs have terms: evaluation computes none, and means of nothing would be NaN."""
        return bool(self.terms) and not _TESTS.value and not all(_is_zero(mean.count) for mean in self.term_means)

    def get_metrics_result(self) -> dict:
        """The model's, without terms that were not computed."""
        return self.without_idle_terms(super().get_metrics_result())  # type: ignore[misc] # the model's

    def without_idle_terms(self, logs: dict) -> dict:
        """Logs without those of terms, unless training has computed them since metrics were reset."""
        if not self.terms or self.logs_terms:
            return logs
        idle = {metric.name for metric in (*self.term_means, *self.term_weights)}
        return {name: log for name, log in logs.items() if name not in idle}

    def weigh_terms(self) -> None:
        """Looks up the weights of terms that change, at the optimizer's step."""
        model: Any = self
        if self._changing:
            step = model.optimizer.iterations
            self._weights_now.value = {name: weight_at(pairs, step) for name, pairs in self._changing.items()}

    def terms_loss(self, x, y, y_pred, sample_weight):
        """The share that a replica and micro-batch has in the weighted sum of all terms, a float32 scalar."""
        model: Any = self
        total = ops.zeros((), "float32")
        if not self.terms:
            return total
        note = model.reading.note
        seen = note.value
        states = _seed_states(model)
        before = [state.value * 1 for state in states]
        changing = self._weights_now.value if self._changing else {}
        for state, value in zip(states, before, strict=True):
            state.assign(value + ops.cast(OFFSET, value.dtype))
        for term, mean in zip(self.terms, self.term_means, strict=True):
            note.value = seen  # whatever another term had the model compute
            losses = _losses(term, term.loss(model, (x, y, sample_weight), y_pred))
            weights, parts = _counts(term, losses, x, sample_weight)
            mean.update_state(losses, weights)
            weight = changing.get(term.name, self._schedules[term.name][0][1])
            total = total + weight * ops.sum(losses * parts)
        for state, value in zip(states, before, strict=True):
            state.assign(value)
        for mean, name in zip(self.term_weights, self._changing, strict=True):
            mean.update_state(changing[name])
        note.value = None
        return total

    def terms_result(self):
        """The running mean of `terms_loss`."""
        weights = {name: mean.result() for name, mean in zip(self._changing, self.term_weights, strict=True)}
        pairs = zip(self.terms, self.term_means, strict=True)
        return sum(weights.get(term.name, self._schedules[term.name][0][1]) * mean.result() for term, mean in pairs)


class Held(threading.local):
    """A value that Keras does not track as a part of a model: each replica, which is a thread of its own, has another.

    Attributes:
        value: None at first.
    """

    value: Any = None


_TESTS = Held()  # whether a step of evaluation runs, or is compiled


class Note(Held):
    """What an encoder computed when it was last called, for loss terms; kept only while they want it.

    Attributes:
        value: "inputs", as the encoder was called with them; "hidden_states"; and "sequence_output" and
            "pooled_output" unless only some tokens were computed, as the predicted ones [B, P] of masked tokens, which
            are then the last of "hidden_states". None if it was not called, as where masked tokens come in late.
    """

    def __init__(self, wish: set):
        self._wish = wish  # one for all threads, each of which begins with this very argument

    def want(self) -> None:
        """Has it kept from now on."""
        self._wish.add("value")

    def take(self, **value) -> None:
        """Keeps it, if it is wanted."""
        if self._wish:
            self.value = value


def _seed_states(model):
    """States of a model's generators of random numbers."""
    weights = {id(weight) for weight in model.weights}
    return [each for each in model.variables if id(each) not in weights and "int" in str(each.dtype)]


def _is_zero(count):
    """Whether a number is 0; False of one of a graph that is being made."""
    try:
        return not np.asarray(ops.convert_to_tensor(count)).any()
    except (TypeError, NotImplementedError, ValueError):
        return False


def _losses(term, given):
    """What a term gives, float32."""
    try:
        return ops.cast(given, "float32")
    except (TypeError, ValueError):
        said = f"loss term {term.name} gives {shortened(given)}"
        raise UserError(f"{said}; it must be a loss for each row or prediction") from None


def _counts(term, losses, x, sample_weight):
    """What each loss of a term counts in its mean, and its share in the mean of the whole batch."""
    if isinstance(x, Mapping) and "row_shares" in x:  # of an objective
        kind = "target" if len(losses.shape) > 1 else "row"
        parts, given = x[f"{kind}_shares"], len(losses.shape)
        if given and (given != len(parts.shape) or not fits(parts, losses)):  # a number alone is the mean itself
            said = f"loss term {term.name} gives losses of shape {tuple(losses.shape)}"
            raise UserError(f"{said}; they must be one a row or one a prediction, here {tuple(parts.shape)}")
        return x[f"{kind}_weights"], parts
    if sample_weight is None:
        weights = ops.ones_like(losses)
    else:  # of which a tagger has one a token, and a term perhaps one a row
        weights = of_each(sample_weight if fits(sample_weight, losses) else of_rows(sample_weight), losses)
    return weights, shares(weights)
