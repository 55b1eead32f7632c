"""Blocks compiled one by one and as a scan: `python -m benchmarks.scanning [--out FOLDER]`, on the JAX backend.

XLA compiles a scan's body once, however many blocks there are. The package's blocks of BERT are compiled with their
gradients in three ways: one after another, as the package does; scanned over weights that are stored in one array for
all blocks; and scanned over weights that each block stores for itself, as checkpoints, methods and shared layers have
it, which every step puts into one array. Seconds to trace and compile, and milliseconds a step, the median of rounds in
which each way takes a step. Float32; 8 rows of 128 tokens. Writes FOLDER/scanning.json and scanning.md.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np

LAYERS = (2, 4, 8, 16, 32)
HIDDEN_DIM, HEADS, ROWS, LENGTH = 256, 4, 8, 128
ROUNDS = 15


def stack_of(count: int):
    """A block, the weights of `count` such blocks, each a list, and what a block reads besides hidden states."""
    from rembed_keras import Encoder

    blocks = Encoder(8, count, HEADS, HIDDEN_DIM, 4 * HIDDEN_DIM, 4, max_sequence_length=LENGTH).parts.blocks
    read = np.ones((ROWS, LENGTH, LENGTH), bool), np.tile(np.arange(LENGTH), (ROWS, 1))  # mask and positions
    return blocks[0], [[weight.value for weight in block.trainable_variables] for block in blocks], read


def ways(block, read) -> dict:
    """Losses of hidden states and weights, by name, and whether weights are stored in one array for all blocks."""
    import jax
    import jax.numpy as jnp

    def apply(hidden, weights):
        return block.stateless_call(weights, [], hidden, *read, training=True)[0]

    def one_by_one(layers, hidden):
        for weights in layers:
            hidden = apply(hidden, weights)
        return jnp.mean(hidden**2)

    def scanned(stacked, hidden):
        hidden, _ = jax.lax.scan(lambda state, weights: (apply(state, weights), None), hidden, stacked)
        return jnp.mean(hidden**2)

    def scanned_of_own(layers, hidden):
        return scanned(stack(layers), hidden)

    return {"one by one": (one_by_one, False), "scan": (scanned, True), "scan, own weights": (scanned_of_own, False)}


def stack(layers):
    """The weights of all blocks, [L, ...] each."""
    import jax.numpy as jnp

    return [jnp.stack(each) for each in zip(*layers, strict=True)]


def measure(count: int) -> dict[str, dict[str, float]]:
    """Seconds to compile and milliseconds a step of each way, for so many blocks; their losses must be equal."""
    import jax

    block, layers, read = stack_of(count)
    hidden = np.random.default_rng(0).normal(size=(ROWS, LENGTH, HIDDEN_DIM)).astype("float32")
    rows, steps, losses = {}, {}, {}
    for name, (loss, is_stacked) in ways(block, read).items():
        given = stack(layers) if is_stacked else layers
        begin = time.perf_counter()
        step = jax.jit(jax.value_and_grad(loss)).lower(given, hidden).compile()
        rows[name] = {"compile_s": time.perf_counter() - begin}
        steps[name] = (step, given)
        losses[name] = float(step(given, hidden)[0])
    assert np.ptp([*losses.values()]) < 1e-4 * abs(losses["one by one"]), losses
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, (step, given) in steps.items():
            begin = time.perf_counter()
            jax.block_until_ready(step(given, hidden))
            times[name].append(time.perf_counter() - begin)
    return {name: row | {"step_ms": 1e3 * statistics.median(times[name])} for name, row in rows.items()}


def table(found: dict[int, dict]) -> str:
    """The measurements, as Markdown."""
    names = [*next(iter(found.values()))]
    lines = ["| blocks | " + " | ".join(f"{name}, s to compile | ms a step" for name in names) + " |"]
    lines.append("|--:|" + "--:|--:|" * len(names))
    for count, rows in found.items():
        cells = [f"{rows[name]['compile_s']:.2f} | {rows[name]['step_ms']:.0f}" for name in names]
        lines.append(f"| {count} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--layers", type=int, nargs="+", default=LAYERS)
    words = parser.parse_args()
    found = {}
    for count in words.layers:
        found[count] = measure(count)
        print(table(found), flush=True)
    if words.out is not None:
        words.out.mkdir(parents=True, exist_ok=True)
        (words.out / "scanning.json").write_text(json.dumps(found, indent=1))
        (words.out / "scanning.md").write_text(table(found))


if __name__ == "__main__":
    main()
