"""The studies of a server: their folders, the queue, the running one."""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.core.errors import Conflict, InputError, NotFound
from skep.files.text import write_aside
from skep.server.studies.records import (
    CANCELLED,
    DONE,
    FAILED,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    StudyPart,
    StudyRecord,
    TraceRecord,
)
from skep.service.values import Json
from skep.traces.trace import Trace

KEPT_MAX = 200
QUEUED_MAX = 10
WALL_MAX_S = 4 * 3600.0
TRACES_MAX = 50
CHECK_MAX_S = 300.0
ROOM_MIN = 1 << 30
"""Free disk space that uploads must leave, in bytes."""

log = logging.getLogger("skep")


class Studies:
    """One study runs at a time: the server and its jobs have precedence."""

    def __init__(self, data: Path, clock: Callable[[], float]) -> None:
        self.folder = data / "studies"
        self.traces = data / "traces"
        self.clock = clock
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ""
        self._thread: threading.Thread | None = None
        self._checking = threading.Lock()
        self._is_closing = False

    # The queue --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Studies that were running when the server ended are not resumed."""
        for study in self.all():
            if not study.is_over:
                self._interrupt(study)
        self._thread = threading.Thread(target=self._run, name="studies", daemon=True)
        self._thread.start()

    def _interrupt(self, study: StudyRecord) -> None:
        study.state, study.end_s = INTERRUPTED, self.clock()
        study.error = "the server was stopped meanwhile"
        self._save(study)

    def close(self) -> None:
        self._queue.put(None)
        with self._lock:
            self._is_closing = True
            process = self._process
        if process is not None:
            process.kill()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while (study_id := self._queue.get()) is not None:
            try:
                self._run_one(study_id)
            except Exception:
                log.exception("study %s could not be run", study_id)

    def _run_one(self, study_id: str) -> None:
        folder = self.folder / study_id
        with self._lock:
            study = self._read(study_id)
            if study is None or study.state != QUEUED or self._is_closing:
                return
            study.state, study.start_s = RUNNING, self.clock()
            self._save(study)
            with (folder / "errors.txt").open("wb") as errors:
                command = [sys.executable, "-m", "skep.server.studies.worker", str(folder)]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
                )
            self._running = study_id
        code = self._wait(self._process, WALL_MAX_S)
        with self._lock:
            self._process, self._running = None, ""
            self._finish(study_id, code)

    def _wait(self, process: subprocess.Popen[bytes], most_s: float) -> int | None:
        """Its exit code; None if it took too long."""
        try:
            return process.wait(most_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
        finally:
            if process.stdin is not None:
                process.stdin.close()

    def _finish(self, study_id: str, code: int | None) -> None:
        """Called under the lock. The study may have been cancelled or removed."""
        study = self._read(study_id)
        if study is None or study.state != RUNNING:
            return
        if self._is_closing and code != 0:
            self._interrupt(study)
            return
        study.end_s = self.clock()
        study.parts = self._parts(study_id)
        if code == 0 and (self.folder / study_id / "report.html").exists():
            study.state = DONE
        else:
            study.state, study.error = FAILED, self._why(study_id, code)
        self._save(study)

    def _why(self, study_id: str, code: int | None) -> str:
        if code is None:
            return f"it took more than {WALL_MAX_S / 3600:g} hours"
        said = (self.folder / study_id / "errors.txt").read_text("utf-8", "replace").strip()
        if code == 2 and said:
            return said[-2000:]
        if code < 0:
            return "it was killed: it took too much time or memory"
        log.error("a study failed:\n%s", said)
        return said.splitlines()[-1][:500] if said else f"it ended with exit code {code}"

    # What is asked ----------------------------------------------------------------------------------------------

    def add(self, study: StudyRecord, history: Trace | None) -> StudyRecord:
        with self._lock:
            known = self.all()
            if sum(not each.is_over for each in known) >= QUEUED_MAX:
                raise Conflict(f"{QUEUED_MAX} studies are waiting already", hint="cancel one, or come back later")
            if len(known) >= KEPT_MAX:
                raise Conflict(f"there are {KEPT_MAX} studies already", hint="remove some")
            folder = self.folder / study.id
            folder.mkdir(parents=True)
            try:
                if history is not None:
                    (folder / "history.msgpack").write_bytes(msgspec.msgpack.encode(history))
                else:
                    source = self.trace_file(study.trace)
                    (folder / "trace").mkdir()
                    (folder / "trace" / study.trace_name).hardlink_to(source)  # the trace may be removed meanwhile
                self._save(study)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        self._queue.put(study.id)
        return study

    def all(self) -> list[StudyRecord]:
        """The newest first."""
        names = sorted(path.parent.name for path in self.folder.glob("*/study.json"))
        found = [study for name in names if (study := self._read(name)) is not None]
        return sorted(found, key=lambda study: (-study.created_s, study.id))

    def get(self, study_id: str) -> StudyRecord:
        study = self._read(study_id)
        if study is None:
            raise NotFound(f"there is no study {study_id}")
        return study

    def cancel(self, study_id: str) -> StudyRecord:
        with self._lock:
            study = self.get(study_id)
            if study.is_over:
                raise Conflict(f"study {study_id} is over ({study.state})")
            study.parts = self._parts(study_id)
            study.state, study.end_s = CANCELLED, self.clock()
            self._save(study)
            self._kill(study_id)
        return study

    def remove(self, study_id: str) -> None:
        with self._lock:
            self.get(study_id)
            self._kill(study_id)
            shutil.rmtree(self.folder / study_id, ignore_errors=True)

    def report(self, study_id: str) -> Path:
        study = self.get(study_id)
        path = self.folder / study_id / "report.html"
        if study.state != DONE or not path.exists():
            raise Conflict(f"study {study_id} has no report: it is {study.state}")
        return path

    def _kill(self, study_id: str) -> None:
        if self._running == study_id and self._process is not None:
            self._process.kill()

    # Files ------------------------------------------------------------------------------------------------------

    def _read(self, study_id: str) -> StudyRecord | None:
        try:
            study = msgspec.json.decode((self.folder / study_id / "study.json").read_bytes(), type=StudyRecord)
        except (OSError, msgspec.MsgspecError):
            return None
        if study.state == RUNNING:
            study.parts = self._parts(study_id)
        return study

    def _parts(self, study_id: str) -> list[StudyPart]:
        try:
            return msgspec.json.decode((self.folder / study_id / "parts.json").read_bytes(), type=list[StudyPart])
        except (OSError, msgspec.MsgspecError):
            return []

    def _save(self, study: StudyRecord) -> None:
        write_aside(self.folder / study.id / "study.json", msgspec.json.encode(study).decode())

    # Traces -----------------------------------------------------------------------------------------------------

    def new_upload(self) -> tuple[str, Path]:
        """An id, and the file to which the upload goes."""
        if len(self.list_traces()) >= TRACES_MAX:
            raise Conflict(f"there are {TRACES_MAX} traces already", hint="remove some")
        self.traces.mkdir(parents=True, exist_ok=True, mode=0o700)
        if shutil.disk_usage(self.traces).free < ROOM_MIN:
            raise Conflict("the disk of the server is nearly full")
        trace_id = secrets.token_hex(4)
        return trace_id, self.traces / f".{trace_id}.part"

    def add_trace(self, trace_id: str, upload: Path, name: str, user: str) -> TraceRecord:
        """Read in a separate process: a large trace takes memory and time that the server needs."""
        folder = self.traces / trace_id
        folder.mkdir()
        try:
            upload.replace(folder / name)
            found = self._check(folder / name)
            size = (folder / name).stat().st_size
            record = TraceRecord(trace_id, name, self.clock(), size, found["format"], found["jobs"], user)
            write_aside(folder / "trace.json", msgspec.json.encode(record).decode())
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return record

    def _check(self, path: Path) -> Json:
        command = [sys.executable, "-m", "skep.server.studies.worker", "--check", str(path)]
        with self._checking, (path.parent / "errors.txt").open("w+b") as errors:
            # Its input stays open while it runs: end of file would mean the end of the server.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
            with process:
                code = self._wait(process, CHECK_MAX_S)
                assert process.stdout is not None
                printed = process.stdout.read()
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace").replace(f"{path.parent}/", "").strip()
        if code is None:
            raise InputError(f"the trace could not be read within {CHECK_MAX_S:g} s")
        if code:
            last = said.splitlines()[-1] if said else "it took too much memory"
            raise InputError(last if code == 2 else f"the trace cannot be read: {last}")
        found: Json = msgspec.json.decode(printed)
        return found

    def list_traces(self) -> list[TraceRecord]:
        """The newest first."""
        found = []
        for path in self.traces.glob("*/trace.json"):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                found.append(msgspec.json.decode(path.read_bytes(), type=TraceRecord))
        return sorted(found, key=lambda trace: (-trace.created_s, trace.id))

    def get_trace(self, trace_id: str) -> TraceRecord:
        found = next((trace for trace in self.list_traces() if trace.id == trace_id), None)
        if found is None:
            raise NotFound(f"there is no trace {trace_id}", hint="upload it first")
        return found

    def trace_file(self, trace_id: str) -> Path:
        return self.traces / trace_id / self.get_trace(trace_id).name

    def remove_trace(self, trace_id: str) -> None:
        self.get_trace(trace_id)
        shutil.rmtree(self.traces / trace_id, ignore_errors=True)
