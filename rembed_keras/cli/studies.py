"""The command about studies: run all arms from all seeds, and say what follows for each hypothesis."""

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from rembed_keras.cli import completion
from rembed_keras.cli.options import ALLOW_IMPORT, FILLED, PLACE, WHOLE
from rembed_keras.data.writing import locked
from rembed_keras.errors import UserError

DRAWN = ("arms", "measures", "hypotheses", "verdicts", "scores", "curves", "layers")  # of a record, by figures
UNDRAWN = ".undrawn"  # in a study's folder, while its study.json has what its figures do not show yet


@click.command()
@click.argument("study", type=PLACE, metavar="STUDY", shell_complete=completion.recipes)
@click.argument("bindings", nargs=-1, metavar="[KNOB=VALUE]...")
@click.option("--jobs", type=WHOLE, default=1, show_default=True, help="How many runs at once, or queued.")
@click.option("--cluster", type=click.Choice(["slurm", "local"]), help="Submit runs as jobs of a cluster, by submitit.")
@click.option(
    "--cluster-option",
    multiple=True,
    type=FILLED,
    metavar="KEY=VALUE",
    help="Of its jobs: slurm_partition=gpu.",
)
@click.option("--list", "as_list", is_flag=True, help="Print one command a run, for a scheduler, and run nothing.")
@click.option("--verify", is_flag=True, help="STUDY is a study.json: derive its verdicts again from its scores.")
@ALLOW_IMPORT
def study(
    study: str,
    bindings: tuple[str, ...],
    jobs: int,
    cluster: str | None,
    cluster_option: tuple[str, ...],
    as_list: bool,
    verify: bool,
    allow_import: tuple[str, ...],
) -> None:
    """Run a STUDY: arms, seeds, measures and hypotheses.

    A finished run is never run again; the same command resumes, and runs what an added arm or seed needs. KNOB is one
    of the study, or else of every arm that has it. The folder of the study gets study.json, study.md and study.html.
    Exit code 1 means that a run failed, or that verdicts do not agree with scores.
    """
    if verify:
        others = {"--list": as_list, "--cluster": cluster, "--cluster-option": cluster_option, "--jobs": jobs > 1}
        _verify(Path(study), (*bindings, *(name for name, is_given in others.items() if is_given)))
        return
    if cluster_option and cluster is None:
        raise UserError("--cluster-option needs --cluster")
    if as_list and (cluster or jobs > 1):
        raise UserError(f"--list runs nothing: leave out {'--cluster' if cluster else '--jobs'}")
    from rembed_keras import config
    from rembed_keras.analysis.studies.kept import check_all_stays
    from rembed_keras.analysis.studies.record import read_record

    plan = config.plan_study(study, bindings, allow_import)
    check_all_stays(plan, read_record(plan.results / "study.json"))
    if as_list:
        _list(plan)
        return
    start = _start(cluster, plan.folder / "jobs", cluster_option, jobs)
    for folder in (plan.folder, plan.results):
        folder.mkdir(parents=True, exist_ok=True)
    with open(plan.folder / ".lock", "w") as lock:
        if not locked(lock):
            raise UserError(f"study {plan.folder} is in use by another process: wait for it or choose another")
        failed = _Driver(plan, Path(study).stem).run(jobs, start)
    if failed:
        sys.exit(1)


def _start(cluster, folder, options, at_once):
    """What starts a job of the study."""
    from rembed_keras.analysis.studies.cluster import Cluster, parse_options
    from rembed_keras.analysis.studies.processes import start_here

    if cluster is None:
        return partial(start_here, at_once=at_once)
    return Cluster(cluster, folder, parse_options(options)).start


def _verify(path, bindings):
    from rembed_keras.analysis.studies.record import disagreements

    if bindings:
        raise UserError(f"--verify takes a study.json alone, not {bindings[0]}")
    found = disagreements(path)
    for line in found:
        click.echo(line)
    if found:
        sys.exit(1)
    click.echo(f"{path}: the verdicts follow from the scores")


