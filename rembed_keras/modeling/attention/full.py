"""Full attention, and what every kind of attention says of itself."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from rembed_keras.errors import UserError, is_within, shortened
from rembed_keras.modeling.attention.platforms import keras_attention
from rembed_keras.modeling.cost import Config, Entry, Work, heads_of
from rembed_keras.modeling.saving.arguments import arguments_of

Kernel: TypeAlias = Literal["auto", "dense"]


class Global:
    """Every token attends to all tokens of its document.

    Args:
        rotary_base: of rotary positions, in blocks that have them; see `attention.rotary.rotate`.
        kernel: "auto" for the fastest kernel that the device has, see `dispatch`; "dense" for a mask of all pairs of
            tokens on every device.

    Raises:
        UserError: for a base that is not above 0, or another kernel.

    A kind of attention has these methods and attributes.

    Attributes:
        attend: None where a softmax over the keys that `restrict` leaves is all there is to it, which blocks compute
            themselves; or a method of `query` [B, Q, H, K], `key` and `value` [B, S, H, K], `mask` bool [B, Q, S], `at`
            int [B, P] or None, and `drop`, the dropout of attention probabilities as a function, or None. It returns
            [B, Q, H, K], or, where `at` says which tokens are wanted, [B, P, H, K]; Q is then P unless
            `needs_all_queries`.
        needs_all_queries: whether a token's output depends on other tokens' queries.
        takes_packed_rows: whether tokens of one document are left alone by others in their row.
        knows_positions: whether it scores positions itself, so that no table of them is added to the embeddings and
            blocks do not rotate queries and keys.
        takes_kernels: whether a fused kernel may do it all, see `dispatch`: a token attends to all tokens of its
            document, or to those at most `window // 2` away. A kind with a `restrict` or an `attend` of its own says
            so itself.
        window: None, or how many tokens such a kernel's window has.

    >>> Global().work({"num_heads": 2, "hidden_dim": 8}, length=16)
    Work(flops=512, needed_of_all=0, activations=32, per_pick=None)
    """

    attend: Callable[..., Any] | None = None
    needs_all_queries = False
    takes_packed_rows = True
    knows_positions = False
    takes_kernels = True
    kernel: Kernel = "auto"
    window: int | None = None

    def __init_subclass__(cls):
        super().__init_subclass__()
        known = next(kind for kind in cls.__mro__ if "takes_kernels" in vars(kind))  # what says it
        own = {each: getattr(cls, each) for each in ("restrict", "attend", "heads")}  # or of a class beside this one
        if any(own[each] is not getattr(known, each, own[each]) for each in own):
            cls.takes_kernels = False

    def __init__(self, rotary_base: float = 10_000.0, kernel: Kernel = "auto"):
        if kernel not in get_args(Kernel):
            raise UserError(f"the kernel of attention is {kernel!r}; it can be one of {', '.join(get_args(Kernel))}")
        if not is_within(rotary_base, "Rate") or not rotary_base:
            raise UserError(f"the rotary_base of attention is {shortened(rotary_base)}; it must be a number above 0")
        self.rotary_base = rotary_base
        if kernel != "auto":  # which is no part of what is saved
            self.kernel = kernel

    def restrict(self, mask, positions):
        """The mask that this kind leaves of one.

        Args:
            mask: bool [B, S, S]; query i may attend to key j.
            positions: int [B, S], of each token in its document.

        Returns:
            bool [B, S, S].
        """
        return mask

    def shared_layer(self, config: Config, name: str, dtype=None):
        """What all layers of this kind have in common: a layer that their `heads` get as `shared`; None for none."""

    def shared_entry(self, config: Config) -> Entry | None:
        """The ledger's entry of the variables of `shared_layer`: of tables if its name says "embeddings"."""

    def heads(self, config: Config, dtype=None):
        """The heads of a layer, in blocks that do not rotate queries and keys."""
        from rembed_keras.modeling.attention.heads import Heads

        return Heads(*heads_of(config), config["dropout"], self.attend, dtype=dtype)

    def work(self, config: Config, length: float) -> Work:
        """What attending costs, per token: scores and the sum of values, without the projections.

        Args:
            config: an encoder's arguments.
            length: S, the tokens that there are.
        """
        heads, head_dim = heads_of(config)
        return Work(flops=4 * length * heads * head_dim, needed_of_all=0, activations=heads * length)

    def get_config(self) -> dict:
        """The arguments that it was made with: those that it keeps under their names."""
        return arguments_of(self)

    @classmethod
    def from_config(cls, config: dict) -> "Global":
        """A kind of such arguments."""
        return cls(**config)


def check_place(kind, block, head_dim: int) -> None:
    """Checks that blocks have a place for what a kind of attention brings: positions, or heads of its own.

    Args:
        kind: of attention.
        block: the kind of block.
        head_dim: K, features of a head.

    Raises:
        UserError: if they would both tell positions, or the heads be left out; or for rotary positions of an odd K.
    """
    name, other = type(kind).__name__, type(block).__name__
    if block.is_rotary and head_dim % 2:
        raise UserError(
            f"a head is {head_dim} wide, and {other} blocks rotate pairs of its features: take an even head_dim"
        )
    if kind.knows_positions and block.is_rotary:
        raise UserError(f"attention {name} scores positions itself, and {other} blocks rotate by them: take others")
    if kind.knows_positions and block.has_own_heads:
        raise UserError(f"attention {name} scores positions itself, and {other} blocks cannot: take others")
    brings = isinstance(kind, Global) and any(
        getattr(type(kind), each) is not getattr(Global, each) for each in ("heads", "shared_layer")
    )
    if brings and (block.is_rotary or block.has_own_heads):
        raise UserError(f"attention {name} brings heads, and {other} blocks have no place for them: take others")


def softmax_attention(query, key, value, mask, drop):
    """Softmax attention over the keys that a mask leaves; leading axes may be more than the batch.

    Args:
        query: [..., Q, H, K].
        key: [..., S, H, K].
        value: [..., S, H, K].
        mask: bool [..., Q, S]; a query without a key takes the mean of all values.
        drop: dropout of the probabilities, a function; None for none, and Keras's own attention does it then.

    Returns:
        [..., Q, H, K].
    """
    from keras import ops

    if drop is None:
        shape = ops.shape(query)
        query, key, value = (ops.reshape(x, (-1, *ops.shape(x)[-3:])) for x in (query, key, value))
        mask = ops.reshape(mask, (-1, *ops.shape(mask)[-2:]))
        return ops.reshape(keras_attention(query, key, value, mask), shape)
    scale = query.shape[-1] ** -0.5
    scores = ops.einsum("...qhk,...shk->...hqs", query * ops.cast(scale, query.dtype), key)
    shares = ops.cast(masked_softmax(scores, mask[..., None, :, :]), value.dtype)
    return ops.einsum("...hqs,...shk->...qhk", drop(shares), value)


def masked_softmax(scores, mask):
    """Softmax over the last axis in float32, of what a bool mask leaves."""
    from keras import ops

    scores = ops.where(mask, ops.cast(scores, "float32"), -1e30)
    if scores.shape[-1] == 1:  # of which Keras warns
        return ops.ones_like(scores)
    return ops.softmax(scores, axis=-1)
