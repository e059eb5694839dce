"""The files of jobs on the disk. They are the truth about what runs; everything in memory is a copy of them.

    jobs/<job>/<launch>/launch.json             the tasks of this launch: their seats and ports
    jobs/<job>/<launch>/<role>-<index>/         one task: the files of its shim, see `shim.py`
    jobs/<job>.packed                           what is left of an ended job, see `packed.py`
    reports                                     the fifo for notifications of shims
    epoch                                       which server may act, see `Fence` in `engine.py`

These belong to the server, and no job of another account can see them. The job's own files are below `own`, which is
`jobs` if jobs run as the server:

    <own>/<job>/checkpoint/                     what the job saves, shared by all its launches
    <own>/<job>/work/                           its working folder if it names none
    <own>/<job>/<launch>/<role>-<index>/own/    `SKEP_TASK_DIR`: what a task reports about itself

Every read goes through `files/untrusted.py`: jobs that run as the server can write everywhere here.
"""

from __future__ import annotations

import contextlib
import functools
import glob
import hashlib
import logging
import os
import subprocess
from pathlib import Path
from typing import Annotated
from urllib.parse import quote, unquote

import msgspec

from skep.core.errors import InputError, NotFound
from skep.engines.local.disk import remove_folder, write_whole
from skep.engines.local.packed import ENDING, Packed
from skep.files.untrusted import NOT_THERE, decode_as, is_file, open_file, read_small, status_of

NAME_MAX = 120
FILES_VERSION = 1
"""The format of `launch.json`, `task.json` and `exit.json`. A new field with a default needs no new number; a changed
meaning does, and the reader must accept both. An older program refuses the store before it sees newer files."""
LAUNCH_MAX = 64 << 20
"""The largest `launch.json`: a gang may have thousands of tasks."""
ASIDE = ".forgotten-"
NUMBER_DIGITS = 16

log = logging.getLogger(__name__)

Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
Word = Annotated[str, msgspec.Meta(max_length=100)]


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as stored in `launch.json`."""

    role: str
    index: int
    node: str
    """By name, because node numbers change with the cluster."""
    ports: dict[str, list[int]] = {}
    cgroups: list[str] = []
    gpus: list[int] = []
    """Its exclusive GPUs."""
    shared: list[int] = []
    """GPUs that it shares with others."""
    own: str = ""
    """Its `SKEP_TASK_DIR`; empty in records of earlier versions, where it is the task's folder."""
    container: str = ""
    """Its container; empty for a plain process."""

    @property
    def name(self) -> str:
        return f"{self.role}-{self.index}"


class LaunchRecord(msgspec.Struct, frozen=True):
    job_id: str
    launch: int
    tasks: list[TaskRecord]
    version: int = FILES_VERSION


class ExitRecord(msgspec.Struct, frozen=True):
    """How a task ended, as stored in `exit.json`."""

    code: Code
    cause: Word = ""
    ran: bool = True
    stop_asked: bool = False
    seconds: Seconds = 0.0
    version: int = FILES_VERSION


