"""Two workers of one run: one is killed, then one is asked to stop, then both are let be; and one dies unheard.

Then four devices of one process go on with that run.

`python -m tests.training.distributed.worker_lives FOLDER CORPUS TEXT_DIR` prints the exit codes of the workers' lives,
and leaves runs, and what was printed, in FOLDER. All are forks of one process that has imported TensorFlow and started
nothing of it.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import conftest
from tests.interruptions.forks import PAUSE, command, finish, import_once, start
from tests.training.distributed.test_strategies import Runs, free_ports


def addresses_of_two():
    return [f"127.0.0.1:{port}" for port in free_ports(2)]


def tf_config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


def worker(arguments, addresses, index):
    """A job: a run's process of that index."""
    return command("run", *arguments, TF_CONFIG=tf_config(addresses, index))


def wait_until_said(words, said, workers):
    """Waits until each of some files has the words; all workers live meanwhile."""
    while not all(file.exists() and words in file.read_text(errors="replace") for file in said):
        there = [file.read_text(errors="replace") for file in said if file.exists()]
        assert all(os.waitpid(process, os.WNOHANG) == (0, 0) for process in workers), there
        time.sleep(PAUSE)


def live(arguments, folder, number, hurt=None):
    """One life of both workers; `hurt` is done to the second as soon as a row is in the log. Gives the exit codes."""
    addresses = addresses_of_two()
    said = [folder / f"life{number}_worker{index}.txt" for index in range(2)]
    workers = [start(worker(arguments, addresses, index), said[index]) for index in range(2)]
    if hurt is not None:
        wait_until_said("tokens/s", said[:1], workers)
        for signal_ in hurt:
            os.kill(workers[1], signal_)
    return [finish(process, within=300.0) for process in workers]


def wait(addresses, index):
    """A job: both wait, where no library tells them of anything."""

    def job():
        from rembed_keras.cli.exits import reported_in_one_line
        from rembed_keras.training.distributed.strategies import join

        os.environ["TF_CONFIG"] = tf_config(addresses, index)
        processes = replace(join("multi_worker"), look_every=0.5, grace=0.5)
        with reported_in_one_line(), processes.in_need_of_each_other():
            print("joined", flush=True)
            time.sleep(900)

    return job


def lose_chief(folder):
    """Kills the first of two that wait; gives the exit codes."""
    addresses = addresses_of_two()
    said = [folder / f"waiting_worker{index}.txt" for index in range(2)]
    workers = [start(wait(addresses, index), said[index]) for index in range(2)]
    wait_until_said("joined", said, workers)
    os.kill(workers[0], signal.SIGKILL)
    return [finish(process, within=300.0) for process in workers]


def go_on_with_four(runs):
    """Goes on with the run as it was after three steps, on four devices of one process."""
    name = runs.killed("workers", 3)
    job = command("run", *runs.command(name, "mirrored"))

    def on_four():
        conftest.split_cpu(4)
        job()

    code = finish(start(on_four, runs.folder / f"{name}.txt"))
    assert code == 0, code


def main():
    folder, corpus, text_dir = map(Path, sys.argv[1:])
    runs = Runs(folder, corpus, text_dir)
    arguments = runs.command("workers", "multi_worker")
    import_once()
    kill = (signal.SIGSTOP, signal.SIGKILL)  # nothing more is done together from the first on
    hurts = [kill, (signal.SIGTERM,), None]
    codes = [live(arguments, folder, number, hurt) for number, hurt in enumerate(hurts)]
    codes.append(lose_chief(folder))
    if codes[2] == [0, 0]:
        go_on_with_four(runs)
    print(json.dumps(codes))


if __name__ == "__main__":
    main()
