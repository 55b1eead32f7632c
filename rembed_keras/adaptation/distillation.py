"""Distillation: an encoder learns to compute what a teacher computes of the same text.

It heals an encoder whose parameters were reallocated, with the encoder that it was made of as the teacher. What is
learned beside the encoder, maps of its hidden states to the teacher's and a head, is dropped after training.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from rembed_keras.adaptation.distillation_cost import check_compared, compared_states, distillation_entries, read_depth
from rembed_keras.adaptation.teachers import Teacher, check_teacher
from rembed_keras.adaptation.terms.mini_lm import MiniLM
from rembed_keras.errors import Count, CountOrZero, Rate, UserError, check_counts
from rembed_keras.modeling.couplings.naming import COUPLINGS, Coupling
from rembed_keras.modeling.encoder import Encoder
from rembed_keras.modeling.layers.sublayer import pick
from rembed_keras.modeling.losses.row_weights import counted
from rembed_keras.modeling.objectives.masked_tokens import chosen, make_head, with_mask_positions
from rembed_keras.modeling.objectives.pretraining import PretrainingModel
from rembed_keras.modeling.objectives.running_means import MeanOfNumbers, numbers

PARTS = ("hidden_states", "relations", "logits")  # of the loss, as logs call them


@keras.saving.register_keras_serializable(package="rembed_keras")
class Distillation(PretrainingModel):
    """Trains an encoder to compute what a teacher does: its hidden states, relations of tokens, and predictions.

    The loss is a weighted sum of at most three parts:

    * `hidden_states`: the squared distance of the student's states, mapped linearly, from the teacher's, over the
      squared length of these; a mean over rows and the compared states. The maps begin as the identity.
    * `relations`: those of `terms.MiniLM`, in nats, of both last blocks.
    * `logits`: the Kullback-Leibler divergence of the predictions of masked tokens, in nats a prediction; of a teacher
      with a masked-LM head and the same vocabulary. It costs the logits of both, 2 x P x V float32 numbers a row.

    A student that computes what its teacher does, of the same width and depth, has a loss of 0 before the first step.

    Args:
        encoder: an `Encoder`; what is kept.
        teacher: a `Teacher`; None for a model that is read from a file, which cannot be trained.
        hidden_states: weight of this part; 0 leaves it out.
        relations: weight of this part.
        logits: weight of this part.
        states: which of the student's L + 1 hidden states are compared, 0 being the embeddings; all by default. State i
            is compared with state i of the teacher, or the one at the same share of its depth.
        teacher_dim: the teacher's hidden width; the student's by default.
        relation_heads: as in `terms.MiniLM`, for encoders with different heads.
        reads_masked: whether both read masked tokens as masked. By default they read the text itself, as encoders do
            whose users never mask anything.
        output_embedding_dim: E_out of the head that predicts, which `logits` needs.
        coupling: of the head, as in `MaskedLM`.
        micro_batches: as in `MaskedLM`.
        name: the model's name.

    Inputs and targets as `MaskedLM`'s. Logs have `loss`, and each part by its name.

    Raises:
        UserError: for no part, states that are not there, logits without a head or the reverse, a teacher that is none;
            or, when it is trained, without a teacher, or with one that cannot be compared.

    Source: Wang et al. 2020 (arXiv:2002.10957) for relations; Jiao et al. 2020 (arXiv:1909.10351), section 3.1, for
    hidden states through learned maps.

    >>> from rembed_keras.adaptation import Teacher
    >>> from rembed_keras.modeling import Encoder
    >>> sizes = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    >>> student, teacher = (Encoder(100, input_embedding_dim=width, **sizes) for width in (4, 8))
    >>> model = Distillation(student, Teacher(teacher))
    >>> len(model.droppable_variables), model.drop_heads() is student
    (6, True)
    """

    ledger_entries = staticmethod(distillation_entries)
    check_compared = staticmethod(check_compared)
    takes_metrics = False  # of logits, which are not made
    heads_of = ("rembed_keras>MaskedLM",)

    def __init__(
        self,
        encoder: Encoder,
        teacher: Teacher | None = None,
        hidden_states: Rate = 1.0,
        relations: Rate = 1.0,
        logits: Rate = 0.0,
        states: Sequence[CountOrZero] | None = None,
        teacher_dim: Count | None = None,
        relation_heads: Count | None = None,
        reads_masked: bool = False,
        output_embedding_dim: Count | None = None,
        coupling: Coupling = "decoupled",
        micro_batches: Count = 1,
        name: str = "distillation",
    ):
        self.part_weights = dict(zip(PARTS, (hidden_states, relations, logits), strict=True))
        arguments = {
            **self.part_weights,
            "states": None if states is None else [*states],
            "teacher_dim": teacher_dim,
            "relation_heads": relation_heads,
            "reads_masked": reads_masked,
            "output_embedding_dim": output_embedding_dim,
            "coupling": COUPLINGS.told(coupling),
        }
        compared = compared_states(arguments, encoder.num_layers)
        width = encoder.arguments["hidden_dim"] if teacher_dim is None else teacher_dim
        check_counts({"teacher_dim": width})
        maps = {state: _linear(width, f"map_{state}", encoder.dtype_policy) for state in compared}
        head = make_head(encoder, output_embedding_dim, coupling, ()) if output_embedding_dim is not None else None
        inputs = encoder.input if head is None else with_mask_positions(encoder.input)
        made = encoder(encoder.input)
        outputs = {"sequence_output": made["sequence_output"]}
        outputs |= {f"map_{state}": maps[state](made["hidden_states"][state]) for state in compared}
        if head is not None:
            outputs["logits"] = head(made["sequence_output"], inputs["mask_positions"])
        super().__init__(encoder, inputs, outputs, arguments, name, micro_batches)
        self.maps, self.width, self.teacher = maps, width, teacher
        self.head: Any = head
        self.reads_masked = reads_masked
        related = _layers_of_heads(encoder.parts.blocks[-1].attention, encoder) if relations else []
        self._related = lambda: related  # which Keras would track, if it were a list
        self.relation_heads = relation_heads
        self.part_means = {part: MeanOfNumbers(name=part) for part in PARTS if self.part_weights[part]}
        if teacher is not None:
            check_teacher(teacher, name)
            teacher.needs_head = teacher.needs_head or head is not None
            if teacher.is_open:
                self.check_teachers()

    def trained(self, variables: list) -> list:
        """Those of `variables` that a part of the loss reads: of the student, none above the highest state compared."""
        parts, depth = self.encoder.parts, read_depth(self._arguments, self.encoder.num_layers)
        read = [parts.embeddings, parts.projection, *parts.blocks[:depth], *self._related()]
        read += [parts.norm] if depth == len(parts.blocks) else []
        read += [parts.mix] if self.head is not None else []
        moved = {id(weight) for layer in read if layer is not None for weight in layer.weights}
        idle = {id(weight) for weight in self.encoder.weights} - moved
        return [variable for variable in super().trained(variables) if id(variable) not in idle]

    @property
    def teachers(self) -> Sequence[Teacher]:
        return () if self.teacher is None else (self.teacher,)

    def check_teachers(self) -> None:
        teacher = self._asked
        theirs = teacher.encoder.arguments
        teacher.check_apart(self.encoder, self.name)
        check_compared(self._arguments | {"name": self.name}, self.encoder.arguments, theirs)
        if "relations" in self.part_means:
            self._relations.check(self)
        if self.head is None:
            return
        if teacher.head is None:
            raise UserError(f"the teacher {teacher.place} has no masked-LM head: set logits of {self.name} to 0")
        rows = theirs["vocabulary_size"], self.encoder.arguments["vocabulary_size"]
        if rows[0] != rows[1]:
            raise UserError(f"the teacher predicts {rows[0]} tokens and the student {rows[1]}: set logits to 0")

    @property
    def _asked(self) -> Teacher:
        """The teacher, which a model that was read from a file has not."""
        if self.teacher is None:
            raise UserError(f"{self.name} has no teacher: bind teacher of {type(self).__name__} to @teachers.Teacher()")
        return self.teacher

    @property
    def _relations(self):
        return MiniLM(self._asked, relation_heads=self.relation_heads, name="relations")

    @property
    def metrics(self):
        """Without an accuracy: there is nothing to hit."""
        return [metric for metric in super().metrics if metric is not self.accuracy]

    def known_labels(self, x):
        rows = (each.arguments["vocabulary_size"] for each in (self.encoder, *(own.encoder for own in self.teachers)))
        return min(rows), "vocabulary_size"  # both read them

    def shares_of(self, x, y, sample_weight) -> dict:
        own = super().shares_of(x, y, sample_weight)
        return own | {"targets": counted(y, own["target_weights"])}

    def call(self, inputs, training=None, mask=None):
        if "targets" not in inputs:
            return super().call(inputs, training=training, mask=mask)
        read = {key: inputs[key] for key in self.encoder.input}
        if not self.reads_masked:
            read["token_ids"] = unmasked(
                read["token_ids"], inputs["mask_positions"], inputs["targets"], inputs["target_weights"]
            )
        ours, theirs = self.encoder(read, training=training), self._asked.read(read)
        losses: dict[str, Any] = {}
        states = ours["hidden_states"], theirs["hidden_states"]
        if "hidden_states" in self.part_means:
            losses["hidden_states"] = self._distance(*states, read["padding_mask"])
        if "relations" in self.part_means:
            losses["relations"] = self._relations.compared(self.encoder, *states, read["padding_mask"])
        if "logits" in self.part_means:
            losses["logits"] = self._gap(ours["sequence_output"], theirs["sequence_output"], inputs["mask_positions"])
        return losses

    def _distance(self, ours, theirs, documents):
        """Squared distances of mapped states over the squared lengths of the teacher's, a mean over states, [B]."""
        is_real = ops.cast(ops.cast(documents, "bool"), "float32")[:, :, None]  # [B, S, 1]
        total: Any = 0.0
        for state, layer in self.maps.items():
            wanted = ops.cast(theirs[round(state * (len(theirs) - 1) / (len(ours) - 1))], "float32")
            gap = (ops.cast(layer(ours[state]), "float32") - wanted) * is_real  # [B, S, D]
            total = total + ops.divide_no_nan(
                ops.sum(gap**2, axis=(1, 2)), ops.sum((wanted * is_real) ** 2, axis=(1, 2))
            )
        return total / len(self.maps)

    def _gap(self, ours, theirs, positions):
        """Divergences [B, P] of predictions from the teacher's."""
        logits = self.head(ours, positions)  # [B, S, D] -> [B, P, V]
        head: Any = self._asked.head
        wanted = head.output_embedding(head.features(pick(theirs, positions)))
        return divergence_of(ops.stop_gradient(wanted), logits)

    def loss_of(self, x, y, y_pred, sample_weight):
        """The weighted sum of the parts: means over rows, and of logits over predictions."""
        total = ops.zeros((), "float32")
        for name, losses in y_pred.items():
            parts = x["target_shares" if len(losses.shape) > 1 else "row_shares"]
            total = total + self.part_weights[name] * ops.sum(losses * parts)
        return total

    def update_metrics(self, x, y, y_pred, sample_weight):
        rows: Any = 0.0
        for name, losses in y_pred.items():
            is_by_row = len(losses.shape) == 1
            weights = x["row_weights" if is_by_row else "target_weights"]
            self.part_means[name].update_state(losses, weights)
            own = losses
            if not is_by_row:
                own = ops.divide_no_nan(ops.sum(losses * weights, axis=1), ops.sum(weights, axis=1))  # [B, P] -> [B]
            rows = rows + self.part_weights[name] * own
        if self.loss_by_group is not None:
            losses, weights = numbers(rows, x["row_weights"])
            self.loss_by_group.update_state(losses, x["language_ids"], weights)

    def loss_result(self):
        return sum(self.part_weights[name] * mean.result() for name, mean in self.part_means.items())

    def nats_of(self, logs) -> None:
        return None


