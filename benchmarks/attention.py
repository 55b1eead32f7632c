"""Attention to packed rows on one GPU: `python -m benchmarks.attention [--out FOLDER]`, on the JAX backend.

Milliseconds of one layer's attention and its gradients in bfloat16: by a mask of all pairs, as the package has it,
which Keras hands to cuDNN where it can, by cuDNN asked for by name, and by JAX's flash attention, which reads the
number of each token's document. Beside them the largest distance of values and gradients from a softmax in float32;
FLOPs are those of the products of all pairs. Every shape has 16,384 tokens in 12 heads of 64, in documents of a quarter
of a row. Writes FOLDER/attention.json and attention.md. On a CPU, to see that it runs, it has one row.
"""

import argparse
import json
import os
import statistics
import time
from functools import partial
from pathlib import Path

import numpy as np

TOKENS, HEADS, WIDTH = 16_384, 12, 64
LENGTHS = (128, 256, 512, 1024, 4096)
REPEATS, ROUNDS = 10, 5


def kernels() -> dict:
    """What attends, by name: functions of query, key and value [B, S, H, K] and documents [B, S]."""
    import jax
    import keras
    from jax.experimental.pallas.ops.gpu import attention

    def same(documents):
        return documents[:, None, :, None] == documents[:, None, None, :]  # [B, 1, S, S]

    def dense(*heads, documents):
        return keras.ops.dot_product_attention(*heads, mask=same(documents))

    def cudnn(*heads, documents):
        return jax.nn.dot_product_attention(*heads, mask=same(documents), implementation="cudnn")

    def flash(block, *heads, documents):
        sizes = attention.BlockSizes(128, 128, block, block, block, block)
        return attention.mha(*heads, documents, sm_scale=WIDTH**-0.5, block_sizes=sizes)

    return {
        "mask of all pairs": dense,
        "flash attention": partial(flash, 32),  # JAX's default
        "flash attention, blocks of 64": partial(flash, 64),
        "flash attention, blocks of 128": partial(flash, 128),
        "cuDNN": cudnn,
    }


def values_and_gradients(attend, documents):
    """A compiled function of three heads and a slope: what they give, and the gradients of all three."""
    import jax

    @jax.jit
    def step(heads, slope):
        given, back = jax.vjp(partial(attend, documents=documents), *heads)
        return given, *back(slope)

    return step


def measured(step, heads, slope, reference) -> dict:
    """Seconds of values and gradients, and how far they are from a reference."""
    import jax

    begun = time.perf_counter()
    given = jax.block_until_ready(step(heads, slope))
    first = time.perf_counter() - begun
    rounds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(REPEATS):
            again = step(heads, slope)
        jax.block_until_ready(again)
        rounds.append((time.perf_counter() - begun) / REPEATS)
    found = {"seconds": statistics.median(rounds), "first_s": first}
    if reference is not None:
        pairs = zip(given, reference, strict=True)
        found["error"] = max(float(abs(ours.astype("float32") - theirs).max()) for ours, theirs in pairs)
    return found


def compare(length: int) -> dict:
    """Every kernel on rows of a length."""
    import jax
    from jax import numpy as jnp

    rng = np.random.default_rng(length)
    rows = 1 if jax.default_backend() == "cpu" else TOKENS // length  # on a CPU, to see that it runs
    drawn = [rng.normal(0, 1, (rows, length, HEADS, WIDTH)) for _ in range(4)]
    *heads, slope = (jnp.asarray(each, "bfloat16") for each in drawn)
    documents = jnp.asarray(np.tile(np.repeat(np.arange(1, 5), length // 4), (rows, 1)), "int32")
    steps = {name: values_and_gradients(attend, documents) for name, attend in kernels().items()}
    reference, found = None, {}
    if length <= 1024:
        with jax.default_matmul_precision("highest"):
            exact = [each.astype("float32") for each in (*heads, slope)]
            reference = steps["mask of all pairs"](exact[:3], exact[3])
    for name, step in steps.items():
        try:
            found[name] = measured(step, heads, slope, reference)
        except (RuntimeError, ValueError) as error:  # which says what this device cannot do
            found[name] = {"refused": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return found


def table(report: dict) -> str:
    """The report in Markdown."""
    lines = [f"On {report['device']}: {TOKENS:,} tokens, {HEADS} heads of {WIDTH}, values and gradients in bfloat16.\n"]
    lines += [
        "| tokens of a row | kernel | ms | TFLOP/s | off by at most | first call, s |",
        "|--:|---|--:|--:|--:|--:|",
    ]
    for length, found in report["lengths"].items():
        work = 14 * TOKENS * int(length) * HEADS * WIDTH  # two products, and five in the gradient, of two FLOPs
        for name, each in found.items():
            start = f"| {length} | {name} |"
            if "refused" in each:
                lines.append(f"{start} not run: {each['refused']} | | | |")
                continue
            off = f"{each['error']:.3f}" if "error" in each else ""
            rate = f"{work / each['seconds'] / 1e12:.0f}"
            lines.append(f"{start} {each['seconds'] * 1e3:.2f} | {rate} | {off} | {each['first_s']:.1f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs, and writes what came out."""
    os.environ["KERAS_BACKEND"] = "jax"
    import jax

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    options = parser.parse_args()
    report = {"device": jax.devices()[0].device_kind, "lengths": {each: compare(each) for each in options.lengths}}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "attention.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (options.out / "attention.md").write_text(table(report), encoding="utf-8")
    print(table(report))


if __name__ == "__main__":
    main()
