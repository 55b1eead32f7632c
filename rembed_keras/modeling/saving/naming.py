"""The paths that layers and weights of an encoder have in one that is rebuilt from its arguments.

Its blocks are numbered from 0 even if blocks were cut from this one, and so are its kinds of attention, whose number is
in the name of what layers of a kind share.
"""

import re
from collections.abc import Sequence

import keras

from rembed_keras import compat
from rembed_keras.errors import UserError, shortened
from rembed_keras.modeling.blocks.stack import attention_of, kind_numbers

FLOATING = frozenset(("float64", "float32", "bfloat16", "float16"))  # what weights and products can be in
SHARED = re.compile(r"(?<=/heads/shared_)\d+")


def layers_by_name(model) -> dict[str, keras.layers.Layer]:
    """The layers of a model, by the paths that they have in one that is rebuilt."""
    encoder = getattr(model, "encoder", model)
    names = names_in_blocks(encoder.parts.blocks, kind_numbers(attention_of(encoder.arguments)))
    for layer in compat.layers_of(model, include_self=False):
        if layer.path and not isinstance(layer, keras.Model):
            names.setdefault(layer, layer.path)
    return {name: layer for layer, name in names.items()}


def names_in_blocks(blocks: Sequence, numbers: Sequence[int]) -> dict[keras.layers.Layer, str]:
    """The paths of blocks and of all that they are made of in an encoder of these blocks.

    Args:
        blocks: of the encoder.
        numbers: of each block's kind of attention, as of `kind_numbers`.
    """
    names: dict[keras.layers.Layer, str] = {}
    for i, (block, number) in enumerate(zip(blocks, numbers, strict=True)):
        names[block] = f"block_{i}"
        for sublayer in sublayers_of(block):
            for layer in compat.layers_of(sublayer):
                if layer.path:
                    names.setdefault(layer, f"block_{i}/{path_in_block(layer.path, number)}")
    return names


def names_of_weights(encoder) -> dict[int, str]:
    """The paths of the weights of an encoder's blocks, by their ids; what several blocks share goes by the first."""
    pairs = zip(encoder.parts.blocks, kind_numbers(attention_of(encoder.arguments)), strict=True)
    return {
        id(weight): f"block_{i}/{path_in_block(weight.path, number)}"
        for i, (block, number) in reversed([*enumerate(pairs)])
        for weight in block.weights
    }


def path_in_block(path: str, number: int) -> str:
    """A path after the name of its block, which has an attention of the kind of a number.

    >>> path_in_block("block_3/attention/heads/shared_1/norm", 0)
    'attention/heads/shared_0/norm'
    """
    return SHARED.sub(str(number), path.partition("/")[2])


def sublayers_of(block) -> tuple:
    """A block's attention and its feed-forward pair."""
    return block.attention, block.feed_forward


def check_dtype(dtype) -> None:
    """Refuses a dtype policy that no encoder is made in.

    Args:
        dtype: a policy, a name of one, or None for Keras's present one.

    Raises:
        UserError: for one that is not of floating point, or of quantized layers, which would begin as zeros.

    >>> check_dtype("int8_from_float32")
    Traceback (most recent call last):
    rembed_keras.errors.UserError: dtype is 'int8_from_float32'; it must be of floating point, as 'float32' or \
'mixed_bfloat16': for fewer bits call the model's quantize
    """
    name = getattr(keras.config.dtype_policy() if dtype is None else dtype, "name", dtype)
    try:
        given = keras.dtype_policies.get(dtype)
        policy = getattr(given, "default_policy", given)  # of a map
        is_quantized = getattr(policy, "quantization_mode", None) is not None
        is_plain = not is_quantized and {policy.compute_dtype, policy.variable_dtype} <= FLOATING
    except ValueError:  # Keras's, of a name that it does not know
        is_plain = False
    if not is_plain:
        raise UserError(
            f"dtype is {shortened(name)}; it must be of floating point, as 'float32' or 'mixed_bfloat16': for fewer "
            "bits call the model's quantize"
        )


def settle_dtypes(layer) -> None:
    """Gives each part of a layer a policy of its own, where all hold one `DTypePolicyMap`.

    Keras asks such a map for a layer's dtypes, but not where it quantizes the layer or saves it quantized: both fail.
    What has no path, as dropout, takes the dtype of what it is a part of.
    """
    for part in compat.layers_of(layer, recursive=False, include_self=False):
        policies = part.dtype_policy
        if isinstance(policies, keras.dtype_policies.DTypePolicyMap) and not isinstance(part, keras.Model):
            above = policies.default_policy if isinstance(layer, keras.Model) else layer.dtype_policy
            compat.set_dtype_policy(part, policies[part.path] if part.path else above)
        settle_dtypes(part)


def dtypes_of_cut(policy, blocks, config):
    """The dtype policy of an encoder of some of another's blocks: a map knows them by their new paths too.

    Args:
        policy: of the other.
        blocks: those that it has.
        config: its arguments.
    """
    if not isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy
    numbers = kind_numbers(attention_of(config))
    renamed = {name: policy[layer.path] for layer, name in names_in_blocks(blocks, numbers).items()}
    return keras.dtype_policies.DTypePolicyMap(policy.default_policy, dict(policy) | renamed)
