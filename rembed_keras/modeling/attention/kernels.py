"""Fused attention on TPUs by JAX's own kernel, which knows packed rows by segment ids; untested on hardware.

It is compared with softmax attention where JAX interprets it, on CPU. Sources: Dao et al. 2022 (FlashAttention);
JAX's `pallas.ops`.
"""

PADDED = -1  # the segment of what fills a row up, which attends to itself alone
LANES = 128  # what a TPU's blocks are multiples of
BLOCKS = (512, 256, LANES)


def splash_attention(query, key, value, documents, key_documents, window=None, interpret=False):
    """Attention on TPUs.

    Args:
        query: [B, Q, H, K].
        key: [B, S, H, K].
        value: [B, S, H, K].
        documents: int [B, Q], of queries; they attend to the keys of their document, padding, 0, to padding.
        key_documents: int [B, S].
        window: tokens in all that a query attends to, at most `window // 2` on either side; None for all. Then Q is S.
        interpret: whether JAX interprets the kernel, as it can without a TPU.

    Returns:
        [B, Q, H, K].
    """
    import jax
    from jax import numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash

    count, heads, width = query.shape[1:]
    query = query * jnp.asarray(width**-0.5, query.dtype)
    query, key, value = (jnp.swapaxes(_filled(each, 0), 1, 2) for each in (query, key, value))  # [B, H, S, K]
    documents, key_documents = (_filled(each, PADDED) for each in (documents, key_documents))
    kernel = _splash_kernel(heads, query.shape[2], key.shape[2], window, interpret)
    attended = jax.vmap(kernel)(query, key, value, splash.SegmentIds(documents, key_documents))
    return jnp.swapaxes(attended, 1, 2)[:, :count]


def _splash_kernel(heads, queries, keys, window, interpret):
    """A function of [H, Q, K], [H, S, K] twice and segment ids."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    shape = (queries, keys)
    mask = masks.FullMask(shape) if window is None else masks.LocalMask(shape, (window // 2, window // 2), offset=0)
    block_q, block_kv = (next(size for size in BLOCKS if length % size == 0) for length in shape)
    sizes = splash.BlockSizes(
        block_q=block_q,
        block_kv=block_kv,
        block_q_dkv=block_q,
        block_kv_dkv=block_kv,
        block_q_dq=block_q,
        block_kv_dq=block_kv,
    )
    return splash.make_splash_mha(
        masks.MultiHeadMask([mask] * heads), block_sizes=sizes, head_shards=1, q_seq_shards=1, interpret=interpret
    )


def _filled(rows, by):
    """Rows [B, S, ...], filled up to a multiple of lanes."""
    from jax import numpy as jnp

    return jnp.pad(rows, [(0, 0), (0, -rows.shape[1] % LANES), *[(0, 0)] * (rows.ndim - 2)], constant_values=by)
