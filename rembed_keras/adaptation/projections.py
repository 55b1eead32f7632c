"""Changes of an encoder's projections that can be folded into them: low-rank products and plane rotations.

Each is a `ProjectionChange`: it says how a projection's outputs change, and what matrix and bias come to the same.
"""

from typing import Literal, TypeAlias, get_args

import keras
from keras import ops

from rembed_keras.errors import Count, UserError, check_counts
from rembed_keras.modeling.layers.sublayer import ProjectionChange

Variant: TypeAlias = Literal[1, 2, 4]


@keras.saving.register_keras_serializable(package="rembed_keras")
class LowRank(ProjectionChange):
    """A product of two factors of rank r, added to a projection's matrix: LoRA.

    Args:
        rank: r.
        alpha: the product is multiplied by alpha / r; not at all by default.
        name: the layer's name.
        trainable: whether it is trained.
        dtype: dtype or policy of the layer.

    It has r x (I + O) parameters. Source: Hu et al. 2022, equation 3.

    >>> change = LowRank(2)
    >>> change.build((None, None, 3), (None, None, 5))
    >>> change.count_params()
    16
    """

    def __init__(
        self,
        rank: Count,
        alpha: float | None = None,
        name: str = "lora",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        check_counts({"LoRA's rank": rank})
        self.rank, self.alpha = rank, alpha
        self._scale = 1.0 if alpha is None else alpha / rank

    def build(self, inputs_shape, outputs_shape):
        self.left = self.add_weight(shape=(inputs_shape[-1], self.rank), initializer="he_uniform", name="left")
        self.right = self.add_weight(shape=(self.rank, outputs_shape[-1]), initializer="zeros", name="right")

    def call(self, inputs, outputs):
        return outputs + self._scale * ops.matmul(ops.matmul(inputs, self.left), self.right)  # [..., I] -> [..., O]

    def fold(self, kernel, bias):
        product = ops.matmul(ops.cast(self.left, kernel.dtype), ops.cast(self.right, kernel.dtype))  # [I, O]
        return kernel + self._scale * product, bias

    def clear(self):
        self.right.assign(ops.zeros(self.right.shape))

    def get_config(self):
        return super().get_config() | {"rank": self.rank, "alpha": self.alpha}


@keras.saving.register_keras_serializable(package="rembed_keras")
class Rotations(ProjectionChange):
    """Rotations and scales of pairs of a projection's features: RoAd.

    The features come in groups, and feature i of a group's first half makes a pair with feature i of its second half,
    as in rotary positions. Of a pair (x, y) come (a cos t x - b sin u y, c sin v x + d cos w y).

    Args:
        variant: how many angles and scales a pair has: 1; 2, one for each of the two results; or 4.
        group_size: features of a group, even; it must divide the projection's outputs. All of them by default.
        name: the layer's name.
        trainable: whether it is trained.
        dtype: dtype or policy of the layer.

    It has `variant` x O parameters. Source: Liao and Monz 2024, equations 2 and 3; grouped as in Hugging Face's PEFT.
    """

    def __init__(
        self,
        variant: Variant = 1,
        group_size: Count | None = None,
        name: str = "road",
        trainable: bool = True,
        dtype: str | keras.DTypePolicy | None = None,
    ):
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        if variant not in get_args(Variant):
            raise UserError(f"RoAd's variant is {variant!r}; it can be one of {', '.join(map(str, get_args(Variant)))}")
        check_counts({"RoAd's group_size": 2 if group_size is None else group_size})
        self.variant, self.group_size = variant, group_size

    def build(self, inputs_shape, outputs_shape):
        width = outputs_shape[-1]
        size = width if self.group_size is None else self.group_size
        if size % 2 or width % size:
            raise UserError(f"RoAd's group_size is {size}; it must be even and divide {width}, a projection's features")
        self._half = size // 2
        shape = (self.variant, width // size, self._half)
        self.angle = self.add_weight(shape=shape, initializer="zeros", name="angle")
        self.scale = self.add_weight(shape=shape, initializer="ones", name="scale")

    def _turned(self, features, dtype):
        """[..., O] -> [..., O], rotated."""
        angle, scale = (ops.cast(each, dtype) for each in (self.angle, self.scale))
        kept, crossed = scale * ops.cos(angle), scale * ops.sin(angle)  # [variant, groups, half]
        # which of the angles and scales are a's, b's, c's and d's
        own, other = {1: ((0, 0), (0, 0)), 2: ((0, 1), (0, 1)), 4: ((0, 1), (2, 3))}[self.variant]
        groups = ops.reshape(features, (*ops.shape(features)[:-1], angle.shape[1], 2, self._half))
        x, y = groups[..., 0, :], groups[..., 1, :]
        turned = ops.stack(
            [kept[own[0]] * x - crossed[other[0]] * y, crossed[other[1]] * x + kept[own[1]] * y], axis=-2
        )
        return ops.reshape(turned, ops.shape(features))

    def call(self, inputs, outputs):
        return self._turned(outputs, outputs.dtype)

    def fold(self, kernel, bias):
        return self._turned(kernel, kernel.dtype), None if bias is None else self._turned(bias, bias.dtype)

    def clear(self):
        self.angle.assign(ops.zeros(self.angle.shape))
        self.scale.assign(ops.ones(self.scale.shape))

    def get_config(self):
        return super().get_config() | {"variant": self.variant, "group_size": self.group_size}
