"""How fast a recipe is on this machine: a few steps of the real thing, and what they are held against.

What is timed is `pretrain` itself, with the recipe's data, model, optimizer and log, so that nothing flatters. Beside
it stand what bounds it: how fast batches come when nobody waits for them, and how fast this machine multiplies
matrices.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import islice

import keras
import numpy as np
from keras import ops
from rich.console import Console
from rich.table import Table

from rembed_keras.data.corpus import Corpus
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import Count, UserError
from rembed_keras.training.distributed import devices
from rembed_keras.training.distributed.processes import together
from rembed_keras.training.distributed.strategies import Strategy
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.rehearsal import rehearsed
from rembed_keras.training.stages.run import in_passing

DEPTH = 4  # products in a row, so that moving the first operand to a device hardly counts
REPEATS = 4
LONG = 0.1  # seconds
BATCHES = 300  # that are read


@together
@in_passing
@rehearsed
def benchmark(
    workdir: Workdir,
    pretrain: Callable,
    mixture: Callable,
    steps: Count = 20,
    corpus: str | None = None,
    dtype: str = "float32",
    strategy: Strategy = "one_device",
) -> None:
    """Times a recipe's pre-training, and writes `workdir/benchmark.json`.

    Args:
        workdir: a fresh folder, for it is trained in; it has the prepared corpus, unless another has.
        pretrain: the stage to time.
        mixture: makes the `Mixture` of a `Corpus`; the stage's.
        steps: how many steps are timed, after one that compiles.
        corpus: folder that `rembed prepare` wrote; the workdir's own by default.
        dtype: the model's dtype or policy of Keras, in which products are timed, on one device.
        strategy: the stage's; training on several devices is no share of one's products.

    Raises:
        UserError: for fewer than 2 steps, or none that comes after one of the same size, and as `pretrain` does.
    """
    if steps < 2:
        raise UserError(f"--steps is {steps}; at least 2 are needed")
    if workdir.is_rehearsal:
        if getattr(pretrain, "is_rehearsed", False):
            pretrain(workdir)
        return
    batches = mixture(Corpus(corpus or workdir.corpus))
    reading = _reading_rate(batches)
    begun = time.perf_counter()
    pretrain(
        workdir,
        corpus=corpus,
        steps=1 + steps,
        log_every=1,
        checkpoint_every=1 + steps,
        eval_every=None,
        keep_best=None,
    )
    seconds = time.perf_counter() - begun
    if not workdir.is_chief:
        return
    rows = [row for row in workdir.metrics.rows("pretrain") if row["tokens_per_second"] is not None]
    if not rows:
        raise UserError("batches change size at each of these steps, so none has a pace: time more with --steps")
    rates = [row["tokens_per_second"] for row in rows]  # a phase has none at its first step
    training = statistics.median(rates)
    report = {
        "training_tokens_per_second": training,
        "slowest_step_tokens_per_second": min(rates),
        "fastest_step_tokens_per_second": max(rates),
        "reading_tokens_per_second": reading,
        "seconds_until_first_step": seconds - sum(row["seconds_per_step"] for row in rows),
        "peak_host_bytes": devices.peak_host_memory(),
        "product_flops_per_second": product_rate(dtype),
    }
    flops = [row["training_flops_per_second"] for row in rows if "training_flops_per_second" in row]  # by the ledger
    if flops:
        report["training_flops_per_second"] = statistics.median(flops)
    if flops and strategy == "one_device":
        report["share_of_products"] = report["training_flops_per_second"] / report["product_flops_per_second"]
    write_atomically(workdir.path / "benchmark.json", json.dumps(report, indent=1))
    Console().print(_table(report))


def product_rate(dtype: str = "float32", sides: Sequence[int] = (1024, 2048, 4096, 8192)) -> float:
    """FLOPs a second of products of square matrices in a dtype or policy, compiled, at the best of some sizes.

    Larger ones are tried until the machine is busy for LONG with one, which no size would fill better.

    >>> product_rate(sides=[128]) > 1e8
    True
    """
    best = seconds = 0.0
    for side in sides:
        if seconds > LONG:
            break
        inputs = keras.Input((side,))
        hidden = inputs
        for _ in range(DEPTH):
            hidden = keras.layers.Dense(side, use_bias=False, dtype=dtype)(hidden)
        model = keras.Model(inputs, ops.sum(hidden, axis=-1))
        model.compile(jit_compile=True)
        left = np.ones((side, side), "float32")
        for _ in range(1 + REPEATS):
            begun = time.perf_counter()
            model.predict_on_batch(left)
            seconds = time.perf_counter() - begun
            best = max(best, DEPTH * 2 * side**3 / seconds)
    return best


def _reading_rate(batches):
    """Tokens a second of batches that come when nobody waits for them."""
    stream = iter(batches.batches(0, 1 + BATCHES))
    next(stream)
    begun = time.perf_counter()
    count = sum(x["token_ids"].size for x, *_ in islice(stream, BATCHES))
    return count / (time.perf_counter() - begun)


def _table(report):
    shown = Table(title="This recipe on this machine", show_header=False)
    shown.add_column()
    shown.add_column(justify="right")
    shown.add_row("training, tokens/s", f"{report['training_tokens_per_second']:,.0f}")
    slowest, fastest = (report[f"{which}_step_tokens_per_second"] for which in ("slowest", "fastest"))
    shown.add_row("  slowest and fastest step", f"{slowest:,.0f} – {fastest:,.0f}")
    shown.add_row("batches alone, tokens/s", f"{report['reading_tokens_per_second']:,.0f}")
    shown.add_row("until the first step was taken, s", f"{report['seconds_until_first_step']:.1f}")
    shown.add_row("peak memory of the process, GB", f"{report['peak_host_bytes'] / 1e9:.2f}")
    shown.add_row("matrix products, GFLOP/s", f"{report['product_flops_per_second'] / 1e9:,.0f}")
    if "training_flops_per_second" in report:
        shown.add_row("training, GFLOP/s", f"{report['training_flops_per_second'] / 1e9:,.0f}")
    if "share_of_products" in report:
        shown.add_row("  as a share of products", f"{report['share_of_products']:.0%}")
    return shown
