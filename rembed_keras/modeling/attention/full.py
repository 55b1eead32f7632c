"""Full attention, and what every kind of attention says of itself."""

from collections.abc import Callable
from typing import Any

from rembed_keras.modeling.cost import Config, heads_of


class Global:
    """Every token attends to all tokens of its document.

    Args:
        rotary_base: of rotary positions, in blocks that have them; see `layers.rotary.rotate`.

    A kind of attention has these methods and attributes; `attend` is None where a softmax over the keys that `restrict`
    leaves is all there is to it, which blocks compute themselves.

    >>> Global().work({"num_heads": 2, "hidden_dim": 8}, length=16)
    (512, 32)
    """

    attend: Callable[..., Any] | None = None

    def __init__(self, rotary_base: float = 10_000.0):
        self.rotary_base = rotary_base

    def restrict(self, mask, positions):
        """The mask that this kind leaves of one.

        Args:
            mask: bool [B, S, S]; query i may attend to key j.
            positions: int [B, S], of each token in its document.

        Returns:
            bool [B, S, S].
        """
        return mask

    def work(self, config: Config, length: int) -> tuple[int, int]:
        """What attending costs, per token: FLOPs of scores and of the sum of values, and activations.

        Args:
            config: an encoder's arguments.
            length: S, the tokens that are attended to.
        """
        heads, head_dim = heads_of(config)
        return 4 * length * heads * head_dim, heads * length

    def get_config(self) -> dict:
        """The arguments that it was made with."""
        return {"rotary_base": self.rotary_base}

    @classmethod
    def from_config(cls, config: dict) -> "Global":
        """A kind of such arguments."""
        return cls(**config)
