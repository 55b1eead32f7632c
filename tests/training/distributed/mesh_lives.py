"""Runs of one recipe on JAX: by two processes, then on eight devices and on one, where they go on with what those left.

`python -m tests.training.distributed.mesh_lives FOLDER CORPUS TEXT_DIR` prints the exit codes, and leaves runs, and
what was printed, in FOLDER. These are forks of one process that has imported JAX and started nothing of it.
"""

import json
import os
import sys
from pathlib import Path

from rembed_keras import config
from tests.interruptions.forks import command, finish, import_once, start
from tests.training.distributed.test_strategies import Runs, free_ports

GALORE = [
    "training.pretrain.optimizer=@training.GaLore",
    "training.GaLore.learning_rate=@training.WarmupLinearDecay()",
    "training.GaLore.rank=2",
    "training.GaLore.update_proj_gap=2",
    "EVAL_EVERY=None",  # what is evaluated on fully sharded matrices are the two processes
]


def processes(runs):
    """Jobs: the two processes of one run."""
    (port,) = free_ports(1)
    arguments = runs.command("processes", "fully_sharded")
    together = {
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}",
        "KERAS_DISTRIBUTION_NUM_PROCESSES": "2",
    }
    each = [command("run", *arguments, **together, KERAS_DISTRIBUTION_PROCESS_ID=str(index)) for index in range(2)]
    return [ending_together(job) for job in each]


def ending_together(job):
    """A job that leaves the other process as JAX does when Python ends, which a fork does not: or it is killed."""

    def run():
        import jax

        try:
            job()
        finally:
            jax.distributed.shutdown()

    return run


def on_eight(runs):
    """All further runs, one after the other where JAX sees eight devices."""
    os.environ["XLA_FLAGS"] = os.environ["XLA_FLAGS"].replace("count=2", "count=8")

    def run(name, strategy, more=()):
        recipe, *bindings = runs.command(name, strategy, more)
        config.run(config.load(recipe, bindings))

    run("one", "one_device")
    run(runs.killed("processes", 3), "model_parallel")
    run(runs.killed("processes", 6), "data_parallel")
    run("galore", "fully_sharded", GALORE)
    run("galore_on_one", "one_device", GALORE)
    run(runs.killed("galore", 3), "fully_sharded", GALORE)


def main():
    folder, corpus, text_dir = map(Path, sys.argv[1:])
    runs = Runs(folder, corpus, text_dir)
    import_once()
    together = [start(job, folder / f"process{index}.txt") for index, job in enumerate(processes(runs))]
    codes = [finish(process) for process in together]
    if codes == [0, 0]:
        codes.append(finish(start(lambda: on_eight(runs), folder / "eight.txt")))
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
