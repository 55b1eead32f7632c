"""Interleaved benchmark of this package and its peers: `python -m benchmarks.compare [--shapes small] [--rounds 3]`.

Each measurement is a process of its own; every round goes through all of them, so that a machine that is slow for a
while is slow for all. Writes FOLDER/results.json, table.md and training.png.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.shapes import SHAPES, named
from rembed_keras.analysis import Ledger, ledger

PACKAGES = ("keras", "tensorflow", "keras-hub", "torch", "transformers", "tf-models-official", "numpy")
VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "avx": "AVX", "sve": "SVE", "asimd": "NEON"}  # by the kernel's names
STEPS = {"tiny": 2, "small": 8, "wide": 3}
OF_OTHERS = 3  # steps at the other shapes
PEERS = {
    "training": (
        ("rembed", "xla"),
        ("rembed", "no xla"),
        ("huggingface", "as shipped"),
        ("huggingface", "gathered"),
        ("huggingface", "modernbert"),
        ("keras_hub", "as shipped"),
        ("keras_hub", "xla"),
        ("model_garden", "as shipped"),
        ("model_garden", "xla"),
    ),
    "finetuning": (("rembed", "xla"), ("huggingface", "as shipped"), ("keras_hub", "as shipped"), ("keras_hub", "xla")),
    "inference": (("rembed", "xla"), ("huggingface", "as shipped"), ("keras_hub", "as shipped"), ("keras_hub", "xla")),
}
OWN_OPTIONS = (  # beside "xla"
    "bfloat16",
    "bfloat16, no xla",
    "gelu_tanh",
    "rematerialized",
    "chunks of 160",
    "2 micro-batches",
    "4 micro-batches",
)
WIDE_PEERS = (("rembed", "xla"), ("huggingface", "as shipped"), ("huggingface", "gathered"))


def cases(shape: str) -> list[tuple[str, str, str, str]]:
    """(peer, variant, work, shape) of all that is measured; at the wide one only training, of what has such tables."""
    if shape == "wide":
        return [(*peer, "training", shape) for peer in WIDE_PEERS]
    return [(*peer, work, shape) for work, peers in PEERS.items() for peer in peers]


def run(case: tuple[str, str, str, str], steps: int, **environment: str) -> dict:
    """What a worker prints, or, under "error", the last line of why it could not."""
    command = [sys.executable, "-m", "benchmarks.worker", *case, str(steps)]
    settings = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}"}
    return json.loads(done.stdout.strip().splitlines()[-1])


def summary(case: tuple[str, str, str, str], rounds: list[dict]) -> dict:
    """Medians over rounds, and their spread, of what one case took."""
    peer, variant, work, shape = case
    named = {"peer": peer, "variant": variant, "work": work, "shape": shape}
    errors = [each["error"] for each in rounds if "error" in each]
    if errors:
        return named | {"error": errors[0]}
    medians = [statistics.median(each["steps_s"]) for each in rounds]
    return named | {
        "step_s": statistics.median(medians),
        "step_s_rounds": medians,
        "tokens_per_s": SHAPES[shape].tokens / statistics.median(medians),
        "first_step_s": statistics.median(each["first_step_s"] for each in rounds),
        "peak_bytes": max(each["peak_bytes"] for each in rounds),
        "losses": rounds[0]["losses"],
    }


def ledger_of(shape_name: str) -> Ledger:
    """The ledger of a shape's model and step."""
    shape = named(shape_name)
    fields = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim", "input_embedding_dim")
    encoder = {name: getattr(shape, name) for name in fields} | {"max_sequence_length": shape.sequence_length}
    config = {"encoder": encoder, "output_embedding_dim": shape.output_embedding_dim}
    return ledger(config, shape.sequence_length, shape.num_predictions / shape.sequence_length)


def flops(shape_name: str) -> int:
    """FLOPs of the products that a step of training needs, by the ledger."""
    return ledger_of(shape_name).training_flops["total"] * named(shape_name).tokens


