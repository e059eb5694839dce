"""Uploaded traces. The server names their files itself: the name that a user gives is only shown."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from skep.core.errors import Conflict, InputError, NotFound
from skep.server.studies.caps import TRACE_MIB, TRACES, of_user
from skep.server.studies.kept import Kept
from skep.server.studies.process import start_worker, wait_for, why_ended
from skep.server.studies.records import TraceRecord
from skep.service.turn import Busy

CHECK_MAX_S = 300.0
ROOM_MIN = 4 << 30
"""Free disk space that must be there when an upload begins: more than all uploads at once can take."""


class TraceCheck(msgspec.Struct):
    """What the check of a trace says."""

    format: str
    jobs: int
    vcs: list[str]


class Upload:
    """A trace that is being received."""

    def __init__(self, folder: Path, user: str) -> None:
        self.id = secrets.token_hex(4)
        self.user = user
        self.path = folder / f"{self.id}.part"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._file: BinaryIO = os.fdopen(os.open(self.path, flags, 0o600), "wb")

    def write(self, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise Conflict(f"the trace cannot be stored: {error.strerror}") from None

    def close(self) -> None:
        """Everything is durable when this returns."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            raise Conflict(f"the trace cannot be stored: {error.strerror}") from None

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
        self.path.unlink(missing_ok=True)


class Traces:
    def __init__(self, data: Path, kept: Kept, clock: Callable[[], float]) -> None:
        self.folder = data / "traces"
        self.kept = kept
        self.clock = clock
        self._lock = threading.Lock()
        self._checking = threading.Lock()
        """One check at a time: each may take as much memory as a study."""
        self._process: subprocess.Popen[bytes] | None = None
        self._is_closing = False

    def start(self) -> None:
        """Remove what belongs to no record: uploads that the end of the server interrupted."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        known = {trace.id for trace in self.all()}
        for path in self.folder.iterdir():
            if path.name not in known:
                remove(path)

    def close(self) -> None:
        """The threads of uploads must not wait for checks any more."""
        with self._lock:
            self._is_closing = True
            if self._process is not None:
                self._process.kill()

    def begin(self, user: str) -> Upload:
        self._refuse_excess(user, 0)
        if shutil.disk_usage(self.folder).free < ROOM_MIN:
            raise Conflict("the disk of the server is nearly full")
        return Upload(self.folder, user)

    def finish(self, upload: Upload, name: str) -> TraceRecord:
        """Read in a process of its own: a large trace takes memory and time that the server needs."""
        upload.close()
        with self._checking:
            found = self._check(upload.path, name)
        size = upload.path.stat().st_size
        record = TraceRecord(upload.id, name, self.clock(), size, found.format, found.jobs, upload.user, found.vcs)
        with self._lock:
            self._refuse_excess(upload.user, size)
            upload.path.replace(self.file(record))
            self.kept.put(record)
        return record

    def _refuse_excess(self, user: str, size: int) -> None:
        known = self.all()
        mine = sum(trace.bytes for trace in known if trace.user == user)
        whole = sum(trace.bytes for trace in known)
        excess = TRACES.excess("traces", of_user(known, user) + 1, len(known) + 1, user) or TRACE_MIB.excess(
            "MiB of traces", (mine + size) >> 20, (whole + size) >> 20, user
        )
        if excess:
            raise Conflict(excess, hint="remove some")

    def _check(self, path: Path, name: str) -> TraceCheck:
        with tempfile.TemporaryFile() as errors:
            with self._started(path, name, errors) as process:
                code = wait_for(process, CHECK_MAX_S)
                assert process.stdout is not None
                printed = process.stdout.read()
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").strip()
        if code != 0:
            why = why_ended(code, said, CHECK_MAX_S)
            raise InputError(why if code == 2 else f"the trace cannot be read: {why}")
        return msgspec.json.decode(printed, type=TraceCheck)

    def _started(self, path: Path, name: str, errors: BinaryIO) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closing:
                raise Busy("the server is stopping")
            try:
                self._process = start_worker(
                    self.folder, "--check", path.name, name, out=subprocess.PIPE, errors=errors
                )
            except OSError as error:
                raise Conflict(f"the trace cannot be checked now: {error.strerror}") from None
            return self._process

    def all(self) -> list[TraceRecord]:
        """The newest first."""
        return self.kept.all(TraceRecord)

    def get(self, trace_id: str) -> TraceRecord:
        found = self.kept.find(TraceRecord, trace_id)
        if found is None:
            raise NotFound(f"there is no trace {trace_id}", hint="upload it first")
        return found

    def file(self, trace: TraceRecord) -> Path:
        return self.folder / trace.id

    def remove(self, trace_id: str) -> None:
        trace = self.get(trace_id)
        self.kept.remove(TraceRecord, trace_id)
        self.file(trace).unlink(missing_ok=True)


def remove(path: Path) -> None:
    """A file, a link (not what it leads to) or a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
