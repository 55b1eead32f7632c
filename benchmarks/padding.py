"""What padding costs: `python -m benchmarks.padding [--training] [--rounds 3] [--examples 1024] [--out FILE]`.

A classifier answers rows of at most 128 tokens, whose lengths are distributed like those of GLUE's tasks, once all as
long as the longest may be and once sorted and cut to a few lengths, as `rembed predict`, evaluation and submissions do.
Rounds alternate; the best of each counts, and what is compiled is compiled before. Outputs are compared too.

`--training` fine-tunes a smaller one instead, interleaved on TensorFlow and JAX, a process each: on batches of 32 such
rows that are padded, cut as fine-tuning cuts those of 10,000 steps, and cut after rows were grouped by length.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np

from rembed_keras.modeling import Classifier, Encoder
from rembed_keras.tasks.kinds.batches import batches, cut_batches
from rembed_keras.tasks.kinds.encoding import Encoded, predict
from rembed_keras.training import AdamW
from rembed_keras.training.distributed.strategies import place
from rembed_keras.training.optimizers.training_optimizer import wrapped

LONGEST = 128
BATCH = 32  # rows of a step of training
WAYS = ("padded", "cut", "grouped and cut")  # of training
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


class Trained:
    """A classifier of the size of `recipes/quickstart.gin`, which trains on batches of any length."""

    def __init__(self):
        keras.utils.set_random_seed(0)
        self.placement = place("one_device", BATCH)
        self.model = Classifier(Encoder(8000, 2, 2, 128, 512, 64, max_sequence_length=LONGEST), 3)
        optimizer = wrapped(self.model, AdamW(1e-4), clip_norm=1.0)
        self.model.compile(optimizer=optimizer, jit_compile=self.placement.jit_compile)

    def rate(self, mean: float, way: str, examples: int) -> float:
        """Examples a second of a training whose rows have a mean length."""
        inputs = rows(mean, 32 * BATCH)
        every = np.arange(32 * BATCH)
        encoded = Encoded(inputs, every % 3, None, every, 0, 0)
        short = {name: column[:BATCH, :16] for name, column in inputs.items()}, encoded.targets[:BATCH]
        data = batches(encoded, BATCH, 0, way == "grouped and cut")
        long = data[0]
        if way != "padded":
            data, _ = cut_batches(data, self.model, encoded, 10_000, way == "grouped and cut")
        steps = examples // BATCH
        fed = self.placement.feed(data.slice(slice(0, steps)).to_iter_dataset(), [long, short])
        begun = time.perf_counter()
        self.model.fit(fed, steps_per_epoch=steps, shuffle=False, verbose=0)
        return examples / (time.perf_counter() - begun)


def work() -> None:
    """Answers a line of JSON, the arguments of `Trained.rate`, by a line with the rate, as long as there are any."""
    trained = Trained()
    for line in sys.stdin:
        print(json.dumps(trained.rate(*json.loads(line))), flush=True)


def training(rounds: int, examples: int) -> dict:
    """The best rates by backend and distribution; a first round, which compiles, is not counted."""
    command, workers = [sys.executable, "-m", "benchmarks.padding", "--work"], {}
    for backend in ("tensorflow", "jax"):
        environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        workers[backend] = subprocess.Popen(command, env=environment, text=True, **pipes)
    found: dict = {backend: {name: {"mean": mean} for name, mean in MEANS.items()} for backend in workers}
    for number in range(rounds + 1):
        for name, mean in MEANS.items():
            for way in WAYS:
                for backend, worker in workers.items():
                    worker.stdin.write(json.dumps([mean, way, examples]) + "\n")
                    worker.stdin.flush()
                    rate = float(worker.stdout.readline())
                    if number:
                        found[backend][name][way] = max(rate, found[backend][name].get(way, 0.0))
    for worker in workers.values():
        worker.communicate()
    for backend, kinds in found.items():
        for name, rates in kinds.items():
            rates |= {f"{way}, ratio": rates[way] / rates["padded"] for way in WAYS[1:]}
            print(f"{backend}, {name}: {rates}", flush=True)
    return found


def machine() -> dict:
    """What the numbers were measured on."""
    names = [
        line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {"processor": names[0] if names else platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()}


def main() -> None:
    """Prints the machine and a line for each distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--examples", type=int, default=1024, help="a multiple of 64")
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)  # of a process that trains
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.work:
        work()
        return
    print(machine(), flush=True)
    found = (training if options.training else inference)(options.rounds, options.examples)
    if options.out:
        options.out.write_text(json.dumps(machine() | found, indent=1), encoding="utf-8")


def inference(rounds: int, examples: int) -> dict:
    """What is found for each distribution; prints a line for each."""
    keras.utils.set_random_seed(0)
    model = Classifier(Encoder(8000, 4, 4, 256, 1024, 128, max_sequence_length=LONGEST), 3)
    model.compile(jit_compile=True)
    found: dict = {"backend": keras.config.backend()}
    for name, mean in MEANS.items():
        found[name] = {"mean": mean} | compare(model, rows(mean, examples), rounds)
        print(f"{name} (mean {mean}): {found[name]}", flush=True)
    return found


if __name__ == "__main__":
    main()
