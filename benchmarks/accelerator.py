"""Training in bfloat16 on one accelerator: `python -m benchmarks.accelerator [--shapes base rembert] [--rounds 3]`.

This package and keras-hub's BERT on the JAX backend, Hugging Face's RemBERT with masked tokens gathered by hand, and
its ModernBERT with its own attention, both as they are and compiled. Every measurement is a process of its own. FLOPs
of a step are those of its products, by the ledger; their rate is held against that of bfloat16 products measured in
the same run, and against the maker's number (MFU). Writes FOLDER/accelerator.json and accelerator.md, and with
--trace a profile of three more steps of this package at the first shape, FOLDER/trace, for TensorBoard or Perfetto.
`--shapes tiny` runs on any machine, to see that it runs.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.compare import flops, run
from benchmarks.shapes import SHAPES

PEERS = (
    ("rembed", "bfloat16"),
    ("rembed", "bfloat16, one chunk"),
    ("rembed", "bfloat16, rematerialized"),
    ("keras_hub", "bfloat16"),
    ("huggingface", "bfloat16, gathered"),
    ("huggingface", "bfloat16, gathered, compiled"),
    ("huggingface", "bfloat16, modernbert"),
    ("huggingface", "bfloat16, modernbert, compiled"),
)
Case = tuple[str, str, str, str]  # peer, variant, work and shape
STEPS = 20
SIDES = (512, 4096, 8192)  # of the square matrices whose product is timed
NOT_RATED: dict = {"device": "a device that is not known", "flops_per_second": None, "published_flops_per_second": None}
PRODUCTS = 16  # in a row, so that calls hardly count


def product_rate() -> dict:
    """The device, and FLOPs a second of bfloat16 products of square matrices: the best of sizes and repeats, and by
    its maker, None where that is not known."""
    import jax
    import jax.numpy as jnp

    from rembed_keras.training.distributed.devices import published_flops

    best = 0.0
    on_cpu = jax.default_backend() == "cpu"

    @jax.jit
    def chain(matrix):
        return jax.lax.fori_loop(0, PRODUCTS, lambda _, product: (product @ matrix) * (1 / matrix.shape[0]), matrix)

    for side in SIDES[: 1 if on_cpu else None]:
        matrix = jnp.ones((side, side), "bfloat16")
        for _ in range(4):
            begun = time.perf_counter()
            chain(matrix).block_until_ready()
            best = max(best, PRODUCTS * 2 * side**3 / (time.perf_counter() - begun))
    return {
        "device": jax.devices()[0].device_kind,
        "flops_per_second": best,
        "published_flops_per_second": published_flops(),
    }


def side_by_side(cases: list[Case], steps: int, traced: dict[Case, dict[str, str]]) -> list[dict]:
    """What workers print that compile together and take their steps one after another."""

    def measure(case):
        found = run(case, steps, TURNS=f"{folder}:{len(cases)}", **traced.get(case, {}))
        if "error" in found:  # which nobody should wait for
            (Path(folder) / f"{cases.index(case)}.there").touch()
        return found

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(cases)) as pool:
        return [*pool.map(measure, cases)]


def summary(case: tuple[str, str, str], measured: list[dict], rate: float | None, published: float | None) -> dict:
    """Medians over the rounds of one peer, variant and shape, beside the measured and published rate of products."""
    peer, variant, shape = case
    named = {"shape": shape, "peer": peer, "variant": variant}
    errors = [each["error"] for each in measured if "error" in each]
    if errors:
        return named | {"error": errors[0]}
    seconds = statistics.median(statistics.median(each["steps_s"]) for each in measured)
    done = flops(shape) / seconds if peer == "rembed" else None
    return named | {
        "step_s": seconds,
        "tokens_per_s": SHAPES[shape].tokens / seconds,
        "first_step_s": statistics.median(each["first_step_s"] for each in measured),
        "peak_bytes": max(each["device_bytes"] or each["peak_bytes"] for each in measured),
        "share_of_products": done and rate and done / rate,
        "mfu": done and published and done / published,
    }


def table(report: dict) -> str:
    """The report in Markdown."""
    rate = report["flops_per_second"]
    measured = f"{rate / 1e12:.1f} TFLOP/s of bfloat16 products" if rate else "products of bfloat16 not measured"
    lines = [f"On {report['device']}: {measured}.\n"]
    lines.append("| shape | who | tokens/s | of products | MFU | first step, s | peak memory, GB |")
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for row in report["results"]:
        start = f"| {row['shape']} | {row['peer']}, {row['variant']} |"
        if "error" in row:
            lines.append(f"{start} not run: {row['error']} | | | | |")
            continue
        share, used = (f"{row[name]:.0%}" if row[name] else "" for name in ("share_of_products", "mfu"))
        memory = row["peak_bytes"] / 1e9
        lines.append(
            f"{start} {row['tokens_per_s']:,.0f} | {share} | {used} | {row['first_step_s']:.0f} | {memory:.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs, and writes what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["base", "rembert"])
    everyone = ["rembed", "keras_hub", "huggingface"]
    parser.add_argument("--peers", nargs="+", default=everyone, help='"rembed" or "rembed, bfloat16"')
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--together", action="store_true", help="compile side by side: sooner, on many cores")
    parser.add_argument("--trace", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    os.environ |= {"KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    peers = [peer for peer in PEERS if peer[0] in options.peers or ", ".join(peer) in options.peers]
    rounds: dict[tuple[str, str, str], list[dict]] = {(*peer, shape): [] for shape in options.shapes for peer in peers}
    cases: list[Case] = [(peer, variant, "training", shape) for peer, variant, shape in rounds]
    profiled = [case for case in cases if case[0] == "rembed"][: options.trace]
    if options.trace and not profiled:
        parser.error("--trace is of this package, which is not among --peers")
    traced = {case: {"TRACE": str(options.out / "trace")} for case in profiled}
    products = []
    for _ in range(options.rounds):
        products.append(run(("bfloat16 products", "", "", ""), 0))
        one_by_one = (run(case, options.steps, **traced.get(case, {})) for case in cases)
        found = side_by_side(cases, options.steps, traced) if options.together else one_by_one
        for case, measured, each in zip(cases, rounds.values(), found, strict=True):
            measured.append(each)
            print(*case, each.get("error") or statistics.median(each["steps_s"]), each.get("trace", ""), flush=True)
        traced.clear()
    rated = [each for each in products if "error" not in each]
    report = max(rated, key=lambda each: each["flops_per_second"], default=NOT_RATED)
    rates = report["flops_per_second"], report["published_flops_per_second"]
    report = report | {"results": [summary(case, measured, *rates) for case, measured in rounds.items()]}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "accelerator.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (options.out / "accelerator.md").write_text(table(report), encoding="utf-8")
    print(table(report))


if __name__ == "__main__":
    main()