def table(report: dict) -> str:
    """The report in Markdown."""
    lines = [
        "| shape | work | who | tokens/s | rounds from–to | first step, s | peak memory, GB | slower than rembed |"
    ]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|")
    own = {(r["work"], r["shape"]): r for r in report["results"] if (r["peer"], r["variant"]) == ("rembed", "xla")}
    for result in report["results"]:
        who = f"{result['peer']}, {result['variant']}"
        start = f"| {result['shape']} | {result['work']} | {who} |"
        if "error" in result:
            lines.append(f"{start} not run: {result['error']} | | | | |")
            continue
        tokens = SHAPES[result["shape"]].tokens
        low, high = tokens / max(result["step_s_rounds"]), tokens / min(result["step_s_rounds"])
        beside = own.get((result["work"], result["shape"]), {}).get("step_s")  # none of what could not run
        ratio = f"{result['step_s'] / beside:.2f}×" if beside else ""
        lines.append(
            f"{start} {result['tokens_per_s']:,.0f} | {low:,.0f}–{high:,.0f} | {result['first_step_s']:.0f} "
            f"| {result['peak_bytes'] / 1e9:.1f} | {ratio} |"
        )
    for shape, share in report["share_of_products"].items():
        lines.append(f"\nShape {shape}: {share:.0%} of the best rate of float32 products, {report['products_best']}.")
    here, rates = report["machine"], best_rates(report["products"])
    shown = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in rates.items()) or "not measured"
    lines.append(f"\n{here['processor']}, {here['cores']} cores, vectors: {here['vectors']}.")
    lines.append(f"Products of float32, the best of all rounds, in GFLOP/s: {shown}.")
    return "\n".join(lines) + "\n"


def best_rates(products: list[dict]) -> dict[str, float]:
    """FLOPs a second of products by library, the best of all rounds; nothing where a round could not measure them.

    >>> best_rates([{"numpy": 1.0, "xla": 5.0}, {"numpy": 2.0, "xla": 4.0}])
    {'numpy': 2.0, 'xla': 5.0}
    """
    if any("error" in each for each in products):
        return {}
    return {name: max(each[name] for each in products) for name in products[0]}


def plot(report: dict, path: Path) -> None:
    """Tokens a second of training, one bar a peer."""
    import matplotlib.pyplot as plt

    done = [r for r in report["results"] if r["work"] == "training" and "error" not in r]
    shapes = list(dict.fromkeys(r["shape"] for r in done))
    figure, axes = plt.subplots(1, len(shapes), figsize=(6 * len(shapes), 4), squeeze=False)
    for axis, shape in zip(axes[0], shapes, strict=True):
        rows = sorted((r for r in done if r["shape"] == shape), key=lambda r: r["tokens_per_s"])
        colors = ["tab:blue" if r["peer"] == "rembed" else "tab:gray" for r in rows]
        bars = axis.barh(
            [f"{r['peer']}, {r['variant']}" for r in rows], [r["tokens_per_s"] for r in rows], color=colors
        )
        axis.bar_label(bars, fmt="{:,.0f}")
        axis.set(title=f"Training at shape {shape}", xlabel="tokens/s")
        axis.margins(x=0.15)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    """Runs, and writes what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["small", "wide"])
    parser.add_argument("--options", action="store_true", help="options of this package instead of peers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    todo = [case for shape in options.shapes for case in cases(shape)]
    if options.options:
        todo = [("rembed", name, "training", shape) for shape in options.shapes for name in ("xla", *OWN_OPTIONS)]
    rounds: dict[tuple, list[dict]] = {case: [] for case in todo}
    products = []
    for number in range(options.rounds):
        products.append(run(("products", "", "", ""), 0))
        for case in todo:
            rounds[case].append(run(case, STEPS.get(case[3], OF_OTHERS)))
            last = rounds[case][-1]
            shown = last.get("error") or f"{statistics.median(last['steps_s']):.3f} s a step"
            print(f"round {number + 1}/{options.rounds}: {', '.join(case)}: {shown}", flush=True)
    report = {
        "machine": machine(),
        "versions": {name: _version(name) for name in PACKAGES},
        "results": [summary(case, rounds[case]) for case in todo],
        "products": products,
    }
    rates = best_rates(products)
    best = max(rates, key=rates.__getitem__, default=None)
    report["products_best"] = f"{rates[best] / 1e9:.0f} GFLOP/s ({best})" if best else None
    report["share_of_products"] = {
        each["shape"]: flops(each["shape"]) / each["step_s"] / rates[best]
        for each in report["results"]
        if best and (each["peer"], each["variant"], each["work"]) == ("rembed", "xla", "training")
    }
    (options.out / "results.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    (options.out / "table.md").write_text(table(report), encoding="utf-8")
    plot(report, options.out / "training.png")
    print(table(report))


def machine() -> dict:
    """The processor, its cores and vector instructions, and Python: a ratio of speeds may hold on its like alone."""
    read = _cpuinfo()
    flags = read.get("flags", read.get("Features", "")).split()
    return {
        "processor": read.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "vectors": next((name for flag, name in VECTORS.items() if flag in flags), "not known"),
        "python": platform.python_version(),
    }


def _cpuinfo():
    """What Linux says of the first core, by name; nothing elsewhere."""
    path = Path("/proc/cpuinfo")
    pairs = [line.split(":", 1) for line in path.read_text().splitlines()] if path.exists() else []
    return {name.strip(): value[0].strip() for name, *value in reversed(pairs) if value}


def _version(name):
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
