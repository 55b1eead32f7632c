"""Labelled and parallel text: how it is read, encoded, scored, and compared with what needs no encoder."""

from rembed_keras.tasks.classification import LabelledTask
from rembed_keras.tasks.retrieval import ParallelText

__all__ = ["LabelledTask", "ParallelText"]
