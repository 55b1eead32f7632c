"""The same preparation on Apache Beam, for text that would take one machine too long.

Beam's runners (Dataflow, Flink, Spark) run the stages' jobs where `jobs.Workers` has processes: the same functions of
the same parts, so the corpus is the same, byte for byte, and a pipeline that was stopped resumes. Deduplication, which
must see all text at once, is a grouping: every paragraph that is still kept goes to the group of its fingerprint, or of
each of its MinHash bands, and all but the first of a group are marked.

All workers must see the source and the corpus's folder under the same paths: a network file system, or a mounted
bucket. Beam needs a protobuf older than 7, which most of what this package may be installed with has left behind, so
give it an environment of its own. Preparation needs neither TensorFlow nor protobuf:

    pip install --no-deps rembed-keras
    pip install apache-beam array-record grain joblib numpy sentencepiece click rich rensa py3langid
    rembed prepare SOURCE OUT_DIR --beam "--runner=FlinkRunner --flink_master=HOST:8081"
"""

import importlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rembed_keras.data.prepare import survey
from rembed_keras.data.prepare.cleaning import DUPLICATE, KEPT, NEAR_DUPLICATE, Cleaning
from rembed_keras.data.prepare.jobs import Job, Workers
from rembed_keras.data.prepare.sources import Part
from rembed_keras.errors import UserError

Place = tuple[int, int]  # index of a part, and of a paragraph in it


class BeamWorkers(Workers):
    """Beam's workers, with a pipeline for each stage.

    Args:
        options: of pipelines, as on Beam's command lines.
        folder: one that all workers see, for the results of jobs; it is made, and removed in the end.

    Raises:
        UserError: if Beam is not installed.
    """

    def __init__(self, options: Sequence[str], folder: Path):
        super().__init__(1, 0, quiet=True)
        try:
            self.beam = importlib.import_module("apache_beam")
        except ImportError:
            raise UserError(
                "Apache Beam is not installed, and needs an environment of its own: see data/prepare/beam.py"
            ) from None
        self.options, self.folder = list(options), folder

    def run(self, what: str, function: Callable, jobs: Sequence[Job]) -> list:
        """As `Workers.run`: a pipeline whose elements are jobs.

        Raises:
            UserError: the first that a job raised.
        """
        beam = self.beam
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        try:
            with self._pipeline() as pipeline:
                elements = [(number, list(arguments)) for number, (_, arguments) in enumerate(jobs)]
                made = pipeline | "jobs" >> beam.Create(elements) | "spread" >> beam.Reshuffle()
                _ = made | what >> beam.Map(partial(_do, function=function, folder=str(self.folder)))
            return [_result(self.folder / f"{number}.json") for number in range(len(jobs))]
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def compare(self, parts: Sequence[Part], languages: Sequence[str], notes: Path, cleaning: Cleaning) -> None:
        """As `Workers.compare`: duplicates and near-duplicates each by a pipeline that groups paragraphs."""
        self.run("reset", survey.reset, [(part.size, (part, notes, cleaning)) for part in parts])
        if cleaning.deduplicate:
            self._mark(parts, notes, cleaning, "fingerprint", DUPLICATE)
        if cleaning.near_duplicates is not None:
            self._mark(parts, notes, cleaning, "bands", NEAR_DUPLICATE)

    def _mark(self, parts, notes, cleaning, field, verdict):
        beam = self.beam
        with self._pipeline() as pipeline:
            read = pipeline | "parts" >> beam.Create(list(enumerate(parts))) | "spread" >> beam.Reshuffle()
            keyed = partial(keys_of, notes=notes, cleaning=cleaning, field=field)
            groups = read | "keys" >> beam.FlatMap(keyed) | "duplicates" >> beam.GroupByKey()
            later = groups | "later" >> beam.FlatMap(all_but_first) | "by part" >> beam.GroupByKey()
            mark = partial(_mark_part, parts=dict(enumerate(parts)), notes=notes, cleaning=cleaning, verdict=verdict)
            _ = later | "mark" >> beam.Map(mark)

    def _pipeline(self):
        options = importlib.import_module("apache_beam.options.pipeline_options").PipelineOptions(self.options)
        return self.beam.Pipeline(options=options)


def keys_of(
    numbered: tuple[int, Any], notes: Path, cleaning: Cleaning, field: str
) -> Iterator[tuple[tuple[str, int, int], Place]]:
    """Yields the keys by which the kept paragraphs of a part are grouped, and their places.

    Args:
        numbered: a `Part`, after its index; Beam checks annotations and cannot check that one.
        notes: folder of the survey's notes.
        cleaning: the settings.
        field: of a note, "fingerprint" or "bands".
    """
    number, part = numbered
    languages = list(survey.totals_of(part, notes))
    found = survey.read_notes(part, notes, cleaning)
    for place in np.flatnonzero(np.isin(found["verdict"], (KEPT, NEAR_DUPLICATE))).tolist():
        language = languages[found["language"][place]]
        for band, key in enumerate(
            np.atleast_1d(found[field][place]).view(np.int64).tolist()
        ):  # Beam's integers are signed
            yield (language, band, key), (number, place)


def all_but_first(group: tuple[object, Iterable[Place]]) -> Iterator[Place]:
    """Yields the places of a group but for the first in the text.

    >>> list(all_but_first(("key", [(1, 0), (0, 7), (0, 3)])))
    [(1, 0), (0, 7)]
    """
    _, places = group
    first = min(places)
    return (place for place in places if place != first)


def _mark_part(group, parts, notes, cleaning, verdict):
    number, places = group
    found = survey.read_notes(parts[number], notes, cleaning, "r+")
    found["verdict"][np.fromiter(places, np.int64)] = verdict
    if isinstance(found, np.memmap):
        found.flush()


def _do(job: tuple[int, list], function: Callable, folder: str) -> None:
    """Runs a job and writes its result."""
    number, arguments = job
    try:
        found: dict[str, Any] = {"result": function(*arguments)}
    except UserError as error:
        found = {"mistake": str(error)}
    survey.write_atomically(Path(folder) / f"{number}.json", json.dumps(found).encode())


def _result(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    if "mistake" in found:
        raise UserError(found["mistake"])
    return found["result"]
