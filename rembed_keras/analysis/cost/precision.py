"""Bytes of weights and of what an optimizer remembers, by the dtype or the policy of Keras that a model is in."""

from collections.abc import Callable, Sequence
from typing import Any

from rembed_keras.modeling.cost import Entry, Shape
from rembed_keras.modeling.sizes import NARROW

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}  # of a number
MAP = "map_"  # with which Keras's name of a map of policies begins, before that of its default
MIXED = "mixed_"  # policies of Keras that keep float32 weights and compute in what follows


def name_of(dtype: Any) -> str:
    """The name of a dtype or of a policy, as Keras serializes it too; a map's default; float32 without one.

    >>> import keras
    >>> policies = keras.dtype_policies.DTypePolicyMap("mixed_bfloat16")
    >>> name_of(policies), name_of(keras.dtype_policies.serialize(policies)), name_of("bfloat16"), name_of(None)
    ('mixed_bfloat16', 'mixed_bfloat16', 'bfloat16', 'float32')
    """
    if isinstance(dtype, dict):
        config = dtype.get("config", {})
        return name_of(config.get("name", config.get("default_policy")))
    return str(getattr(dtype, "name", dtype) or "float32").removeprefix(MAP)


def stored_in(dtype: str) -> str:
    """The dtype of weights under a dtype or a policy.

    >>> stored_in("mixed_bfloat16")
    'float32'
    """
    return "float32" if dtype.startswith(MIXED) else dtype


def size_of_number(dtype: str) -> int:
    """Bytes of a number; of float32's if it is unknown."""
    return BYTES.get(dtype, BYTES["float32"])


def size_of_weights(entries: Sequence[Entry], dtype: Any) -> int:
    """Bytes of the weights of a ledger's entries under a dtype or a policy; of a map's default, as `name_of` has it.

    >>> size_of_weights([Entry("projection", ((4, 8),))], "mixed_bfloat16")
    128
    """
    stored = stored_in(name_of(dtype))
    return sum(size_of_number(entry.dtype or stored) * entry.parameters for entry in entries)


def size_of_slot(stored: str) -> int:
    """Bytes of a number that an optimizer remembers of weights in a dtype.

    >>> size_of_slot("bfloat16")
    4
    """
    return max(size_of_number("float32"), size_of_number(stored))


def remembered_of(
    entries: Sequence[Entry], slots: Callable[[Sequence[Entry]], list[tuple[Shape, ...]]], stored: str
) -> list[tuple[Shape, ...]]:
    """Shapes of what is remembered of each entry's variables: slots, and float32 copies of weights in 16 bits.

    Args:
        entries: of a ledger.
        slots: of entries, the shapes of an optimizer's slots.
        stored: the dtype of weights.

    >>> remembered_of([Entry("projection", ((4, 8),))], lambda entries: [((4, 8),)], "bfloat16")
    [((4, 8), (4, 8))]
    """
    copies = [entry.trained_shapes if (entry.dtype or stored) in NARROW else () for entry in entries]
    return [(*own, *copied) for own, copied in zip(slots(entries), copies, strict=True)]
