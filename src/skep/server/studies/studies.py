"""The studies of a server: their folders, the queue, the running one."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from skep.core.errors import Conflict, NotFound
from skep.files.untrusted import decode_as, open_file, read_small
from skep.server.gate import Crowded, Threads
from skep.server.studies.caps import STUDIES, WAITING, of_user
from skep.server.studies.kept import Kept
from skep.server.studies.process import start_worker, wait_for, why_ended
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
from skep.server.studies.traces import Traces, remove

WALL_MAX_S = 4 * 3600.0
RETRY_S = 60
SAID_MAX = 1 << 20
UPLOADS_MAX = 8
REPORT_MAX = 64 << 20
INPUTS = ("study.json", "trace")
"""Files that the process of a study reads; they go when it ends."""

log = logging.getLogger("skep")


class Studies:
    """One study runs at a time: the server and its jobs have precedence.

    A record is in the database; what a study reads and writes is in a folder of its name. What its process writes there
    is read with care: it has read what users sent.
    """

    def __init__(self, data: Path, clock: Callable[[], float]) -> None:
        self.data = data
        self.folder = data / "studies"
        self.clock = clock
        self.kept = Kept(data)
        self.traces = Traces(data, self.kept, clock)
        self.threads = Threads("uploads", UPLOADS_MAX)
        """For uploads: they wait for the disk and for their checks."""
        self._lock = threading.Lock()
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._running = ""
        self._thread: threading.Thread | None = None
        self._is_closing = False

    # The queue --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Studies that were running when the server ended are not resumed."""
        self.traces.start()
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for study in self.all():
            if not study.is_over:
                self._interrupt(study)
        known = {study.id for study in self.all()}
        for path in self.folder.iterdir():
            if path.name not in known:
                remove(path)
        self._thread = threading.Thread(target=self._run, name="studies", daemon=True)
        self._thread.start()

    def _interrupt(self, study: StudyRecord) -> None:
        study.error = "the server was stopped meanwhile"
        self._end(study, INTERRUPTED)

    def _end(self, study: StudyRecord, state: str) -> None:
        study.parts = self._parts(study.id)
        study.state, study.end_s = state, self.clock()
        self.kept.put(study)
        for name in INPUTS:
            with contextlib.suppress(OSError):
                (self.folder / study.id / name).unlink(missing_ok=True)

    def close(self) -> None:
        self._queue.put(None)
        with self._lock:
            self._is_closing = True
            if self._process is not None:
                self._process.kill()
        self.traces.close()
        if self._thread is not None:
            self._thread.join()
        self.threads.close()
        self.kept.close()

    def _run(self) -> None:
        while (study_id := self._queue.get()) is not None:
            try:
                self._run_one(study_id)
            except Exception:
                log.exception("study %s could not be run", study_id)
                self._give_up(study_id)

    def _give_up(self, study_id: str) -> None:
        """A fault of this program, or of the machine: the study must not seem to run for ever."""
        with self._lock, contextlib.suppress(Exception):
            self._process, self._running = None, ""
            study = self.kept.find(StudyRecord, study_id)
            if study is not None and not study.is_over:
                study.error = "the server could not run it; its log has the details"
                self._end(study, FAILED)

    def _run_one(self, study_id: str) -> None:
        with self._lock:
            study = self.kept.find(StudyRecord, study_id)
            if study is None or study.state != QUEUED or self._is_closing:
                return
            study.state, study.start_s = RUNNING, self.clock()
            self.kept.put(study)
            folder = self.folder / study_id
            with (folder / "errors.txt").open("wb") as errors:
                self._process = process = start_worker(folder, ".", str(self.data.absolute()), errors=errors)
            self._running = study_id
        code = wait_for(process, WALL_MAX_S)
        with self._lock:
            self._process, self._running = None, ""
            self._finish(study_id, code)

    def _finish(self, study_id: str, code: int | None) -> None:
        """Called under the lock. The study may have been cancelled or removed."""
        study = self.kept.find(StudyRecord, study_id)
        if study is None or study.state != RUNNING:
            return
        if self._is_closing and code != 0:
            self._interrupt(study)
        elif code == 0 and self._report(study_id) is not None:
            self._end(study, DONE)
        else:
            said = (
                (read_small(self.folder / study_id / "errors.txt", SAID_MAX) or b"").decode("utf-8", "replace").strip()
            )
            if code not in (None, 2):
                log.error("study %s failed (exit code %s):\n%s", study_id, code, said)
            study.error = why_ended(code, said, WALL_MAX_S)
            self._end(study, FAILED)

    # What is asked ----------------------------------------------------------------------------------------------

    def add(self, study: StudyRecord, trace: TraceRecord | None) -> StudyRecord:
        with self._lock:
            self._refuse_excess(study.user)
            folder = self.folder / study.id
            folder.mkdir(mode=0o700)
            try:
                if trace is not None:  # a link of its own: the trace may be removed meanwhile
                    os.link(self.traces.file(trace), folder / "trace", follow_symlinks=False)
                (folder / "study.json").write_bytes(msgspec.json.encode(study))
                self.kept.put(study)
            except FileNotFoundError:
                shutil.rmtree(folder, ignore_errors=True)
                raise NotFound(f"there is no trace {study.trace}", hint="upload it first") from None
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        self._queue.put(study.id)
        return study

    def _refuse_excess(self, user: str) -> None:
        known = self.all()
        waiting = [each for each in known if not each.is_over]
        excess = WAITING.excess("studies that have not ended", of_user(waiting, user) + 1, len(waiting) + 1, user)
        if excess:
            raise Crowded(excess, "cancel one, or come back later", RETRY_S)
        if excess := STUDIES.excess("studies", of_user(known, user) + 1, len(known) + 1, user):
            raise Conflict(excess, hint="remove some")

    def all(self) -> list[StudyRecord]:
        """The newest first."""
        return [self._with_parts(study) for study in self.kept.all(StudyRecord)]

    def get(self, study_id: str) -> StudyRecord:
        study = self.kept.find(StudyRecord, study_id)
        if study is None:
            raise NotFound(f"there is no study {study_id}")
        return self._with_parts(study)

    def cancel(self, study_id: str) -> StudyRecord:
        with self._lock:
            study = self.get(study_id)
            if study.is_over:
                raise Conflict(f"study {study_id} is over ({study.state})")
            self._end(study, CANCELLED)
            self._kill(study_id)
        return study

    def remove(self, study_id: str) -> None:
        with self._lock:
            self.get(study_id)
            self.kept.remove(StudyRecord, study_id)
            self._kill(study_id)
            shutil.rmtree(self.folder / study_id, ignore_errors=True)

    def report(self, study_id: str) -> bytes:
        study = self.get(study_id)
        found = self._report(study_id) if study.state == DONE else None
        if found is None:
            raise Conflict(f"study {study_id} has no report: it is {study.state}")
        return found

    def _kill(self, study_id: str) -> None:
        if self._running == study_id and self._process is not None:
            self._process.kill()

    # Files ------------------------------------------------------------------------------------------------------

    def _with_parts(self, study: StudyRecord) -> StudyRecord:
        if study.state == RUNNING:
            study.parts = self._parts(study.id)
        return study

    def _parts(self, study_id: str) -> list[StudyPart]:
        return decode_as(read_small(self.folder / study_id / "parts.json", SAID_MAX), list[StudyPart]) or []

    def _report(self, study_id: str) -> bytes | None:
        file = open_file(self.folder / study_id / "report.html")
        if file is None:
            return None
        with file:
            found = file.read(REPORT_MAX + 1)
        return found if len(found) <= REPORT_MAX else None
