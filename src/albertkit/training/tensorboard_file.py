"""A file of figures for TensorBoard.

`torch.utils.tensorboard` writes in a thread, which prints a traceback if the disk is full, and the run
continues until its next figure. Here the run itself writes, so a full disk is one error with the path.
"""

import os
import socket
import time
from itertools import count
from pathlib import Path
from typing import Any

from albertkit.extras import optional
from albertkit.files import full_disk_named

event_pb2 = optional("tensorboard.compat.proto.event_pb2", extra="train")
summary_pb2 = optional("tensorboard.compat.proto.summary_pb2", extra="train")
record_writer = optional("tensorboard.summary.writer.record_writer", extra="train")

_NUMBERS = count()  # of the files of this process, which may begin in the same second


def load_tensorboard() -> None:
    """Import TensorBoard; raise MissingExtraError if it is not installed."""
    record_writer.RecordWriter  # noqa: B018


class TensorBoardFile:
    """A new file in a folder of figures; TensorBoard reads all files of it in the order of their names.

    Args:
        folder: made if it is not there.
        purge_step: the first step of this file; TensorBoard drops this step and later ones of earlier files.

    Raises:
        DiskFullError: there is no space left; methods raise it too.
    """

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        began = f"{time.time():010.0f}.{socket.gethostname()}.{os.getpid()}.{next(_NUMBERS)}"
        self._path = folder / f"events.out.tfevents.{began}"
        with full_disk_named(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._records = record_writer.RecordWriter(self._path.open("wb"))
        self._write(file_version="brain.Event:2")
        self.purge(purge_step)

    def add(self, values: dict[str, float], step: int) -> None:
        """Write the figures of a step by their names."""
        figures = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._write(step=step, summary=summary_pb2.Summary(value=figures))

    def purge(self, step: int) -> None:
        """Have TensorBoard drop what was written for this step and later ones."""
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(step=step, session_log=start)

    def flush(self) -> None:
        """Write what is buffered, so that TensorBoard can read it."""
        with full_disk_named(self._path):
            self._records.flush()

    def close(self) -> None:
        """Flush and close the file."""
        with full_disk_named(self._path):
            self._records.close()

    def _write(self, **event: Any) -> None:
        with full_disk_named(self._path):
            self._records.write(event_pb2.Event(wall_time=time.time(), **event).SerializeToString())
