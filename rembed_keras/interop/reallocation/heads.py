"""The pre-training head of a reallocated encoder, which healing needs and which is dropped again."""

import keras
import numpy as np

from rembed_keras.errors import UserError, check_counts
from rembed_keras.interop.reallocation.low_rank import Reduced
from rembed_keras.modeling import Encoder, MaskedLM
from rembed_keras.modeling.saving.filling import Rows, blank, fill


def keep_head(model: MaskedLM, encoder: Encoder) -> tuple[MaskedLM, list[str]]:
    """A masked LM of another encoder with the head of a model.

    A head that shares the input table gets it as its own where the other encoder has a narrower one.

    Args:
        model: the model, whose weights stay as they are.
        encoder: the encoder, with the same vocabulary and hidden width.

    Returns:
        The masked LM, and notes.
    """
    arguments = _arguments(model)
    is_apart = arguments["coupling"] != "decoupled" and encoder.token_embedding is not model.encoder.token_embedding
    with blank():
        made = MaskedLM(encoder, **(arguments | ({"coupling": "decoupled"} if is_apart else {})))
    ours = {weight.path: weight for weight in made.droppable_variables}
    for weight in model.droppable_variables:
        if weight.path in ours:
            fill(ours[weight.path], weight.value)
    if not is_apart:
        return made, []
    fill(_own_table(made).embeddings, output_rows(model))
    width = arguments["output_embedding_dim"]
    return made, [f"the head gets the former output table, of width {width}, as its own; it is dropped with it"]


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
    keras.utils.set_random_seed(0)
    made = MaskedLM(encoder, width)
    rows = output_rows(source)
    matrix = _leading(rows, min(width, rows.shape[1]))
    table = _own_table(made).embeddings
    if matrix.shape[1] == width:
        fill(table, Reduced(rows, matrix))
    else:
        value = np.array(keras.ops.convert_to_numpy(table))
        value[:, : matrix.shape[1]] = np.asarray(Reduced(rows, matrix))
        fill(table, value)
    return made, [f"a new head of width {width} starts from the closest table; its other layers are yet to be trained"]


def output_rows(model: keras.Model) -> Rows:
    """The rows [V, E] that a model scores words with; those of its input table if it scores none.

    Raises:
        UserError: for tables in bands.
    """
    if not isinstance(model, MaskedLM):
        return model.token_embedding.embeddings
    coupling, shared = _arguments(model)["coupling"], model.encoder.token_embedding
    if _arguments(model)["output_cutoffs"] or model.encoder.arguments["input_cutoffs"]:
        raise UserError("a head with output_cutoffs has bands of several widths: no table of another width is close")
    if coupling == "coupled":
        return shared.embeddings
    if coupling == "decoupled":
        return _own_table(model).embeddings
    own = model.head.output_embedding.coupling
    if coupling == "extended":
        return Beside(shared.embeddings, own.columns.embeddings)
    return Sum(shared.embeddings, own.difference.embeddings)


class Sum:
    """The sum of two tables, computed as its rows are asked for; `Rows` for `fill`."""

    def __init__(self, one: Rows, other: Rows):
        self._two = (one, other)
        self.shape: tuple[int, ...] = tuple(one.shape)

    def __getitem__(self, rows: slice) -> np.ndarray:
        one, other = (np.asarray(table[rows]) for table in self._two)
        return one + other

    def __array__(self, dtype=None, copy=None):
        return self[0 : self.shape[0]].astype(dtype or np.float32, copy=False)


class Beside(Sum):
    """The columns of two tables beside each other; `Rows` for `fill`."""

    def __init__(self, one: Rows, other: Rows):
        super().__init__(one, other)
        self.shape = (one.shape[0], one.shape[1] + other.shape[1])

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.concatenate([np.asarray(table[rows]) for table in self._two], axis=1)


def _arguments(model):
    return {key: value for key, value in model.get_config().items() if key not in ("encoder", "name")}


def _own_table(model):
    return model.head.output_embedding.coupling.table


def _leading(rows, width):
    """The leading right singular vectors of a table, [E, width]."""
    moment = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, rows.shape[0], 4096):
        piece = np.asarray(rows[start : min(start + 4096, rows.shape[0])], np.float64)
        moment += piece.T @ piece
    return np.linalg.eigh(moment)[1][:, ::-1][:, :width]
