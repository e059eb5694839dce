"""The data folder: one server at a time, and where to find the running one."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from types import TracebackType

import msgspec

from skep.core.errors import InputError
from skep.files.running import RunningProcess, forget, read_running, remember
from skep.files.text import write_aside
from skep.files.umask import make_above
from skep.server.private import check_private


class DataDir:
    """Holds the lock as long as the process lives; the kernel releases it after a crash too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _open_lock(path)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            running = read_running(path)
            who = f" (pid {running.pid}, {running.url})" if running else ""
            raise InputError(
                f"{path} is in use by another server{who}", hint="`skep down` stops it; another folder: --data DIR"
            ) from None
        self._announced: RunningProcess | None = None
        # The file of a crashed server would name a process that is no longer a server.
        (path / "server.json").unlink(missing_ok=True)
        remove_parts(path)

    def announce(self, running: RunningProcess) -> None:
        self._announced = running
        try:
            write_aside(self.path / "server.json", msgspec.json.encode(running).decode())
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}", hint="is the disk full?") from None
        remember(self.path)

    def close(self) -> None:
        if read_running(self.path) == self._announced:  # the folder may have been replaced meanwhile
            (self.path / "server.json").unlink(missing_ok=True)
        forget(self.path)
        os.close(self._lock)

    def __enter__(self) -> DataDir:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def remove_parts(folder: Path) -> None:
    """What a crash left behind of files that were being written. Only with the lock held."""
    for part in folder.glob(".*.part"):
        with contextlib.suppress(OSError):
            part.unlink()


def prepare_folder(path: Path) -> None:
    """Created if it does not exist, for its owner alone: it contains commands and environments of jobs. The same holds
    for everything that this process makes from now on."""
    try:
        make_above(path)
        path.mkdir(mode=0o700, exist_ok=True)
        if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
        check_private(path)
    except OSError as error:
        raise _unusable(path, error) from None


def _open_lock(path: Path) -> int:
    prepare_folder(path)
    try:
        return os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"the data folder {path} cannot be used: {error.strerror or error}", hint="another folder: --data DIR"
    )
