"""The same preparation on Apache Beam, for text that would take one machine too long.

Beam's runners (Dataflow, Flink, Spark, Dask) run the stages' jobs where `jobs.Workers` has processes: the same
functions of the same parts, so the corpus is the same, byte for byte, and a pipeline that was stopped resumes.
Deduplication, which must see all text at once, is a grouping: the fingerprints of all paragraphs of a language, or
their MinHash bands, are split by the remainder of a division into groups that a worker holds in memory, as arrays, and
all but the first of a group's equal keys are marked. Whatever a worker does may be done again, and late: runners repeat
what a lost worker had done, and let a slow one go on beside its replacement.

All workers must see the source and the corpus's folder under the same paths: a network file system, or a mounted
bucket. Beam needs a protobuf older than 7, which most of what this package may be installed with has left behind, so
give it an environment of its own. Preparation needs neither TensorFlow nor protobuf:

    pip install --no-deps rembed-keras
    pip install apache-beam array-record grain joblib numpy sentencepiece click rich rensa py3langid
    rembed prepare SOURCE OUT_DIR --beam "--runner=FlinkRunner --flink_master=HOST:8081"
"""

import argparse
import contextlib
import importlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rembed_keras.data.prepare import survey
from rembed_keras.data.prepare.cleaning import DUPLICATE, KEPT, NEAR_DUPLICATE, Cleaning
from rembed_keras.data.prepare.jobs import RESUMES, Job, WorkerLostError, Workers
from rembed_keras.data.prepare.sources import Part
from rembed_keras.data.writing import write_atomically
from rembed_keras.errors import UserError, first_line

COMPARED = 2**21  # keys in a group: 34 MB with their places
OF_RUNNERS = ("distributed", "grpc")  # packages by which runners reach their clusters
SCHEDULER_FILE = "--dask_scheduler_file"

Group = tuple[str, int, int]  # a language, a band of its MinHash, and the remainder of the keys
Keys = tuple[int, np.ndarray, np.ndarray]  # index of a part, indices of paragraphs in it, and a key of each


class JobError(OSError):
    """What a job says of its files without a number, which would look as if the cluster said it."""


