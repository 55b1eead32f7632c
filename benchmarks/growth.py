"""How a step grows with each size, beside what the ledger says: `python -m benchmarks.growth [--rounds 2]`.

One size of shape `middle` changes at a time. Three machine constants, the rate of products and those at which bytes of
weights and of activations are gone through, turn the ledger's FLOPs and bytes into seconds; two more, what the process
holds anyway and how many bytes it holds for each of the ledger's, turn its bytes into memory. They are fitted to all
points at once, and each point is then held against its prediction. Writes FOLDER/growth.json, growth.md and growth.png.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from benchmarks.compare import ledger_of, run
from benchmarks.shapes import SHAPES, named

SIZES = {
    "vocabulary_size": (8_000, 30_000, 60_000, 120_000),
    "output_embedding_dim": (128, 512, 1024, 2048),
    "num_layers": (2, 4, 8, 12),
    "hidden_dim": (128, 256, 512, 768),
    "sequence_length": (64, 128, 256, 512),
    "batch_size": (4, 8, 16, 32),
}
STEPS = 5


def spec(field: str, size: int) -> str:
    """The shape with one size changed, and what goes with it: heads of 64, four times as wide feed-forward layers."""
    changes = {field: size}
    if field == "hidden_dim":
        changes |= {"num_heads": size // 64, "intermediate_dim": 4 * size}
    if field == "sequence_length":
        changes |= {"num_predictions": size * SHAPES["middle"].num_predictions // SHAPES["middle"].sequence_length}
    return ",".join(["middle", *(f"{name}={value}" for name, value in changes.items())])


def work(name: str) -> tuple[float, float, float]:
    """Of a step, by the ledger: FLOPs, bytes of weights, gradients and slots, and bytes of activations."""
    counted, tokens = ledger_of(name), named(name).tokens
    weights = 2 * counted.bytes["total"] + counted.optimizer_bytes["total"]
    return counted.training_flops["total"] * tokens, weights, counted.activation_bytes["total"] * tokens


def fitted(features: np.ndarray, measured: np.ndarray) -> np.ndarray:
    """Predictions by constants, none negative, whose relative errors have the least squares; features [N, K] to [N]."""
    constants, _ = nnls(features / measured[:, None], np.ones(len(measured)))
    return features @ constants


def curves(specs: dict[str, tuple[str, int]], rounds: dict[str, list[dict]]) -> list[dict]:
    """What was measured of each spec, beside what is predicted."""
    names = list(specs)
    flops, weights, activations = np.array([work(name) for name in names]).T
    seconds = np.array([statistics.median(min(each["steps_s"]) for each in rounds[name]) for name in names])
    peaks = np.array([float(statistics.median(each["peak_bytes"] for each in rounds[name])) for name in names])
    time = fitted(np.stack([flops, weights, activations], axis=1), seconds)
    memory = fitted(np.stack([np.ones(len(names)), weights + activations], axis=1), peaks)
    return [
        {
            "size": specs[name][0],
            "value": specs[name][1],
            "gflops": flops[i] / 1e9,
            "step_s": seconds[i],
            "predicted_step_s": time[i],
            "peak_bytes": peaks[i],
            "predicted_peak_bytes": memory[i],
        }
        for i, name in enumerate(names)
    ]


def table(points: list[dict]) -> str:
    """The points in Markdown."""
    lines = ["| size | value | ledger's GFLOP | ms a step | predicted | error | peak GB | predicted | error |"]
    lines.append("|---|" + "--:|" * 8)
    for point in points:
        time, memory = (point[f"predicted_{name}"] / point[name] - 1 for name in ("step_s", "peak_bytes"))
        lines.append(
            f"| {point['size']} | {point['value']:,} | {point['gflops']:.0f} | {1e3 * point['step_s']:.0f} "
            f"| {1e3 * point['predicted_step_s']:.0f} | {time:+.0%} | {point['peak_bytes'] / 1e9:.2f} "
            f"| {point['predicted_peak_bytes'] / 1e9:.2f} | {memory:+.0%} |"
        )
    return "\n".join(lines) + "\n"


def plot(points: list[dict], path: Path) -> None:
    """Time above and memory below, one column a size; measured points on predicted lines."""
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(2, len(SIZES), figsize=(3 * len(SIZES), 5), layout="constrained")
    for column, field in enumerate(SIZES):
        mine = [point for point in points if point["size"] == field]
        values = [point["value"] for point in mine]
        for axis, name, unit in ((rows[0, column], "step_s", 1e-3), (rows[1, column], "peak_bytes", 1e9)):
            axis.plot(
                values, [point[f"predicted_{name}"] / unit for point in mine], color="tab:gray", label="predicted"
            )
            axis.plot(values, [point[name] / unit for point in mine], "o", color="tab:blue", label="measured")
            axis.set_ylim(bottom=0)
            axis.locator_params(axis="x", nbins=4)
        rows[1, column].set_xlabel(field)
    rows[0, 0].set_ylabel("ms a step")
    rows[1, 0].set_ylabel("peak memory, GB")
    rows[0, 0].legend()
    figure.savefig(path)


def main() -> None:
    """Measures, and writes what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    specs = {spec(field, size): (field, size) for field, sizes in SIZES.items() for size in sizes}
    rounds: dict[str, list[dict]] = {name: [] for name in specs}
    for number in range(options.rounds):
        for name in specs:
            rounds[name].append(run(("rembed", "xla", "training", name), STEPS))
            if "error" in rounds[name][-1]:
                sys.exit(f"{name}: {rounds[name][-1]['error']}")
            print(f"round {number + 1}/{options.rounds}: {name}: {min(rounds[name][-1]['steps_s']):.3f} s", flush=True)
    points = curves(specs, rounds)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "growth.json").write_text(json.dumps(points, indent=1) + "\n", encoding="utf-8")
    (options.out / "growth.md").write_text(table(points), encoding="utf-8")
    plot(points, options.out / "growth.png")
    print(table(points))


if __name__ == "__main__":
    main()
