"""Where everything of a job lies on the disk. The files here are the truth about what runs; all else is memory of them.

jobs/<job>/<launch>/launch.json             the tasks of this start: where they sit, their ports
jobs/<job>/<launch>/<role>-<index>/         one task: see `shim.py` for its files
reports                                     the fifo where shims ring

Those are the server's, and no job of another account can see them. What belongs to the job, below `own`, which is
`jobs` where jobs run as the server:

<own>/<job>/checkpoint/                     what the job saves, shared by all its launches
<own>/<job>/work/                           where it works if it names no folder
<own>/<job>/<launch>/<role>-<index>/own/    `SKEP_TASK_DIR`: what a task says of itself
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import struct
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from skep.core.errors import InputError, NotFound
from skep.engines.local.disk import write_whole

NAME_MAX = 120
SMALL = 1 << 16
LAUNCH_MAX = 64 << 20
"""Of `launch.json`: a gang may have thousands of tasks."""
_FLOCK = "hhqqi"
T = TypeVar("T")


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as `launch.json` keeps it."""

    role: str
    index: int
    node: str
    """By name: numbers of nodes change with the cluster."""
    ports: dict[str, list[int]] = {}
    cgroups: list[str] = []
    gpus: list[int] = []
    """Those that are its alone."""
    own: str = ""
    """Its `SKEP_TASK_DIR`; empty in records of earlier versions, where it is the task's folder."""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class LaunchRecord(msgspec.Struct, frozen=True):
    job_id: str
    launch: int
    tasks: list[TaskRecord]


class ExitRecord(msgspec.Struct, frozen=True):
    """How a task ended, as `exit.json` keeps it."""

    code: int
    cause: str = ""
    ran: bool = True
    stop_asked: bool = False
    seconds: float = 0.0


class Folder:
    """The data folder of the engine. Every path made here is below it, whatever the names are."""

    def __init__(self, root: Path, own: Path | None = None) -> None:
        self.root = root
        self.jobs = root / "jobs"
        self.own = own or self.jobs
        self.reports = root / "reports"

    def prepare(self) -> None:
        try:
            self.jobs.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self.reports.exists():
                os.mkfifo(self.reports, 0o600)
        except OSError as error:
            raise InputError(f"{error.filename or self.root}: cannot be used: {error.strerror}") from None
        if not self.reports.is_fifo():
            raise InputError(f"{self.reports}: should be a fifo", hint="remove it, it is made again")

    def job(self, job_id: str) -> Path:
        return self.jobs / safe_name(job_id)

    def of_job(self, job_id: str, name: str) -> Path:
        """A folder of the job's own: `checkpoint`, `work`."""
        return self.own / safe_name(job_id) / name

    def of_task(self, job_id: str, launch: int, task: str) -> Path:
        """The task's own folder."""
        return self.own / safe_name(job_id) / str(launch) / safe_name(task) / "own"

    def launch(self, job_id: str, launch: int) -> Path:
        return self.job(job_id) / str(launch)

    def task(self, job_id: str, launch: int, task: str) -> Path:
        return self.launch(job_id, launch) / safe_name(task)

    def launches(self, job_id: str) -> list[int]:
        """The starts of this job that there have been, oldest first."""
        return sorted(launch for launch, _ in launch_folders(self.job(job_id)))

    def record(self, job_id: str, launch: int) -> LaunchRecord:
        record = read_launch(self.launch(job_id, launch))
        if record is None:
            raise NotFound(f"job {job_id}: the files of its start {launch} are gone")
        return record

    def is_over(self, launch: Path) -> bool:
        """Whether every task of a launch has ended."""
        with os.scandir(launch) as tasks:
            return all(os.path.exists(f"{task.path}/exit.json") for task in tasks if task.is_dir())

    def all_launches(self) -> list[Path]:
        return [path for job in os.listdir(self.jobs) for _, path in launch_folders(self.jobs / job)]

    def last_job(self) -> int:
        numbers = (name.partition("%")[0] for name in os.listdir(self.jobs))
        return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)

    def forget(self, job_id: str) -> None:
        """Remove everything of a job that has ended, its tasks that were started one by one too."""
        for root in {self.jobs, self.own}:
            for path in (root / safe_name(job_id), *root.glob(f"{safe_name(job_id)}%2F*")):
                shutil.rmtree(path, ignore_errors=True)


def launch_folders(job: Path) -> list[tuple[int, Path]]:
    try:
        names = os.listdir(job)
    except OSError:
        return []
    return [(int(name), job / name) for name in names if name.isascii() and name.isdigit()]


def safe_name(name: str) -> str:
    """One component of a path for any text, different for different texts; plain names stay as they are."""
    safe = quote(name, safe="", errors="surrogatepass")
    if safe.startswith(".") or not safe:
        safe = f"%2E{safe[1:]}" if safe else "%"
    if len(safe) > NAME_MAX:
        safe = f"{safe[: NAME_MAX - 33]}%{hashlib.sha256(safe.encode()).hexdigest()[:32]}"
    return safe


def write_durable(path: Path, record: msgspec.Struct) -> None:
    write_whole(str(path), msgspec.json.encode(record).decode(), is_durable=True)


def read_launch(path: Path) -> LaunchRecord | None:
    return read_record(path / "launch.json", LaunchRecord, LAUNCH_MAX)


def read_record(path: Path, kind: type[T], size_max: int = SMALL) -> T | None:
    """None where there is no such file, or it is not what it should be."""
    content = read_small(path, size_max)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError:
        return None


def read_small(path: Path, size_max: int = SMALL) -> bytes | None:
    """The content of a file that a task may have put there: no fifo that blocks, no link, no giant."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > size_max:
            return None
        return os.read(fd, status.st_size)
    except OSError:
        return None
    finally:
        os.close(fd)


def lock_holder(task: Path) -> int:
    """The process that has this task, 0 if none has. It asks without taking the lock, which would be in the way."""
    try:
        fd = os.open(task / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else int(pid)
    finally:
        os.close(fd)
