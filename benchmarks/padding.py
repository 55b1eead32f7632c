"""What padding costs inference: `python -m benchmarks.padding [--rounds 3] [--examples 1024] [--out FILE]`.

A classifier answers rows of at most 128 tokens, whose lengths are distributed like those of GLUE's tasks, once all as
long as the longest may be and once sorted and cut to a few lengths, as `rembed predict`, evaluation and submissions do.
Rounds alternate; the best of each counts, and what is compiled is compiled before. Outputs are compared too.
"""

import argparse
import json
import time
from pathlib import Path

import keras
import numpy as np

from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.tasks.kinds.encoding import predict

LONGEST = 128
MEANS = {"single sentences": 14, "questions, captions": 30, "premise and hypothesis": 40, "paragraphs": 65}
SPREAD = 0.5  # of the lengths' logarithms


def rows(mean: float, count: int) -> dict[str, np.ndarray]:
    """Rows of random tokens, [N, S], whose lengths are log-normal and cut to the longest."""
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(np.log(mean) - SPREAD**2 / 2, SPREAD, count).round().clip(3, LONGEST)
    mask = (np.arange(LONGEST) < lengths[:, None]).astype("int32")
    return {
        "token_ids": rng.integers(5, 8000, mask.shape, "int32") * mask,
        "segment_ids": 0 * mask,
        "padding_mask": mask,
    }


def whole(model, inputs):
    """The outputs of a model for rows that are not cut, a batch of 64 at a time."""
    starts = range(0, len(inputs["token_ids"]), 64)
    return np.concatenate([model.predict_on_batch({k: v[i : i + 64] for k, v in inputs.items()}) for i in starts])


def compare(model, inputs, rounds: int) -> dict[str, float]:
    """Examples a second padded and cut, their ratio, and how far outputs are apart at most."""
    ways, rates = {"padded": whole, "cut": predict}, {"padded": 0.0, "cut": 0.0}
    outputs = {name: np.asarray(way(model, inputs)) for name, way in ways.items()}
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.perf_counter()
            way(model, inputs)
            rates[name] = max(rates[name], len(inputs["token_ids"]) / (time.perf_counter() - begun))
    apart = float(np.abs(outputs["padded"] - outputs["cut"]).max())
    return rates | {"ratio": rates["cut"] / rates["padded"], "apart": apart}


def main() -> None:
    """Prints a line for each distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    keras.utils.set_random_seed(0)
    model = Classifier(Encoder(8000, 4, 4, 256, 1024, 128, max_sequence_length=LONGEST), 3)
    model.compile(jit_compile=True)
    found = {}
    for name, mean in MEANS.items():
        found[name] = {"mean": mean} | compare(model, rows(mean, options.examples), options.rounds)
        print(f"{name} (mean {mean}): {found[name]}", flush=True)
    if options.out:
        options.out.write_text(json.dumps({"backend": keras.config.backend()} | found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
