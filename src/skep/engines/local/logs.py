"""Reading the output of a task. The shim writes it, see `disk.Log`."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from skep.files.untrusted import is_file, open_file

LOG_BYTES = 80 << 20
"""The log size of one task if no limit is set."""
LOG_FILES = 5
"""The number of parts that are kept, including the one being written."""
TAIL_BYTES = 8192


def log_files(task: Path) -> list[Path]:
    """The parts of a task's log, oldest first."""
    older = [task / f"log.{number}" for number in range(LOG_FILES - 1, 0, -1)]
    return [path for path in [*older, task / "log"] if is_readable(path)]


def is_readable(path: Path) -> bool:
    try:
        return is_file(path)
    except OSError:
        return False


def log_tail(task: Path, size: int = TAIL_BYTES) -> str:
    """The last lines that a task printed; unreadable parts are left out."""
    tail = b""
    try:
        for path in reversed(log_files(task)):
            if len(tail) < size:
                tail = _end_of(path, size - len(tail)) + tail
    except OSError:
        pass
    return tail.decode(errors="replace")


def trim_logs(job: Path, launch: int, size: int) -> None:
    """Before a new launch: keep the newest log parts of earlier launches of each task, up to this size."""
    kept: dict[str, int] = {}
    for number in range(launch - 1, 0, -1):
        for task in job.glob(f"{number}/*-*"):
            with contextlib.suppress(OSError):
                for path in reversed(log_files(task)):
                    kept[task.name] = kept.get(task.name, 0) + path.lstat().st_size
                    if kept[task.name] > size:
                        path.unlink()


def _end_of(path: Path, size: int) -> bytes:
    file = open_file(path)
    if file is None:
        return b""
    with file:
        file.seek(max(os.fstat(file.fileno()).st_size - size, 0))
        return file.read(size)
