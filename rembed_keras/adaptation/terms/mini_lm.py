"""MiniLM: a student's last block shall relate tokens to one another as a block of its teacher does.

What is compared are distributions over the tokens of a document, S x S whatever the widths, so that a student may be
narrower and shallower than its teacher.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from rembed_keras.adaptation.teachers import Teacher, check_teacher
from rembed_keras.adaptation.terms.term import Term, Weight
from rembed_keras.errors import Count, UserError, check_counts, shortened
from rembed_keras.modeling.attention import Global
from rembed_keras.modeling.blocks.stack import attention_of
from rembed_keras.modeling.cost import Config, Entry, inner_dim

Relation: TypeAlias = Literal["query-key", "query-query", "key-key", "value-value"]
SIDES = ("query", "key", "value")


class MiniLM(Term):
    """Kullback-Leibler divergences of a student's relations from its teacher's, in nats a token, head and relation.

    A relation is a softmax of scaled dot products between the tokens of a document: of queries and keys, which is
    self-attention, of values and values, and so on. Of disentangled attention the products of distances are left out:
    what its tokens say is compared. Padding counts nowhere, and tokens of other documents of a packed
    row neither. The mean is over the tokens and heads of a row, then over rows; relations are added.

    Args:
        teacher: a `Teacher`, which reads what the student's encoder reads.
        weight: a number, or numbers by step.
        relations: which: the two of MiniLM by default; MiniLMv2 takes "query-query", "key-key" and "value-value".
        relation_heads: into how many heads queries, keys and values are cut to be compared; by default as many as each
            has, which must then be the same.
        teacher_layer: which block of the teacher, -1 being the last.
        name: what logs call it.

    Raises:
        UserError: for an unknown relation or none; or, when it is used, for encoders that have not the same heads,
            attention that is no full softmax, or a student whose encoder does not read whole rows.

    Source: Wang et al. 2020, section 3 (arXiv:2002.10957); Wang et al. 2021, section 3 (arXiv:2012.15828), for relation
    heads.
    """

    def __init__(
        self,
        teacher: Teacher,
        weight: Weight = 1.0,
        relations: Sequence[Relation] = ("query-key", "value-value"),
        relation_heads: Count | None = None,
        teacher_layer: int = -1,
        name: str = "mini_lm",
    ):
        super().__init__(weight, name)
        unknown = [each for each in relations if each not in get_args(Relation)]
        if unknown or not relations:
            given = shortened([*relations])
            raise UserError(f"relations of {name} are {given}; they can be {', '.join(get_args(Relation))}")
        check_counts({f"relation_heads of {name}": 1 if relation_heads is None else relation_heads})
        check_teacher(teacher, name)
        self.teacher = teacher
        self.relations = tuple(relations)
        self.relation_heads = relation_heads
        self.teacher_layer = teacher_layer

    @property
    def teachers(self) -> Sequence[Teacher]:
        return (self.teacher,)

    def check_model(self, model) -> None:
        if not model.reads_rows:
            raise UserError(f"{self.name} compares all tokens of a row, and the encoder of {model.name} sees only some")

    def check(self, model) -> None:
        student, teacher = model.reading, self.teacher.encoder
        self.teacher.check_apart(model.encoder, self.name)
        self.check_model(model)
        self.check_compared(student.arguments, teacher.arguments)
        sublayers = {
            "student": student.parts.blocks[-1].attention,
            "teacher": teacher.parts.blocks[self.teacher_layer].attention,
        }
        for who, sublayer in sublayers.items():
            kind = getattr(sublayer, "kind", sublayer)
            _check_full(self.name, who, kind, hasattr(sublayer, "queries_keys_values"))

    def check_compared(self, student: Config, teacher: Config) -> None:
        check_relations(self.name, self.relation_heads, student, teacher, self.teacher_layer)

    def loss(self, model, batch: tuple, outputs: Any):
        note = model.reading.note.value
        states = self.teacher.read(note["inputs"])["hidden_states"]
        return self.compared(model.reading, note["hidden_states"], states, note["inputs"]["padding_mask"])

    def compared(self, student, states, teacher_states, documents):
        """The losses [B] of a student's encoder, of the hidden states of both.

        Args:
            student: the encoder.
            states: its hidden states, L + 1 times [B, S, D].
            teacher_states: the teacher's.
            documents: the padding mask, int [B, S].
        """
        ours = self._heads(student, -1, states, documents)
        theirs = self._heads(self.teacher.encoder, self.teacher_layer, teacher_states, documents)
        pairs = [[relation(heads, each, self.relation_heads) for heads in (theirs, ours)] for each in self.relations]
        return sum(divergence(teacher, student, documents) for teacher, student in pairs)

    def _heads(self, encoder, layer, states, documents):
        """Queries, keys and values [B, S, H, K] of a block, by what they are."""
        from rembed_keras.modeling.documents import document_positions

        layer = layer % encoder.num_layers
        sublayer = encoder.parts.blocks[layer].attention
        made = sublayer.queries_keys_values(states[layer], document_positions(documents))
        return dict(zip(SIDES, made, strict=True))

    def ledger_entries(self, encoder: Config, entries: Sequence[Entry], length: int) -> list[Entry]:
        """The student's relations, and queries, keys and values once more, of all tokens."""
        inner = inner_dim(encoder)
        projected = 6 * encoder["hidden_dim"] * inner
        scores = 2 * length * inner * len(self.relations)
        numbers = length * (self.relation_heads or encoder["num_heads"]) * len(self.relations) + 3 * inner
        return [Entry(f"{self.name}: relations", (), projected + scores, is_kept=False, activations=numbers)]


