"""A run: stages one after another on one workdir, and a record of how it was made.

Everything a run did can be read from its folder and repeated from it: the resolved recipe before the first step, the
operative one after the last, the ledger, and the versions of what it ran on. A folder belongs to one recipe; the same
command on it again goes on where it stopped, under the same strategy or another: a recipe says what is computed, and
`STRATEGY` where.
"""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.console import Console

from rembed_keras.analysis.cost.ledger import Ledger
from rembed_keras.analysis.environment import environment
from rembed_keras.analysis.reports.terminal import Whole
from rembed_keras.data.json_files import read_json, understood
from rembed_keras.data.pipeline.schedules import check_shares
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import Rate, UserError, first_line
from rembed_keras.tasks.kinds.task import Task
from rembed_keras.tasks.scores import read_scores
from rembed_keras.training.distributed.processes import is_together
from rembed_keras.training.distributed.strategies import Strategy, join, place
from rembed_keras.training.loop import checkpoints
from rembed_keras.training.loop.same_recipe import (
    STAGES,
    forget_another_recipe,
    keep_recipe,
    refuse_another_recipe,
    refuse_smoke,
)
from rembed_keras.training.loop.workdir import Workdir
from rembed_keras.training.rehearsal import rehearse
from rembed_keras.training.sinks.sink import Sink
from rembed_keras.training.sinks.tensorboard import TensorBoard
from rembed_keras.training.stages.evaluate import check_choice


@dataclass(frozen=True)
class RunRecord:
    """What a run keeps about itself; `config` hands it down.

    Attributes:
        config: the resolved recipe, a gin text that can be run again.
        operative: gives, after the stages, the gin text of what they really used.
        ledger: of the model; None for a recipe without a model.
        tokens_by_task: of each stage, how many tokens it trains on for each training example of a task, by the number
            of the task; by this a run says how long all that is left takes, which it does not without.
        is_smoke: whether it is a smoke run, which alone works in the folder of one.
        choices: learning rates that `evaluate` chooses among, by the number of the task, which must have data for it.
        batches: of each stage that pre-trains, by its number: its strategy, the rows of its batches by their first
            step, and its micro-batches; the devices must share them.
        strategies: of each stage that has one, by its number: what it is called, and its strategy.
    """

    config: str
    operative: Callable[[], str]
    ledger: Ledger | None = None
    tokens_by_task: Sequence[Mapping[int, float]] = ()
    is_smoke: bool = False
    choices: Mapping[int, Sequence[Rate]] = field(default_factory=dict)
    batches: Mapping[int, tuple[Strategy, Mapping[int, int], int]] = field(default_factory=dict)
    strategies: Mapping[int, tuple[str, Strategy]] = field(default_factory=dict)


def run(
    stages: Sequence[Callable[..., None]],
    workdir: str,
    record: RunRecord,
    tasks: Sequence[Task] = (),
    strategy: Strategy = "one_device",
    sinks: Sequence[Sink] | None = None,
    chosen: Sequence[int] | None = None,
) -> None:
    """Runs stages one after another; on a workdir that was interrupted each goes on where it stopped.

    Args:
        stages: functions that take the `Workdir`.
        workdir: path of the run's folder.
        record: what the folder keeps about the run.
        tasks: tasks of later stages; naming them here reads their files, and finds what is wrong with them, before the
            first stage.
        strategy: of the stages that train; see `distribution.place`. If it is one of several processes, all train, the
            first of them alone writes and does the other stages, and the others end when it does.
        sinks: where the run is watched, for example `sinks.TensorBoard()`; that alone by default.
        chosen: which stages to run, by number; all by default. Otherwise the folder is not marked as finished.

    Raises:
        UserError: if the folder is of another recipe or of a smoke run, in use, or cannot be written; or there is no
            data to choose a learning rate by, a batch that devices cannot share evenly, or a stage that each of several
            processes would train alone.
        Interrupted: if it was asked to stop.
        PeerLost: if a peer process is lost.
    """
    processes = join(strategy)
    if any(getattr(stage, "is_in_passing", False) for stage in stages):
        workdir = processes.exchange(workdir)[0]  # each has a folder of its own, and the first one's has the corpus
    ledger = None if record.ledger is None else record.ledger.to_json()
    folder = processes.by_chief(lambda: Workdir(workdir, record.config, ledger, sinks))
    if not processes.is_chief:
        folder = Workdir(workdir, is_chief=False)
    try:
        with folder, processes.in_need_of_each_other():
            if processes.by_chief(lambda: _begin(folder, record, tasks, stages)):
                begun = time.monotonic()
                asked = range(len(stages)) if chosen is None else chosen
                tokens = [_tokens(record, number, tasks) for number in asked]
                _check_strategies(record, [number for number in asked if is_together(stages[number])], processes)
                _check_batches(record, asked)
                rehearse([stages[number] for number in asked], folder, processes.by_chief)
                course = _Course(folder, stages)
                for place, number in enumerate(asked, start=1):
                    stage = stages[number]
                    folder.stage = f"stage {place} of {len(asked)}" if len(asked) > 1 else ""
                    folder.later_tokens = sum(tokens[place:])
                    if course.is_noted and not processes.by_chief(partial(course.begins, number)):
                        continue
                    if is_together(stage):
                        stage(folder)
                    processes.by_chief(partial(_complete, folder, stage, record, partial(course.ends, number)))
                if chosen is None:
                    processes.by_chief(lambda: _finish(folder, record, time.monotonic() - begun))
            processes.leave()
    except OSError as error:
        raise _said_of(folder, error) from error


