"""A narrower input embedding for an encoder, and a projection that makes up for it."""

import numpy as np
from keras import ops

from rembed_keras.errors import UserError
from rembed_keras.interop.reallocation.low_rank import Narrowing, Reduced, Tables, Usage, narrow
from rembed_keras.modeling import Encoder
from rembed_keras.modeling.blocks.stack import check_narrowing
from rembed_keras.modeling.parts import Parts, make_parts
from rembed_keras.modeling.saving.changes import freeze_again, frozen_in
from rembed_keras.modeling.saving.filling import Values, blank, fill
from rembed_keras.modeling.saving.freezing import is_frozen
from rembed_keras.modeling.sizes import narrowed_arguments


def tables_of(encoder: Encoder) -> Tables:
    """The tables that an encoder sums: those of tokens, of positions and of segments.

    Raises:
        UserError: for a table in bands, whose rows have widths of their own, or an input embedding without a projection
            to fold it into.
    """
    check_narrowing(encoder.arguments)
    if encoder.arguments["input_cutoffs"]:
        raise UserError("an input embedding with input_cutoffs has bands of several widths: it cannot be narrowed")
    embeddings = encoder.parts.embeddings
    return Tables(Values(embeddings.token.embeddings), tuple(Values(each.embeddings) for each in _others(embeddings)))


def with_width(encoder: Encoder, width: int, usage: Usage | None = None) -> tuple[Encoder, float]:
    """An encoder with a narrower input embedding, whose blocks are those of the other, not copies.

    Args:
        encoder: an `Encoder`.
        width: E', from 2 to its own E_in.
        usage: how often rows of its tables are used; equally often by default.

    Returns:
        The encoder, and the share of the variance of its input embedding that is kept; see `narrow`.

    Raises:
        UserError: for a width that the encoder cannot have.
    """
    tables = tables_of(encoder)
    is_normed = encoder.parts.embeddings.norm is not None
    found = narrow(tables, width, usage or Usage.even(tables), is_normed)
    config = narrowed_arguments(encoder.arguments, width)
    dtype = encoder.dtype_policy
    with blank():
        new = make_parts(config, dtype)
        parts = Parts(**(vars(encoder.parts) | {"embeddings": new.embeddings, "projection": new.projection}))
        narrowed = type(encoder)(
            parts=parts, name=encoder.name, trainable=not is_frozen(encoder), dtype=dtype, **config
        )
    ours = [new.embeddings.token, *_others(new.embeddings)]
    for table, rows in zip(ours, (tables.token, *tables.others), strict=True):
        fill(table.embeddings, Reduced(rows, found.reduce))
    _absorb(encoder.parts, found, new.projection)
    freeze_again(narrowed, frozen_in(encoder).get("frozen", ()))
    return narrowed, found.share


def _others(embeddings):
    return [table for table in (embeddings.position, embeddings.segment) if table is not None]


def _absorb(parts: Parts, found: Narrowing, projection) -> None:
    """Puts the wide norm's scale and bias, and the projection that there was, into the new projection."""
    norm, kernel = parts.embeddings.norm, found.expand  # [E', E]
    bias = np.zeros(kernel.shape[1])
    if norm is not None:
        kernel = kernel * _float64(norm.gamma)
        bias = bias if norm.beta is None else _float64(norm.beta)
    if parts.projection is not None:
        wide = _float64(parts.projection.kernel)  # [E, D]
        kernel, bias = kernel @ wide, bias @ wide
        if parts.projection.bias is not None:
            bias = bias + _float64(parts.projection.bias)
    projection.kernel.assign(kernel)
    if projection.bias is not None:
        projection.bias.assign(bias)


def _float64(variable):
    return np.asarray(ops.convert_to_numpy(variable), np.float64)