class Folder:
    """The data folder of the engine. Every path made here is below it, for any names."""

    def __init__(self, root: Path, own: Path | None = None) -> None:
        self.root = root
        self.jobs = root / "jobs"
        self.packed = Packed(self.jobs)
        self.own = own or self.jobs
        self.reports = root / "reports"
        self.epoch = root / "epoch"
        """The epoch of the server that acts here; see `fence.py`."""
        self.turns = root / "turns"
        """The folder of the turn keeper; see `keeper.py`."""
        self.python = (own or root) / "python"
        """Python packages that every job can import."""

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
        """A folder owned by the job: `checkpoint`, `work`."""
        return self.own / safe_name(job_id) / name

    def of_task(self, job_id: str, launch: int, task: str) -> Path:
        """The task's own folder."""
        return self.own / safe_name(job_id) / str(launch) / safe_name(task) / "own"

    def launch(self, job_id: str, launch: int) -> Path:
        return self.job(job_id) / str(launch)

    def task(self, job_id: str, launch: int, task: str) -> Path:
        return self.launch(job_id, launch) / safe_name(task)

    def launches(self, job_id: str) -> list[int]:
        """The launches of this job, oldest first."""
        self.packed.unpack(safe_name(job_id))
        return sorted(launch for launch, _ in launch_folders(self.job(job_id)))

    def record(self, job_id: str, launch: int) -> LaunchRecord:
        record = read_launch(self.launch(job_id, launch))
        if record is None:
            raise NotFound(f"job {job_id}: the files of launch {launch} are gone")
        return record

    def is_over(self, launch: Path) -> bool:
        """True if every task of a launch has ended."""
        with os.scandir(launch) as tasks:
            return all(is_file(f"{task.path}/exit.json") for task in tasks if task.is_dir(follow_symlinks=False))

    def all_launches(self) -> list[Path]:
        names = set(os.listdir(self.jobs))
        jobs = [self.jobs / name for name in names if not name.startswith(".") and not name.endswith(ENDING)]
        for job in jobs:
            if f"{job.name}{ENDING}" in names:
                self.packed.unpack(job.name)  # A crash may have left a part of its folder.
        return [path for job in jobs for _, path in launch_folders(job)]

    def all_jobs(self) -> list[str]:
        """The jobs that have files here."""
        names = {name.removesuffix(ENDING) for name in os.listdir(self.jobs)}
        return [unquote(name) for name in sorted(names) if is_number(name.partition("%")[0])]

    def pack(self, job_id: str) -> None:
        """Keep what is stored about an ended job in less space."""
        name = safe_name(job_id)
        if self.packed.pack(name):
            for root in self.elsewhere(job_id):
                remove_empty(root)

    def has_folder(self, job_id: str) -> bool:
        return status_of(self.job(job_id)) is not None

    def elsewhere(self, job_id: str) -> list[Path]:
        """The folder of a job outside the data folder, if jobs run as other accounts."""
        return [self.own / safe_name(job_id)] if self.own != self.jobs else []

    def last_job(self) -> int:
        return max((int(job_id.partition("/")[0]) for job_id in self.all_jobs()), default=0)

    def put_aside(self, job_id: str) -> None:
        """Set aside an ended job, and its tasks that were started one by one; `remove_aside` deletes them."""
        for root in {self.jobs, self.own}:
            name = safe_name(job_id)
            for path in (root / name, self.packed.path(name), *root.glob(f"{glob.escape(name)}%2F*")):
                with contextlib.suppress(OSError):
                    path.rename(root / f"{ASIDE}{path.name}")

    def remove_aside(self) -> None:
        """Delete what was set aside, including what is set aside while this runs."""
        tried: set[str] = set()
        while paths := {str(path) for root in (self.jobs, self.own) for path in root.glob(f"{ASIDE}*")} - tried:
            for path in paths:
                remove_tree(path)
            tried |= paths


def remove_empty(folder: Path) -> None:
    """Remove the folders of the server below this one, and those of a job that are empty; only the last one on each way
    belongs to the job."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name in ("checkpoint", "work", "own"):
                remove_folder(str(path))
            elif path.is_dir() and not path.is_symlink():
                remove_empty(path)
        folder.rmdir()


def launch_folders(job: Path) -> list[tuple[int, Path]]:
    """None if there is no such job. Raises if it cannot be read now, which does not mean that nothing runs."""
    try:
        names = os.listdir(job)
    except PermissionError:
        job.chmod(0o700)  # A job under our own account has closed it.
        names = os.listdir(job)
    except OSError as error:
        if error.errno in NOT_THERE:
            return []
        raise
    return [(int(name), job / name) for name in names if is_number(name)]


def is_number(name: str) -> bool:
    """True for a name that a job or a launch can have; a task may have made any folder here."""
    return name.isascii() and name.isdigit() and len(name) < NUMBER_DIGITS


def remove_tree(path: str) -> None:
    """Delete a folder that a job has filled, of any depth and with inaccessible parts."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        done = subprocess.run([*command, "--", path], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        if command[0] == "rm" and done.returncode == 0:
            return
    log.warning("%s cannot be removed: %s", path, done.stderr.decode(errors="replace")[:200])


@functools.lru_cache(4096)
def safe_name(name: str) -> str:
    """One path component for any text, different for different texts; plain names are unchanged."""
    safe = quote(name, safe="", errors="surrogatepass")
    if safe.startswith(".") or not safe:
        safe = f"%2E{safe[1:]}" if safe else "%"
    if len(safe) > NAME_MAX:
        safe = f"{safe[: NAME_MAX - 33]}%{hashlib.sha256(safe.encode()).hexdigest()[:32]}"
    return safe


def write_durable(path: Path, record: msgspec.Struct) -> None:
    write_whole(str(path), msgspec.json.encode(record).decode(), is_durable=True)


def read_launch(path: Path) -> LaunchRecord | None:
    """None if there is none, or it is damaged. Raises if it cannot be read now."""
    return decode_as(read_small(path / "launch.json", LAUNCH_MAX), LaunchRecord)


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
