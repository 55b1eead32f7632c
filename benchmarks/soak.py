"""The quickstart's training, killed for hours: `python -m benchmarks.soak [--minutes 10] [--seed N] [--out FOLDER]`.

One run is left alone. Another, of the same recipe, is started again and again and stopped at random moments, by kill -9
or by SIGTERM, until it ends by itself; then their logs must agree row for row, value for value, and their last
checkpoints bit for bit, and so on until the time is over. A line for every stop, a verdict at the end; exit code
1 if anything differs. The seed of the moments is printed, so that a failure can be repeated.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rembed_keras import config
from rembed_keras.interruption import RESTART
from rembed_keras.training.loop.workdir import MEASURED

WHILE_STARTING = 0.1  # share of the stops that come before a command trains
RECIPE = """\
from __gin__ import dynamic_registration
from rembed_keras import training
include "gin/models/tiny.gin"
include "gin/objectives/masked_lm.gin"
include "gin/optimizers/adamw.gin"
include "gin/runtime/pretrain.gin"
include "gin/data/sample.gin"
training.AdamW.beta_2 = 0.98
training.run.stages = [@training.prepare, @training.pretrain]
"""


@dataclass(frozen=True)
class Run:
    """A run of the recipe.

    Attributes:
        folder: its WORKDIR.
        bindings: knobs of the recipe.
    """

    folder: Path
    bindings: tuple[str, ...]

    def start(self) -> subprocess.Popen:
        """The command, as a user types it."""
        words = [
            "-m",
            "rembed_keras",
            "run",
            f"{self.folder.parent}/soak.gin",
            *self.bindings,
            f"WORKDIR={self.folder}",
        ]
        said = open(f"{self.folder}.txt", "ab")  # noqa: SIM115 - the process writes to it
        with said:
            return subprocess.Popen([sys.executable, *words], stdout=said, stderr=subprocess.STDOUT)

    def rows(self) -> list[dict]:
        """The log, without what the clock decides."""
        log = self.folder / "metrics.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")] if log.exists() else []
        return [{key: value for key, value in row.items() if key not in MEASURED} for row in rows]

    def checkpoint(self) -> dict[str, bytes]:
        """Files of the newest checkpoint."""
        newest = max((self.folder / "checkpoints").glob("step-*"))
        return {f"{newest.name}/{path.name}": path.read_bytes() for path in sorted(newest.iterdir())}


def leave_alone(run: Run) -> tuple[float, float]:
    """Runs to the end; returns the seconds until the first row of the log and those after.

    Raises:
        SystemExit: if it fails.
    """
    begun = first = time.monotonic()
    process = run.start()
    while process.poll() is None:
        if not run.rows():
            first = time.monotonic()
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"the undisturbed run failed: see {run.folder}.txt")
    return first - begun, time.monotonic() - first


def stop_until_it_ends(run: Run, draw: random.Random, begun: float, spans: tuple[float, float]) -> int:
    """Stops a run at random moments until it ends by itself; returns how often.

    Args:
        run: the run.
        draw: gives the moments.
        begun: when the soak began.
        spans: seconds that a run needs until its first row and after.

    Raises:
        SystemExit: if it ends in another way than it should.
    """
    stops, (starting, training) = 0, spans
    while True:
        process = run.start()
        first, last = (0.0, starting) if draw.random() < WHILE_STARTING else (starting, starting + training / 3)
        seconds = draw.uniform(first, last)
        number = draw.choice((signal.SIGKILL, signal.SIGTERM))
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            code = process.wait()
        if code == 0:
            return stops
        stops += 1
        rows = run.rows()
        at = f"step {rows[-1]['step']}" if rows else "before the first row"
        print(
            f"{time.monotonic() - begun:6.0f} s  {number.name} after {seconds:4.1f} s, {at}, exit code {code}",
            flush=True,
        )
        if code not in (-signal.SIGKILL, -signal.SIGTERM, RESTART):
            sys.exit(f"exit code {code}: see {run.folder}.txt")


def differences(whole: Run, hurt: Run) -> list[str]:
    """What differs between two runs, a line each."""
    found = []
    for ours, theirs in zip(hurt.rows(), whole.rows(), strict=False):
        found += [
            f"{theirs['run']} step {theirs['step']}: {key} is {ours.get(key)}, not {theirs.get(key)}"
            for key in ours.keys() | theirs.keys()
            if ours.get(key) != theirs.get(key)
        ]
    if len(hurt.rows()) != len(whole.rows()):
        found.append(f"the log has {len(hurt.rows())} rows, not {len(whole.rows())}")
    ours, theirs = hurt.checkpoint(), whole.checkpoint()
    found += [f"{name} differs" for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    return found


def main() -> None:
    """Soaks, and says what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="when no further run is begun")
    parser.add_argument("--scale", type=float, default=0.1, help="share of the quickstart's steps")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    parser.add_argument("--out", help="where the runs are kept; a temporary folder by default")
    parser.add_argument("bindings", nargs="*", metavar="KNOB=VALUE", help="further knobs of the recipe")
    asked = parser.parse_args()
    knobs = {name: knob["value"] for name, knob in config.load("recipes/quickstart.gin").knobs().items()}
    steps = max(20, round(knobs["STEPS"] * asked.scale))
    alike = tuple(f"{name}={knobs[name]}" for name in ("BATCH_SIZE", "LEARNING_RATE"))
    own = (*alike, f"STEPS={steps}", f"CHECKPOINT_EVERY={max(5, steps // 12)}", f"LOG_EVERY={max(2, steps // 40)}")
    bindings = (*own, f"WARMUP_STEPS={max(2, steps // 14)}", *asked.bindings)
    print(f"seed {asked.seed}, {steps} steps", flush=True)
    draw, begun, stops, rounds = random.Random(asked.seed), time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(asked.out or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "soak.gin").write_text(RECIPE)
        whole = Run(folder / "whole", bindings)
        spans = leave_alone(whole)
        print(f"{time.monotonic() - begun:6.0f} s  the undisturbed run is done", flush=True)
        while not rounds or time.monotonic() - begun < 60 * asked.minutes:
            hurt = Run(folder / f"stopped-{rounds}", bindings)
            stops += stop_until_it_ends(hurt, draw, begun, spans)
            rounds += 1
            if found := differences(whole, hurt):
                sys.exit("\n".join([*found[:20], f"FAILED after {stops} stops, seed {asked.seed}"]))
            print(f"{time.monotonic() - begun:6.0f} s  run {rounds} equals the undisturbed one", flush=True)

    if not stops:
        sys.exit("FAILED: every run ended before it was stopped; give more steps by --scale")
    print(f"PASSED: {stops} stops in {rounds} runs of {steps} steps; logs and weights equal, bit for bit")


if __name__ == "__main__":
    main()
