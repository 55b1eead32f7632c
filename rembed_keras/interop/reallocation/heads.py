"""The pre-training head of a reallocated encoder, which healing needs and which is dropped again."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType

import keras
import numpy as np

from rembed_keras.errors import UserError, check_counts
from rembed_keras.interop.reallocation.low_rank import Reduced
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.couplings.naming import COUPLINGS
from rembed_keras.modeling.layers.tables import drawn
from rembed_keras.modeling.objectives.pretraining import encoder_of
from rembed_keras.modeling.saving.changes import OF_LAYERS, freeze_again
from rembed_keras.modeling.saving.filling import Rows, Values, blank, fill


def keep_head(model: MaskedLM, encoder: Encoder) -> tuple[MaskedLM, list[str]]:
    """A masked LM of another encoder with the head of a model.

    A head that shares the input table gets it as its own where the other encoder has a narrower one.

    Args:
        model: the model, whose weights stay as they are.
        encoder: the encoder, with the same vocabulary and hidden width.

    Returns:
        The masked LM, and notes.
    """
    arguments = head_arguments(model)
    shares = COUPLINGS.kind(arguments["coupling"]).reads_input
    is_apart = shares and encoder.token_embedding is not model.encoder.token_embedding
    with blank():
        made = headed_as(model, encoder, {"coupling": "decoupled"} if is_apart else {})
    ours = {weight.path: weight for weight in made.droppable_variables}
    for weight in model.droppable_variables:
        if weight.path in ours:
            fill(ours[weight.path], Values(weight))
    notes = []
    if type(model) is not MaskedLM:
        notes.append(f"the head is kept as that of a MaskedLM, and no more as that of a {type(model).__name__}")
    if not is_apart:
        return made, notes
    fill(_own_table(made).embeddings, output_rows(model))
    width = arguments["output_embedding_dim"]
    return made, [*notes, f"the head gets the former output table, of width {width}, as its own; it is dropped with it"]


def headed_as(model: MaskedLM, encoder: Encoder, changes: Mapping = MappingProxyType({})) -> MaskedLM:
    """A masked LM of another encoder with a head as a model's, whose layers are frozen where the model's are.

    Args:
        model: the model.
        encoder: the encoder.
        changes: other arguments of the head than the model's.
    """
    made = MaskedLM(encoder, **{**head_arguments(model), **changes})
    freeze_again(made, model.get_config().get("frozen", ()))
    return made


def new_head(source: keras.Model, encoder: Encoder, width: int) -> tuple[MaskedLM, list[str]]:
    """A masked LM of an encoder with a new head, whose table begins as the closest to that of a model.

    Args:
        source: a model whose output table is taken if it has one, and its input table if not.
        encoder: the encoder, with the same vocabulary.
        width: E_out. Features beyond the width of the table that is taken begin at random.

    Raises:
        UserError: for a model whose output table is in bands.
    """
    check_counts({"output_embedding_dim": width})
    with blank():
        made = MaskedLM(encoder, width)
    kernel, table = made.head.dense.kernel, _own_table(made).embeddings
    kernel.assign(drawn(kernel.shape, seed=0))
    rows = output_rows(source)
    matrix = _leading(rows, min(width, rows.shape[1]))
    if matrix.shape[1] == width:
        fill(table, Reduced(rows, matrix))
    else:
        value = drawn(table.shape, seed=1)
        value[:, : matrix.shape[1]] = np.asarray(Reduced(rows, matrix))
        fill(table, value)
    return made, [f"a new head of width {width} starts from the closest table; its other layers are yet to be trained"]


def head_to_be(model: keras.Model, width: int | None, input_width: int | None) -> tuple[int, str, bool] | None:
    """What head `keep_head` or `new_head` will make: its width, its coupling's name, and whether it has bands.

    Args:
        model: the model.
        width: E_out of a new head, unless the model has one of it; None for none.
        input_width: E_in of a narrower input table; None where it stays.

    Returns:
        None where there will be none.
    """
    own = head_arguments(model) if isinstance(model, MaskedLM) else {}
    if width not in (None, own.get("output_embedding_dim")):
        return width, "decoupled", False
    if not own:
        return None
    kind = COUPLINGS.kind(own["coupling"])
    is_apart = kind.reads_input and input_width is not None
    return own["output_embedding_dim"], "decoupled" if is_apart else kind.name, bool(own["output_cutoffs"])


def output_rows(model: keras.Model) -> Rows:
    """The rows [V, E] that a model scores words with; those of its input table if it scores none.

    Raises:
        UserError: for tables in bands.
    """
    has_head = isinstance(model, MaskedLM)
    if encoder_of(model).arguments["input_cutoffs"]:
        raise UserError("an input embedding with input_cutoffs has bands of several widths: no table is close to it")
    if has_head and head_arguments(model)["output_cutoffs"]:
        raise UserError("a head with output_cutoffs has bands of several widths: no table of another width is close")
    if not has_head:
        return Values(encoder_of(model).token_embedding.embeddings)
    coupling = model.head.output_embedding.coupling
    own = {name: Values(table.embeddings) for name, table in coupling.own.items()}
    return Scored(coupling.kind, Values(model.encoder.token_embedding.embeddings), own, model.head.dense.units)


class Scored:
    """What a coupling scores words with, computed as its rows are asked for; `Rows` for `fill`.

    Args:
        kind: of coupling.
        shared: the input table [V, E_in].
        own: tables of the output's own, by name.
        width: E_out.
    """

    def __init__(self, kind, shared: Rows, own: Mapping[str, Rows], width: int):
        self._kind, self._shared, self._own = kind, shared, own
        self.shape: tuple[int, ...] = (shared.shape[0], width)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._kind.rows(
            np.asarray(self._shared[rows]), {name: np.asarray(table[rows]) for name, table in self._own.items()}
        )

    def __array__(self, dtype=None, copy=None):
        return self[0 : self.shape[0]].astype(dtype or np.float32, copy=False)


def head_arguments(model: MaskedLM) -> dict:
    """What a masked LM is made with besides its encoder and its name; of a user's own class what it takes of that."""
    beside = ("encoder", "name", "preprocessor", *OF_LAYERS)
    taken = inspect.signature(MaskedLM).parameters.keys() - beside
    return {key: value for key, value in model.get_config().items() if key in taken}


def _own_table(model):
    return model.head.output_embedding.coupling.table


def _leading(rows, width):
    """The leading right singular vectors of a table, [E, width]."""
    moment = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, rows.shape[0], 4096):
        piece = np.asarray(rows[start : min(start + 4096, rows.shape[0])], np.float64)
        moment += piece.T @ piece
    return np.linalg.eigh(moment)[1][:, ::-1][:, :width]