def _said_of(folder, error):
    """What is raised for a file that cannot be used; for a pipe whose reader has seen enough, the error itself."""
    first = error.__context__ if error.strerror is None else error  # gin raises another, that has its text alone
    if isinstance(first, BrokenPipeError):
        return first
    if isinstance(first, OSError) and first.strerror:
        return UserError(f"{first.filename or folder.path}: {first.strerror}")
    return UserError(f"{folder.path}: {first_line(error)}")


def _tokens(record, number, tasks):
    """How many tokens a stage will train on, padding too, as far as that is known before it begins."""
    of_tasks = record.tokens_by_task[number] if record.tokens_by_task else {}
    return sum(count * len(tasks[task].splits.train) for task, count in of_tasks.items())


def _check_batches(record, asked):
    """Checks that devices share the batches of pre-trainings to come: the text before them may take long to prepare."""
    for strategy, sizes, micro_batches in (record.batches[number] for number in asked if number in record.batches):
        check_shares(sizes, place(strategy, 0).replicas * micro_batches)


def _check_strategies(record, shared, processes):
    """Checks that processes which make one run make one training too: alone, each would train and write all of it."""
    for name, strategy in (record.strategies[number] for number in shared if number in record.strategies):
        if processes.count > 1 and join(strategy).count != processes.count:
            raise UserError(
                f"{name}.strategy is {strategy!r}, and {processes.count} processes make this run: bind it to %STRATEGY"
            )


def in_passing(stage: Callable) -> Callable:
    """Marks a stage whose folder nobody is to look at: a run that lists it does not say how to watch it."""
    vars(stage)["is_in_passing"] = True
    return stage


def pretraining(stage: Callable) -> Callable:
    """Marks a stage that trains the run's model on: what stages before it took of the run is another after it."""
    vars(stage)["is_pretraining"] = True
    return stage


class _Course:
    """How far a run of several pre-trainings has come, as its `stages.json` says.

    A stage between two of them is not done again once the second has begun: what it took of the run is gone.

    Attributes:
        is_noted: whether the run is one of several pre-trainings.
    """

    def __init__(self, folder, stages):
        self.folder, self.path, self.stages = folder, folder.path / STAGES, stages
        self.pretrainings = [place for place, each in enumerate(stages) if getattr(each, "is_pretraining", False)]
        self.is_noted = len(self.pretrainings) > 1

    def begins(self, number):
        """Whether a stage is to be done; if so, it is noted.

        Raises:
            UserError: for a pre-training whose forerunner is not done, as where some stages alone are asked for.
        """
        begun, done = self._said()
        name = ", ".join(filter(None, [getattr(self.stages[number], "__name__", "a stage"), self.folder.stage]))
        if number in self.pretrainings:
            if not checkpoints.by_step(self.folder.checkpoints):  # from scratch, perhaps again
                begun, done = ({each for each in of if each < self.pretrainings[0]} for of in (begun, done))
            if any(each < number and each not in done for each in self.pretrainings):
                raise UserError(f"{name}: the pre-training that it goes on from is not done: run that first")
        elif self.pretrainings[0] < number and any(each > number for each in begun.intersection(self.pretrainings)):
            if number in done:
                print(f"{name}: done, before the next pre-training began", flush=True)
                return False
            print(f"{name}: a later pre-training has begun, and it takes what that has left of the run", flush=True)
        self._say(begun | {number}, done)
        return True

    def ends(self, number):
        """Notes that a stage is done."""
        if self.is_noted:
            begun, done = self._said()
            self._say(begun, done | {number})

    def _said(self):
        said = read_json(self.path) if self.path.exists() else {}
        with understood(self.path, "how far a run has come"):
            begun, done = ({int(number) for number in said.get(key, ())} for key in ("begun", "done"))
        return begun, done

    def _say(self, begun, done):
        write_atomically(self.path, json.dumps({"begun": sorted(begun), "done": sorted(done)}))


def _begin(folder, record, tasks, stages):
    """Whether there is anything to do; if so, the record is written."""
    if not record.is_smoke:
        refuse_smoke(folder.path)
    is_finished = (folder.path / "finished.json").exists()
    refuse_another_recipe(folder.path, record.config, takes_other_precision=not is_finished)
    if is_finished:
        print(f"{folder.path} is finished; nothing to do. Remove it, or name another WORKDIR, to run again.")
        return False
    for number, learning_rates in record.choices.items():
        check_choice(tasks[number], learning_rates)
    forget_another_recipe(folder.path, record.config)
    _write_record(folder, record)
    is_drawn = any(isinstance(sink, TensorBoard) for sink in folder.watch.sinks)
    if is_drawn and not any(getattr(stage, "is_in_passing", False) for stage in stages):
        print(f"tensorboard --logdir {shlex.quote(str(folder.tensorboard))}", flush=True)
    folder.watch.open()
    return True


def _complete(folder, stage, record, ends):
    """Does a stage that is the chief's alone, and notes what was used so far, and that the stage is done."""
    if not is_together(stage):
        stage(folder)
    write_atomically(folder.path / "operative_config.gin", record.operative())
    folder.watch.score(read_scores(folder.scores))
    ends()


def _finish(folder, record, seconds):
    if record.ledger is not None:
        Console().print(Whole(record.ledger.table()))
    write_atomically(folder.path / "finished.json", json.dumps({"seconds_of_last_process": round(seconds, 1)}))


def _write_record(folder, record):
    keep_recipe(folder.path, record.config)
    write_atomically(folder.path / "environment.json", json.dumps(environment(), indent=1))
    if record.ledger is not None:
        path = folder.path / "ledger.json"
        of_tasks = read_json(path).get("tasks") if path.exists() else None  # written while they were fine-tuned
        costs = record.ledger.to_json() | ({"tasks": of_tasks} if of_tasks else {})
        write_atomically(path, json.dumps(costs, indent=1))