def divergence_of(wanted, logits):
    """Kullback-Leibler divergences of softmaxes from those wanted, in nats: logits [..., N] twice -> float32 [...].

    >>> rows = np.array([[0.0, 0.0], [0.0, np.log(3)]], "float32")
    >>> bool(np.allclose(divergence_of(rows[:1], rows[1:]), np.log(4 / 3) / 2))
    True
    """
    wanted, logits = (ops.log_softmax(ops.cast(each, "float32"), axis=-1) for each in (wanted, logits))
    return ops.sum(ops.exp(wanted) * (wanted - logits), axis=-1)


def unmasked(token_ids, mask_positions, targets, weights):
    """A masked row as it was before.

    Args:
        token_ids: int [B, S].
        mask_positions: int [B, P], rising, empty slots last and 0.
        targets: what was there, int [B, P].
        weights: float [B, P], 0 for empty slots.

    Returns:
        int32 [B, S].

    >>> ids = unmasked(np.array([[2, 4, 9]]), np.array([[1, 0]]), np.array([[7, 0]]), np.array([[1.0, 0.0]]))
    >>> ops.convert_to_numpy(ids).tolist()
    [[2, 7, 9]]
    """
    is_here = chosen(mask_positions, ops.shape(token_ids)[1]) * ops.cast(weights > 0, "float32")[:, :, None]
    is_here = ops.cast(is_here, "int32")  # [B, P, S]
    there = ops.sum(is_here * ops.cast(targets, "int32")[:, :, None], axis=1)
    return ops.where(ops.max(is_here, axis=1) > 0, there, ops.cast(token_ids, "int32"))


def _layers_of_heads(attention, encoder):
    """The layers that make queries, keys and values, which relations alone read of a block; none where it has none."""
    if not hasattr(attention, "queries_keys_values"):
        return []
    hidden = keras.Input(batch_shape=(1, 1, encoder.arguments["hidden_dim"]), dtype=encoder.compute_dtype)
    positions = keras.Input(batch_shape=(1, 1), dtype="int32")  # something has to read them, for Keras 3.10
    return keras.Model([hidden, positions], [attention.queries_keys_values(hidden, positions), positions + 0]).layers


def _linear(width, name, dtype):
    return keras.layers.Dense(width, kernel_initializer="identity", name=name, dtype=dtype)
