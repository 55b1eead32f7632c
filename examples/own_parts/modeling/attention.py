"""An attention: only the tokens before and the token itself are attended to, or only those after."""

import keras
from keras import ops

from rembed_keras.modeling.attention import Global


@keras.saving.register_keras_serializable(package="own_parts")
class OneWay(Global):
    """Attends backward, or forward; a pattern of both over layers sees both sides. Source: Shen et al. 2018 (DiSAN).

    >>> mask, positions = np.ones((1, 2, 2), bool), np.array([[0, 1]])
    >>> ops.convert_to_numpy(OneWay().restrict(mask, positions)).tolist()
    [[[True, False], [True, True]]]
    """

    def __init__(self, is_forward: bool = False, rotary_base: float = 10_000.0):
        super().__init__(rotary_base)
        self.is_forward = is_forward

    def restrict(self, mask, positions):
        query, key = positions[:, :, None], positions[:, None, :]  # [B, S, 1], [B, 1, S]
        is_seen = key >= query if self.is_forward else key <= query
        padding = ops.logical_not(ops.any(ops.logical_and(mask, is_seen), axis=-1, keepdims=True))
        return ops.logical_and(mask, ops.logical_or(is_seen, padding))  # no softmax is empty
