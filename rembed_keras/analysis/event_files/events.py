"""One event file of TensorBoard's, written without TensorFlow: a run on JAX need not load it to be watched.

What is written is on disk when a method returns, as far as the system says, and an error of the disk is Python's own.
"""

import io
import os
import time
from pathlib import Path
from typing import Any


class EventFile:
    """The event file of a folder, which is a run to TensorBoard.

    Args:
        folder: made if it is not there; event files that are there stay, and are shown with this one.

    Raises:
        OSError: if it cannot be written, from every method too.
    """

    def __init__(self, folder: str | Path):
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._writer = Event, RecordWriter
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time_ns()}.{os.getpid()}"
        self._file = open(self.folder / name, "ab", buffering=0)  # noqa: SIM115 - open as long as the run
        self._write([Event(wall_time=time.time(), file_version="brain.Event:2")])

    def add(self, *summaries: Any, step: int = 0) -> None:
        """Writes summaries, as `scalar` and `text` make them, or TensorBoard's own functions without TensorFlow.

        Args:
            summaries: protocol buffers of TensorBoard's class `Summary`.
            step: where they are on the axis of steps.
        """
        self._write([self._event(wall_time=time.time(), step=step, summary=each) for each in summaries])

    def close(self) -> None:
        """Closes the file, whose events are on disk already."""
        self._file.close()

    def _write(self, events):
        """Writes events whole or not at all."""
        text = io.BytesIO()
        writer = self._writer(text)
        for event in events:
            writer.write(event.SerializeToString())
        before, data = self._file.tell(), text.getvalue()
        try:
            written = self._file.write(data)
            if written < len(data):  # the rest says why
                self._file.write(data[written:])
        except OSError as error:
            self._file.truncate(before)
            raise OSError(error.errno, error.strerror, str(self.folder)) from None


def scalar(tag: str, value: float) -> Any:
    """A point of a curve."""
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def text(tag: str, markdown: str) -> Any:
    """A text in Markdown."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.text import metadata
    from tensorboard.util.tensor_util import make_tensor_proto

    about = metadata.create_summary_metadata(display_name=None, description=None)
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=make_tensor_proto(markdown))])
