"""Two workers of one run: one is killed, then one is asked to stop, then both are let be; and one dies unheard.

`python -m tests.training.distributed.worker_lives FOLDER ARGUMENTS` prints the exit codes of these lives, and leaves
what was printed in FOLDER. The workers are forks of one process that has imported TensorFlow and started nothing of it.
"""

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from tests.interruptions.forks import PAUSE, command, finish, import_once, start
from tests.training.distributed.test_strategies import free_ports


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


def main():
    folder, arguments = Path(sys.argv[1]), json.loads(sys.argv[2])
    import_once()
    kill = (signal.SIGSTOP, signal.SIGKILL)  # nothing more is done together from the first on
    hurts = [kill, (signal.SIGTERM,), None]
    codes = [live(arguments, folder, number, hurt) for number, hurt in enumerate(hurts)]
    print(json.dumps([*codes, lose_chief(folder)]))


if __name__ == "__main__":
    main()