def _list(plan):
    """Prints commands; corpora that runs share come first, and their runs find them by links that are made here."""
    for corpus in plan.corpora_to_prepare:
        click.echo(_command(corpus.command))
    for run in plan.runs:
        if not run.is_finished:
            _link(run)
            click.echo(_command(run.command))
    waiting = len(plan.corpora_to_prepare)
    if waiting:
        what = (
            "the first command prepares a corpus" if waiting == 1 else f"the first {waiting} commands prepare corpora"
        )
        click.echo(f"{what} of several runs: finish it before the others", err=True)


def _command(arguments: Sequence[str]) -> str:
    return shlex.join([sys.executable, "-m", "rembed_keras", *arguments])


def _link(run) -> None:
    """Makes a run's corpus the one that it shares, unless it has one.

    A link that a study has made may lead to another, as of an arm that was changed before it had learnt anything.
    """
    own = run.folder / "corpus"
    if run.corpus is None or (own.exists() and not own.is_symlink()):
        return
    run.folder.mkdir(parents=True, exist_ok=True)
    link = os.path.relpath(run.corpus, run.folder)
    if (run.folder / link).resolve() != run.corpus.resolve():  # the folder is elsewhere, and a link leads there
        link = os.path.relpath(run.corpus.resolve(), run.folder.resolve())
    if own.is_symlink():
        from rembed_keras.analysis.studies.processes import is_held
        from rembed_keras.training.loop.same_recipe import has_learnt

        is_of_study = own.readlink().parts[-3:-2] == (run.corpus.parts[-3],)
        if not is_of_study or has_learnt(run.folder) or is_held(run.folder):  # by a run of a study that was killed
            return
        own.unlink()
    own.symlink_to(link)


def _drawn(record: Mapping) -> str:
    """What figures show of a record."""
    return json.dumps([record.get(key) for key in DRAWN], default=str)


