"""Queries about jobs that are answered from their files, without the engine's thread. For any thread."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.core.actions import Setting
from skep.core.errors import NotFound
from skep.core.ports import LogReader, Metrics, TaskEnvironment, TaskStatus
from skep.engines.local.begin import TaskFile
from skep.engines.local.containers import exec_command
from skep.engines.local.folder import Folder, log_files, safe_name
from skep.engines.local.gpus import read_gpus
from skep.engines.local.read_log import Reader
from skep.engines.local.run import LocalTask
from skep.engines.local.runs import Runs
from skep.files.untrusted import decode_as, open_file, read_small

TASK_FILE_MAX = 4 << 20
LAUNCHES_READ = 3
TASKS_READ = 64
CURVES_READ = 100
METRICS_MAX = 16 << 20
"""The most bytes of the metrics of one launch that are read: the latest."""
HEALTH_S = 5.0


class StoredJobs:
    """What any engine that keeps its jobs in a `Folder` answers from their files."""

    folder: Folder

    def latest_progress(self, job_id: str) -> dict[str, Setting] | None:
        """The latest report of a launch that runs, if it is known without reading files."""
        return None

    def last_job(self) -> int:
        return self.folder.last_job()

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        self._task_path(job_id, task, launch)

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        return Reader(lambda: self._log_files(job_id, task, launch), tail)

    def _log_files(self, job_id: str, task: str, launch: int) -> list[Path]:
        try:
            return log_files(self._task_path(job_id, task, launch))
        except NotFound:
            return []

    def progress(self, job_id: str) -> dict[str, Setting]:
        try:
            latest = self.latest_progress(job_id)
            return self._kept_progress(job_id) if latest is None else latest
        except (OSError, NotFound):
            return {}

    def _kept_progress(self, job_id: str) -> dict[str, Setting]:
        """The latest launch with reports: one that has just started has none yet."""
        for launch in reversed(self._launches(job_id)[-LAUNCHES_READ:]):
            for record in self.folder.record(job_id, launch).tasks[:TASKS_READ]:
                values = LocalTask(record, self.folder.task(job_id, launch, record.name)).progress()
                if values:
                    return values
        return {}

    def metrics(self, job_id: str, task: str = "") -> Iterator[Metrics]:
        for launch in self._launches(job_id)[-CURVES_READ:]:
            try:
                records = self.folder.record(job_id, launch).tasks
            except (OSError, NotFound):
                continue
            for record in [each for each in records if not task or each.name == task][:1]:
                own = LocalTask(record, self.folder.task(job_id, launch, record.name)).own
                yield Metrics(launch, *read_lines(own / "metrics.jsonl"))

    def tasks(self, job_id: str) -> list[TaskStatus]:
        try:
            launches = self._launches(job_id)
            records = self.folder.record(job_id, launches[-1]).tasks if launches else []
        except (OSError, NotFound):
            return []
        return [status(LocalTask(each, self.folder.task(job_id, launches[-1], each.name))) for each in records]

    def _launches(self, job_id: str) -> list[int]:
        """Its files stay where they are while they are read."""
        self.folder.packed.note_read(safe_name(job_id))
        return self.folder.launches(job_id)

    def _task_path(self, job_id: str, task: str, launch: int) -> Path:
        try:
            launches = self._launches(job_id)
        except OSError as error:
            raise NotFound(f"job {job_id}: its files cannot be read now: {error.strerror}") from None
        if not launches or (launch and launch not in launches):
            raise NotFound(
                f"job {job_id}: {f'attempt {launch} does not exist' if launch else 'it has not started yet'}"
            )
        launch = launch or launches[-1]
        names = [record.name for record in self.folder.record(job_id, launch).tasks]
        if task and task not in names:
            raise NotFound(f"job {job_id}: no task {task[:100]!r}", hint=f"it has {', '.join(names[:20])}")
        return self.folder.task(job_id, launch, task or names[0])


class JobFiles(StoredJobs):
    """The same for processes of this machine."""

    runs: Runs
    _health: dict[str, list[dict[str, Any]]] | None = None
    _health_s = -HEALTH_S

    def latest_progress(self, job_id: str) -> dict[str, Setting] | None:
        run = self.runs.by_job.get(job_id)
        return run.progress if run is not None and (run.progress or run.launch == 1) else None

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        file = decode_as(read_small(self._task_path(job_id, task, launch) / "task.json", TASK_FILE_MAX), TaskFile)
        if file is None:
            raise NotFound(f"job {job_id}: its task wrote no environment")
        task = file.name.rpartition("/")[2]
        if file.container is not None:
            return TaskEnvironment(file.env, file.cwd, task, exec_command(file.container))
        return TaskEnvironment(file.env, file.cwd, task)

    def share(self, job_id: str) -> dict[str, Setting]:
        try:
            members = self.runs.shares.measured().members
        except OSError:
            return {}
        found = [each for key, each in members.items() if key.rpartition("/")[0] == job_id]
        return msgspec.structs.asdict(found[-1]) if found else {}

    def gpu_health(self) -> dict[str, list[dict[str, Any]]]:
        """Nothing for virtual GPUs. The driver is queried at most once per period."""
        if time.monotonic() - self._health_s >= HEALTH_S:
            self._health_s = time.monotonic()
            readings = read_gpus()
            here = socket.gethostname().split(".")[0]
            node = self.runs.cluster.by_name.get(here)
            is_real = node is not None and node.gpu_count == len(readings) > 0
            self._health = {here: [msgspec.structs.asdict(each) for each in readings]} if is_real else {}
        return self._health or {}


def status(task: LocalTask) -> TaskStatus:
    try:
        task.look()
    except OSError:
        return as_known(task, "unknown")
    return as_known(task, task.state)


def as_known(task: LocalTask, state: str) -> TaskStatus:
    record = task.record
    code = task.exit.code if task.exit is not None else None
    return TaskStatus(record.name, state, record.node, sorted(record.gpus + record.shared), code)


def read_lines(path: Path) -> tuple[list[bytes], bool]:
    """Whole lines at the end of a file that the job may have put there, and whether there are earlier ones."""
    file = open_file(path)
    if file is None:
        return [], False
    with file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(size - METRICS_MAX, 0))
        lines = file.read(METRICS_MAX).split(b"\n")
    is_cut = size > METRICS_MAX
    return (lines[1:] if is_cut else lines), is_cut
