"""A launch that is under way, as its files tell it."""

from __future__ import annotations

import enum
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Any

import msgspec

from skep.core.actions import Launch, Move
from skep.engines.local.cgroups import kill_members
from skep.engines.local.disk import remove_folder
from skep.engines.local.folder import ExitRecord, TaskRecord, lock_holder, read_record, read_small, write_durable
from skep.engines.local.logs import log_tail
from skep.engines.local.processes import kill_marked
from skep.jobs.completion import Outcome, outcome
from skep.jobs.reports import Exited, LaunchFailed
from skep.jobs.request import Request

CAUSES = ("oom", "node-lost")
"""Causes of an exit that are worth telling."""
KILLED = 128 + signal.SIGKILL
BURY_S = 1.0


class Phase(enum.IntEnum):
    SPAWNED = 0
    READY = 1
    """Its shim waits for the others of the gang."""
    RUNNING = 2
    GONE = 3


class Task:
    """One task of a launch."""

    __slots__ = ("ended_ns", "exit", "path", "phase", "progress_ns", "record", "shim")

    def __init__(self, record: TaskRecord, path: Path) -> None:
        self.record = record
        self.path = path
        self.shim = 0
        """If it is a child of ours."""
        self.phase = Phase.SPAWNED
        self.exit: ExitRecord | None = None
        self.ended_ns = 0
        self.progress_ns = 0

    @property
    def own(self) -> Path:
        """Where the task itself writes."""
        return Path(self.record.own) if self.record.own else self.path

    def look(self) -> None:
        """See what its files say now."""
        if self.phase is not Phase.GONE and (self.path / "exit.json").exists():
            self.exit = read_record(self.path / "exit.json", ExitRecord) or ExitRecord(KILLED)
            self.ended_ns = (self.path / "exit.json").stat().st_mtime_ns
            self.phase = Phase.GONE
        elif self.phase < Phase.RUNNING and (self.path / "main").exists():
            self.phase = Phase.RUNNING
        elif self.phase < Phase.READY and (self.path / "pid").exists():
            self.phase = Phase.READY

    @property
    def state(self) -> str:
        """In the words of the states of jobs."""
        if self.exit is None:
            return "running" if self.phase is Phase.RUNNING else "launching"
        if self.exit.stop_asked:
            return "stopped"
        return "failed" if self.exit.code else "succeeded"

    def has_shim(self) -> bool:
        return lock_holder(self.path) != 0

    def send(self, line: str) -> bool:
        """Whether a shim was there to hear it."""
        try:
            fd = os.open(self.path / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        with open(fd, "wb", buffering=0) as fifo:
            fifo.write(line.encode() + b"\n")
        return True

    def bury(self, *, stop_asked: bool) -> bool:
        """Its shim is dead: end what it left behind and write down the exit in its place.

        Under the shim's lock, so that no shim that is late to start can begin meanwhile. False if there is one after
        all, or something would not die yet: try again later. A folder that was removed is made again: without it the
        task could not be told from one that runs.
        """
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not (self.path / "exit.json").exists():
                if not self._kill_rest():
                    return False
                ran = (self.path / "main").exists()
                write_durable(self.path / "exit.json", ExitRecord(KILLED, ran=ran, stop_asked=stop_asked))
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        self.look()
        return True

    def _kill_rest(self) -> bool:
        """Until two looks in a row find nobody: between two processes of one look a third may have been made."""
        deadline = time.monotonic() + BURY_S
        quiet = 0
        while quiet < 2 and time.monotonic() < deadline:
            # The folder is on no other task of any server, the job's number may be.
            found = kill_members(self.record.cgroups) or kill_marked("SKEP_TASK_DIR", self.own, self.path)
            quiet = 0 if found else quiet + 1
            time.sleep(0.01)
        for group in self.record.cgroups:
            remove_folder(group)
        return quiet == 2

    def progress_stamp(self) -> int:
        try:
            return (self.own / "progress.json").lstat().st_mtime_ns
        except OSError:
            return 0

    def progress(self) -> dict[str, Any]:
        """What it says of itself through `skep.train`; nothing if it does not."""
        values = _json_object(read_small(self.own / "progress.json"))
        return {key: value for key, value in values.items() if isinstance(value, str | int | float | None)}


class Run:
    """All tasks of one start of a job."""

    def __init__(self, action: Launch | Move, request: Request, member: str | None, tasks: list[Task]) -> None:
        self.job_id = action.job_id
        self.launch = action.launch
        self.request = request
        self.member = member
        self.tasks = tasks
        self.is_move = isinstance(action, Move)
        self.has_gone = False
        """All were ready and were told to go."""
        self.was_told = False
        """That it started."""
        self.is_stopping = False
        self.kill_cause = ""
        self.failure = ""
        self.next: Launch | Move | None = None
        """What follows when no process of this one is left."""

    def __repr__(self) -> str:
        return f"start {self.launch} of job {self.job_id}"

    def gpus_in_use(self, phase: Phase) -> set[tuple[str, int]]:
        """(node, gpu) of its tasks that have come so far and are not gone."""
        there = (task for task in self.tasks if phase <= task.phase < Phase.GONE)
        return {(task.record.node, gpu) for task in there for gpu in task.record.gpus}

    @property
    def is_over(self) -> bool:
        return all(task.phase is Phase.GONE for task in self.tasks)

    def decided(self) -> Outcome | None:
        """How the job ended by itself, if it did."""
        own = sorted((task for task in self.tasks if self._left_by_itself(task)), key=lambda task: task.ended_ns)
        if self.member is not None:
            codes = [task.exit.code for task in own if task.exit]
            return Outcome(codes[0] == 0, codes[0], self.member) if codes else None
        counts = dict.fromkeys(self.request.tasks, 0)
        for task in self.tasks:
            counts[task.record.role] += 1
        exits = {(task.record.role, task.record.index): task.exit.code for task in own if task.exit}
        return outcome(self.request, exits, counts=counts)

    def _left_by_itself(self, task: Task) -> bool:
        """A task that was asked to stop and ends well was done if the job reports progress but did not say it left."""
        if task.exit is None or not task.exit.ran or task.exit.cause == "node-lost":
            return False
        if not task.exit.stop_asked:
            return True
        said = [_json_object(read_small(each.own / "progress.json")) for each in self.tasks]
        return task.exit.code == 0 and any(said) and not any(values.get("left") for values in said)

    def verdict(self) -> Exited | LaunchFailed:
        """What there is to tell when no task is left."""
        if self.failure:
            return LaunchFailed(self.job_id, self.launch, self.failure)
        decided = self.decided()
        if decided is not None:
            return self._exited(self._named(decided.task), decided.code, task=decided.task)
        lost = [task for task in self.tasks if task.exit and task.exit.cause == "node-lost"]
        if lost:
            return self._exited(lost[0], KILLED, task=lost[0].record.name)
        stopped = [task for task in self.tasks if task.exit and task.exit.stop_asked]
        if stopped and stopped[0].exit:
            return self._exited(stopped[0], stopped[0].exit.code, task=stopped[0].record.name, was_stopped=True)
        return LaunchFailed(self.job_id, self.launch, "a task could not be started")

    def _named(self, name: str) -> Task:
        return next((task for task in self.tasks if task.record.name == name), self.tasks[0])

    def _exited(self, which: Task, code: int, *, task: str, was_stopped: bool = False) -> Exited:
        cause = which.exit.cause if which.exit else ""
        return Exited(
            job_id=self.job_id,
            launch=self.launch,
            code=code,
            task=task,
            was_stopped=was_stopped,
            log_tail=log_tail(which.path),
            seconds=max(each.exit.seconds for each in self.tasks if each.exit),
            cause=cause if cause in CAUSES else "",
        )


def _json_object(content: bytes | None) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(content or b"{}")
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}
