"""The same preparation on Apache Beam, for text that one machine would take too long for.

Beam's runners (Dataflow, Flink, Spark) do the stages' jobs where `jobs.Workers` has processes: the same functions of
the same parts, so the corpus is the same, byte for byte, and a pipeline that was stopped goes on where it was. What
must see all text at once, whether a paragraph stood before, is done by grouping: every paragraph that is still kept
goes to the group of its fingerprint, or of each of its bands, and all but the first of a group are marked.

All workers must see the source and the corpus's place under the same paths: a network file system, or a bucket that is
mounted as one. Beam wants a protobuf older than 7, and the SentencePiece of this package's releases a newer one, so
both do not fit in one environment. This package needs neither TensorFlow nor that protobuf here:

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
from rembed_keras.data.prepare.cleaning import ALIKE, KEPT, REPEATED, Cleaning
from rembed_keras.data.prepare.jobs import Job, Workers
from rembed_keras.data.prepare.sources import Part
from rembed_keras.errors import UserError

Place = tuple[int, int]  # a part's number, and a paragraph's in it


class BeamWorkers(Workers):
    """Beam's workers, by a pipeline for each stage.

    Args:
        options: of pipelines, as on Beam's command lines.
        folder: that all workers see, for what jobs give back; made, and removed in the end.

    Raises:
        UserError: if Beam is not installed.
    """

    def __init__(self, options: Sequence[str], folder: Path):
        super().__init__(1, 0, quiet=True)
        try:
            self.beam = importlib.import_module("apache_beam")
        except ImportError:
            raise UserError(
                "Apache Beam is not installed, and needs an environment of its own: see data/beam.py"
            ) from None
        self.options, self.folder = list(options), folder

    def run(self, what: str, function: Callable, jobs: Sequence[Job]) -> list:
        """As `Workers.run`: a pipeline whose elements are jobs.

        Raises:
            UserError: of the first job that found a mistake.
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
        """As `Workers.compare`: every kind of likeness by a pipeline that groups paragraphs."""
        self.run("forget", survey.forget, [(part.size, (part, notes, cleaning)) for part in parts])
        if cleaning.deduplicate:
            self._mark(parts, notes, cleaning, "fingerprint", REPEATED)
        if cleaning.near_duplicates is not None:
            self._mark(parts, notes, cleaning, "bands", ALIKE)

    def _mark(self, parts, notes, cleaning, field, verdict):
        beam = self.beam
        with self._pipeline() as pipeline:
            read = pipeline | "parts" >> beam.Create(list(enumerate(parts))) | "spread" >> beam.Reshuffle()
            keyed = partial(keys_of, notes=notes, cleaning=cleaning, field=field)
            groups = read | "keys" >> beam.FlatMap(keyed) | "alike" >> beam.GroupByKey()
            later = groups | "later" >> beam.FlatMap(all_but_first) | "by part" >> beam.GroupByKey()
            mark = partial(_mark_part, parts=dict(enumerate(parts)), notes=notes, cleaning=cleaning, verdict=verdict)
            _ = later | "mark" >> beam.Map(mark)

    def _pipeline(self):
        options = importlib.import_module("apache_beam.options.pipeline_options").PipelineOptions(self.options)
        return self.beam.Pipeline(options=options)


def keys_of(
    numbered: tuple[int, Any], notes: Path, cleaning: Cleaning, field: str
) -> Iterator[tuple[tuple[str, int, int], Place]]:
    """Yields what the paragraphs of a part that stay are compared by, and their places.

    Args:
        numbered: a `Part`, after its number; Beam checks annotations and cannot check that one.
        notes: folder of the survey's notes.
        cleaning: what may go.
        field: of a note, "fingerprint" or "bands".
    """
    number, part = numbered
    languages = list(survey.totals_of(part, notes))
    found = survey.read_notes(part, notes, cleaning)
    for place in np.flatnonzero(np.isin(found["verdict"], (KEPT, ALIKE))).tolist():
        language = languages[found["language"][place]]
        for band, key in enumerate(np.atleast_1d(found[field][place]).view(np.int64).tolist()):  # as Beam counts
            yield (language, band, key), (number, place)


def all_but_first(group: tuple[object, Iterable[Place]]) -> Iterator[Place]:
    """Yields the places of those in a group that come after the first of them in the text.

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
    """Does a job, and leaves what it gave."""
    number, arguments = job
    try:
        found: dict[str, Any] = {"result": function(*arguments)}
    except UserError as error:
        found = {"mistake": str(error)}
    survey.write_whole(Path(folder) / f"{number}.json", json.dumps(found).encode())


def _result(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    if "mistake" in found:
        raise UserError(found["mistake"])
    return found["result"]