def relation(heads, name: Relation, count: int | None = None):
    """Scaled dot products between tokens.

    Args:
        heads: [B, S, H, K] of each of the `SIDES`.
        name: which two.
        count: into how many heads they are cut; H by default.

    Returns:
        float32 [B, count, S, S].
    """
    from keras import ops

    left, right = (ops.cast(heads[side], "float32") for side in name.split("-"))
    if count is not None:
        width = left.shape[-2] * left.shape[-1]
        shape = (*ops.shape(left)[:2], count, width // count)
        left, right = ops.reshape(left, shape), ops.reshape(right, shape)
    return ops.einsum("bqhk,bshk->bhqs", left * left.shape[-1] ** -0.5, right)


def divergence(teacher, student, documents):
    """How far a student's relation is from its teacher's, a mean over tokens and heads.

    Args:
        teacher: scores, float32 [B, H, S, S].
        student: the same; gradients flow here only.
        documents: the padding mask, int [B, S]; 0 for padding, and the number of each token's document.

    Returns:
        float32 [B], in nats.
    """
    from keras import ops

    from rembed_keras.modeling.documents import attention_mask

    mask = attention_mask(documents)[:, None]  # [B, 1, S, S]
    teacher, student = (ops.where(mask, scores, -1e30) for scores in (ops.stop_gradient(teacher), student))
    gap = ops.log_softmax(teacher, axis=-1) - ops.log_softmax(student, axis=-1)
    nats = ops.sum(ops.where(mask, ops.softmax(teacher, axis=-1) * gap, 0.0), axis=-1)  # [B, H, S]
    is_real = ops.cast(ops.cast(documents, "bool"), "float32")
    return ops.divide_no_nan(ops.sum(ops.mean(nats, axis=1) * is_real, axis=1), ops.sum(is_real, axis=1))


def check_relations(name: str, count: int | None, student: Config, teacher: Config, teacher_layer: int = -1) -> None:
    """Checks that the attention of an encoder's last block can be compared with that of a block of its teacher.

    Args:
        name: of what compares them, for messages.
        count: into how many heads both are cut; None for those that they have.
        student: the arguments of one.
        teacher: those of the other.
        teacher_layer: which block of the teacher.

    Raises:
        UserError: if it cannot, for its kind or its heads, or there is no such block.
    """
    layers = teacher["num_layers"]
    if not -layers <= teacher_layer < layers:
        raise UserError(f"teacher_layer of {name} is {teacher_layer}; the teacher has {layers} blocks")
    blocks = ("student", student, -1), ("teacher", teacher, teacher_layer)
    for who, config, layer in blocks:
        _check_full(name, who, attention_of(config)[layer])
    if count is None and student["num_heads"] != teacher["num_heads"]:
        heads = f"{student['num_heads']} heads and the teacher {teacher['num_heads']}"
        raise UserError(f"the student has {heads}: bind relation_heads of {name}")
    for who, config, _ in blocks:
        if count is not None and inner_dim(config) % count:
            raise UserError(f"relation_heads of {name} is {count}, which does not divide the {who}'s heads' width")


def _check_full(name, who, kind, can_compare=True):
    """Refuses attention in which a token does not attend to all of its document, by a softmax."""
    if not (can_compare and kind.attend is None and type(kind).restrict is Global.restrict):
        raise UserError(f"{name} compares full attention, and the {who}'s block has {type(kind).__name__}")
