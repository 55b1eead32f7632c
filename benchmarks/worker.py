"""Measures one peer in a process of its own: `python -m benchmarks.worker PEER VARIANT WORK SHAPE STEPS`.

Prints one line of JSON: seconds to make the model, of the first step, which compiles, and of each of the others, the
highest memory of the process and of its accelerator, if there is one, in bytes, and the losses. TURNS=FOLDER:COUNT in
the environment lets COUNT such processes compile side by side and take their other steps one process at a time, once
all of them are there. TRACE=FOLDER profiles three more steps of a peer on JAX, after what is measured; the line says
where that is, or why it failed.
"""

import fcntl
import importlib
import json
import os
import resource
import sys
import time
from pathlib import Path

from benchmarks.shapes import Shape, batches, named

WARM_UP = 1  # steps after the first that are not counted


def wait_for_turn(turns: str):
    """Blocks until all processes of FOLDER:COUNT compiled and none of them takes steps; its end gives the turn away."""
    folder, count = turns.rsplit(":", 1)
    (Path(folder) / f"{os.getpid()}.there").touch()
    while len([*Path(folder).glob("*.there")]) < int(count):
        time.sleep(0.1)
    turn = (Path(folder) / "turn").open("w")
    fcntl.flock(turn, fcntl.LOCK_EX)
    return turn


def measure(peer: str, variant: str, work: str, shape_name: str, steps: int) -> dict:
    """Seconds and bytes of some steps of a peer."""
    shape = named(shape_name)
    start = time.perf_counter()
    module = importlib.import_module(f"benchmarks.peers.{peer}")
    learner = getattr(module, work)(shape, variant)
    seconds, losses = [time.perf_counter() - start], []

    turns = []

    def note(loss):
        nonlocal taken
        losses.append(float(loss))
        seconds.append(time.perf_counter() - taken)
        if len(losses) == 1 + WARM_UP and "TURNS" in os.environ:
            turns.append(wait_for_turn(os.environ["TURNS"]))
        taken = time.perf_counter()

    given = batches(shape, 1 + WARM_UP + steps)
    taken = time.perf_counter()
    if hasattr(learner, "fit"):
        learner.fit(given, note)
    else:
        for batch in given:
            note(learner(batch))
    found = {
        "make_s": seconds[0],
        "first_step_s": seconds[1],
        "steps_s": seconds[2 + WARM_UP :],
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "device_bytes": module.device_bytes() if hasattr(module, "device_bytes") else None,
        "losses": losses,
    }
    return found | ({"trace": profile(learner, shape, os.environ["TRACE"])} if "TRACE" in os.environ else {})


def profile(learner, shape: Shape, folder: str) -> str:
    """The folder with the profile of three steps of a learner that fits, or why there is none."""
    import jax

    try:
        with jax.profiler.trace(folder):
            learner.fit(batches(shape, 3), float)
    except (RuntimeError, OSError) as error:  # what was measured is not lost with it
        return f"no profile: {error}"
    return folder


if __name__ == "__main__":
    name, variant, work, shape_name, steps = sys.argv[1:]
    if name == "products":
        from benchmarks.peers import products

        print(json.dumps(products.rates()))
    elif name == "bfloat16 products":
        from benchmarks.accelerator import product_rate

        print(json.dumps(product_rate()))
    else:
        print(json.dumps(measure(name, variant, work, shape_name, int(steps))))