class _Driver:
    """Runs what is left of a study, and publishes what there is after each run."""

    def __init__(self, plan, title: str):
        from rembed_keras.analysis.studies.record import progress_of, read_record

        record: Mapping = read_record(plan.results / "study.json") or {}
        self.plan, self.title = plan, title
        seconds, _ = progress_of(record)
        begun = {run.name for run in plan.runs if run.is_recorded or run.folder.exists()}  # not those that begin again
        self.seconds = {name: taken for name, taken in seconds.items() if name in begun}
        self.undrawn = plan.folder / UNDRAWN
        is_drawn = (plan.results / "study.png").exists() and not self.undrawn.exists()
        self.drawn = _drawn(record) if is_drawn else None
        self.failures: dict[str, str] = {}
        self.is_stopped = False  # whether a run was
        self.warnings: set[str] = set()  # that were shown

    def run(self, at_once: int, start) -> bool:
        """Whether a run failed or was stopped; `start` starts a job."""
        from rembed_keras.analysis.studies.processes import Job, run_jobs

        logs = self.plan.folder / "logs"
        self._publish()
        corpora = [
            Job(f"corpus-{each.folder.parent.name}", each.command, each.folder.parent,
                logs / f"corpus-{each.folder.parent.name}.txt")
            for each in self.plan.corpora_to_prepare
        ]  # fmt: skip
        run_jobs(corpora, at_once, self._prepared, start)
        runs = [run for run in self.plan.runs if not run.is_finished and run.name not in self.failures]
        for run in runs:
            _link(run)
        jobs = [Job(run.name, run.command, run.folder, logs / f"{run.name}.txt") for run in runs]
        click.echo(f"{self.plan.folder}: {len(self.plan.runs)} runs, {len(jobs)} to do; logs in {logs}")
        run_jobs(jobs, at_once, self._ended, start)
        if _drawn(self.record) != self.drawn:  # a scheduler may have finished runs, or a hypothesis have changed
            self._draw()
        self._show()
        return bool(self.failures) or self.is_stopped

    def _prepared(self, job, code, seconds):
        corpus = next(each for each in self.plan.corpora if each.folder.parent == job.folder)
        if corpus.is_prepared:
            click.echo(f"{job.name}: prepared in {seconds:.0f} s")
        elif code != 75:
            click.echo(f"{job.name} failed: {job.failure(code)}", err=True)
            lost = [run.name for run in self.plan.runs if run.corpus == corpus.folder and not run.is_finished]
            self.failures |= dict.fromkeys(lost, f"its corpus failed: {job.failure(code)}")
            self._publish()

    def _ended(self, job, code, seconds):
        run = next(each for each in self.plan.runs if each.name == job.name)
        self.seconds[run.name] = self.seconds.get(run.name, 0.0) + seconds
        if run.is_finished:
            click.echo(f"{run.name}: finished in {self.seconds[run.name]:.0f} s")
        elif code == 75:  # it has not failed, and the same command resumes it
            self.is_stopped = True
            click.echo(f"{run.name} stopped: {job.failure(code)}", err=True)
        else:
            self.failures[run.name] = job.failure(code)
            click.echo(f"{run.name} failed: {self.failures[run.name]}", err=True)
        self._publish()
        self._warn()

    def _publish(self):
        from rembed_keras.analysis.studies.record import make_record, to_text
        from rembed_keras.analysis.studies.results.page import page
        from rembed_keras.analysis.studies.results.report import markdown
        from rembed_keras.data.writing import write_atomically

        self.record = make_record(self.plan, self.seconds, self.failures)
        if _drawn(self.record) != self.drawn:
            self.undrawn.touch()
        write_atomically(self.plan.results / "study.json", to_text(self.record))
        write_atomically(self.plan.results / "study.md", markdown(self.record, self.title))
        write_atomically(self.plan.results / "study.html", page(self.record, self.title))

    def _draw(self):
        """Draws what takes seconds to import, once all runs have ended."""
        from rembed_keras.analysis.studies.results.figure import draw_arms, draw_study
        from rembed_keras.analysis.studies.results.hparams import write_trials

        draw_study(self.plan.results / "study.png", self.record)
        if draw_arms(self.plan.results / "layers.png", self.record):
            click.echo(f"{self.plan.results}: layers.png")
        write_trials(self.plan.folder / "tensorboard", self.record)
        self.undrawn.unlink(missing_ok=True)

    def _warn(self):
        """Says at once what measures find nothing, so that nobody waits for all runs to learn it."""
        from rembed_keras.analysis.studies.lacking import missing

        for line in missing(self.plan, self.record):
            if line not in self.warnings:
                click.echo(f"warning: {line}", err=True)
                self.warnings.add(line)

    def _show(self):
        from rich.console import Console

        from rembed_keras.analysis.studies.results.report import lines, scores_table

        self._warn()
        Console().print(scores_table(self.record).rich())
        for line in lines(self.record):
            click.echo(line)
        click.echo(f"{self.plan.results}: study.json, study.md, study.html, study.png")
        click.echo(f"tensorboard --logdir {shlex.quote(str(self.plan.folder))}")


def show(path: str, bindings: Sequence[str], as_json: bool, allow_import: Sequence[str]) -> None:
    """Shows what a study will run, as `rembed inspect` does."""
    from rich.console import Console

    from rembed_keras import config
    from rembed_keras.analysis.studies.kept import check_all_stays
    from rembed_keras.analysis.studies.record import make_record, progress_of, read_record, to_text

    plan = config.plan_study(path, bindings, allow_import)
    record = read_record(plan.results / "study.json")
    check_all_stays(plan, record)
    if as_json:
        click.echo(to_text(make_record(plan, *progress_of(record))), nl=False)
        return
    console = Console()
    for table in plan.tables(record):
        console.print(table.rich())
    click.echo(plan.hours(record))