class BeamWorkers(Workers):
    """Beam's workers, with a pipeline for each stage.

    Args:
        options: of pipelines, as on Beam's command lines.
        folder: one that all workers see, for the results of jobs; it is made, and removed in the end.

    Raises:
        UserError: if Beam is not installed, or the options name a file of Dask's scheduler that is not there.
    """

    def __init__(self, options: Sequence[str], folder: Path):
        super().__init__(1, 0, quiet=True)
        try:
            self.beam = importlib.import_module("apache_beam")
        except ImportError:
            raise UserError(
                "Apache Beam is not installed, and needs an environment of its own: see data/prepare/beam.py"
            ) from None
        self.options, self.folder, self.stages = list(options), folder, 0
        _check_scheduler(self.options)

    def run(self, what: str, function: Callable, jobs: Sequence[Job]) -> list:
        """As `Workers.run`: a pipeline whose elements are jobs.

        Raises:
            UserError: the first that a job raised.
            WorkerLostError: if the cluster cannot be reached, or was lost.
        """
        beam = self.beam
        self.stages += 1
        folder = self.folder / str(self.stages)  # its own: a slow worker of an earlier stage may still write
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            with self._pipeline() as pipeline:
                elements = [(number, list(arguments)) for number, (_, arguments) in enumerate(jobs)]
                made = pipeline | "jobs" >> beam.Create(elements) | "spread" >> beam.Reshuffle()
                _ = made | what >> beam.Map(partial(_do, function=function, folder=str(folder)))
            return [_result(folder / f"{number}.json") for number in range(len(jobs))]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def compare(self, parts: Sequence[Part], languages: Sequence[str], notes: Path, cleaning: Cleaning) -> None:
        """As `Workers.compare`: duplicates and near-duplicates each by a pipeline that groups paragraphs."""
        paragraphs: Counter = Counter()
        for part in parts:
            paragraphs.update({name: each["paragraphs"] for name, each in survey.totals_of(part, notes).items()})
        passes = {language: -(-number // COMPARED) for language, number in paragraphs.items()}
        if cleaning.deduplicate:
            self._mark(parts, notes, cleaning, passes, "fingerprint", DUPLICATE)
        if cleaning.near_duplicates is not None:
            self._mark(parts, notes, cleaning, passes, "bands", NEAR_DUPLICATE)

    def _mark(self, parts, notes, cleaning, passes, field, verdict):
        beam = self.beam
        about = {"notes": notes, "cleaning": cleaning, "verdict": verdict}
        with self._pipeline() as pipeline:
            read = pipeline | "parts" >> beam.Create(list(enumerate(parts))) | "spread" >> beam.Reshuffle()
            keys = read | "keys" >> beam.FlatMap(partial(keys_of, **about, passes=passes, field=field))
            later = keys | "groups" >> beam.GroupByKey() | "later" >> beam.FlatMap(all_but_first)
            whole = read | "whole" >> beam.Map(_without_marks)  # parts of which nothing is marked now, but was before
            by_part = (later, whole) | "all" >> beam.Flatten() | "by part" >> beam.GroupByKey()
            _ = by_part | "mark" >> beam.Map(partial(mark_part, **about, parts=dict(enumerate(parts))))

    @contextlib.contextmanager
    def _pipeline(self):
        options = importlib.import_module("apache_beam.options.pipeline_options").PipelineOptions(self.options)
        try:
            pipeline = self.beam.Pipeline(options=options)
        except ValueError as error:
            raise UserError(f"--beam: {error}") from None
        try:
            with pipeline:
                yield pipeline
        except Exception as error:
            if _is_of_cluster(error):
                raise WorkerLostError(f"the cluster cannot be reached: {first_line(error)}; {RESUMES}") from error
            raise
        client = getattr(pipeline.result, "client", None)  # of Dask's runner, which leaves it open, and keeps results
        if client is not None:  # that it would make once more when a worker is lost
            is_done = all(future.status == "finished" for future in pipeline.result.futures)
            client.close()
            if not is_done:  # its client gives up without an error
                raise WorkerLostError(f"the cluster was lost before its work was done; {RESUMES}")


def _check_scheduler(options):
    """Checks that the file of Dask's scheduler is there, for which its client would wait without a word."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(SCHEDULER_FILE, nargs="?")
    path = parser.parse_known_args(options)[0].dask_scheduler_file
    if path and not Path(path).is_file():
        raise UserError(f"--beam: {SCHEDULER_FILE} {path} does not exist: start the scheduler first, or name its file")


def _is_of_cluster(error):
    """Whether an error is one of reaching a cluster, and none of a program, of a user or of a disk."""
    if isinstance(error, OSError) and not isinstance(error, JobError):
        return error.errno is None or isinstance(error, ConnectionError | TimeoutError)
    return type(error).__module__.partition(".")[0] in OF_RUNNERS


def keys_of(
    numbered: tuple[int, Any], notes: Path, cleaning: Cleaning, verdict: int, passes: Mapping[str, int], field: str
) -> Iterator[tuple[Group, Keys]]:
    """Yields the keys of a part's paragraphs that are compared, by the group in which they are.

    Args:
        numbered: a `Part`, after its index; Beam checks annotations and cannot check that one.
        notes: folder of the survey's notes.
        cleaning: the settings.
        verdict: that later ones get. Those that have it may be of an attempt that was interrupted.
        passes: of each language, into how many groups its keys are split.
        field: of a note, "fingerprint" or "bands".
    """
    number, part = numbered
    found = survey.read_notes(part, notes, cleaning)
    compared = (found["verdict"] == KEPT) | (found["verdict"] >= verdict)
    for index, language in enumerate(survey.totals_of(part, notes)):
        places = np.flatnonzero(compared & (found["language"] == index))
        keys = found[field][places]  # of each paragraph one, or one a band
        keys = keys[:, None] if keys.ndim == 1 else keys
        for band in range(keys.shape[1]):
            own = keys[:, band]
            remainders = own % np.uint64(passes[language])
            for remainder in np.unique(remainders).tolist():
                chosen = remainders == remainder
                yield (language, band, remainder), (number, places[chosen], own[chosen])


def all_but_first(group: tuple[object, Iterable[Keys]]) -> Iterator[tuple[int, np.ndarray]]:
    """Yields, by part, the places of a group's paragraphs but for the first in the text that has their key.

    >>> list(all_but_first(("group", [(1, np.array([0, 2]), np.array([5, 6])), (0, np.array([4]), np.array([5]))])))
    [(1, array([0]))]
    """
    pieces = {number: (places, keys) for number, places, keys in group[1]}
    ordered = sorted(pieces)
    again = survey.all_but_first([pieces[number][1] for number in ordered])
    for number, is_later in zip(ordered, again, strict=True):
        if is_later.any():
            yield number, pieces[number][0][is_later]


def _without_marks(numbered):
    return numbered[0], np.zeros(0, np.int64)


def mark_part(group, parts, notes, cleaning, verdict):
    """Gives a part's verdict to the paragraphs of a group and to no other; writes nothing that is there already."""
    number, places = group
    found = survey.read_notes(parts[number], notes, cleaning, "r+")
    old = np.asarray(found["verdict"])
    new = np.where(old == verdict, KEPT, old)
    new[np.concatenate(list(places))] = verdict
    changed = np.flatnonzero(new != old)
    found["verdict"][changed] = new[changed]
    if isinstance(found, np.memmap):
        found.flush()


def _do(job: tuple[int, list], function: Callable, folder: str) -> None:
    """Runs a job and writes its result."""
    number, arguments = job
    try:
        found: dict[str, Any] = {"result": function(*arguments)}
    except UserError as error:
        found = {"mistake": str(error)}
    except OSError as error:
        if error.errno is None:
            raise JobError(first_line(error)) from error
        raise
    write_atomically(Path(folder) / f"{number}.json", json.dumps(found))


def _result(path):
    if not path.is_file():
        raise WorkerLostError(
            f"{path.parent} has no result: the cluster was lost, or its workers do not see the folder; {RESUMES}"
        )
    found = json.loads(path.read_text(encoding="utf-8"))
    if "mistake" in found:
        raise UserError(found["mistake"])
    return found["result"]
