"""Ending tasks whose shim is dead or does not answer, and recording the exit in the shim's place."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from skep.engines.local.cgroups import kill_members, stop_forks
from skep.engines.local.containers import remove_containers
from skep.engines.local.disk import make_way, remove_folder
from skep.engines.local.folder import ExitRecord, Folder, TaskRecord, remove_tree, write_durable
from skep.engines.local.processes import kill_below, kill_marked, send
from skep.engines.local.run import KILLED, LocalTask
from skep.files.untrusted import CAREFULLY, is_file, lock_holder, reserve

KILL_S = 0.5
"""How long to wait for processes to die; the rest is tried again later."""
CLEAR_S = 5.0
AT_ONCE = 64
"""The number of tasks that are reaped with one scan of all processes; each holds a lock meanwhile."""

log = logging.getLogger(__name__)


class DeadTask(msgspec.Struct, frozen=True):
    """A task without a shim, and the exit to record."""

    task: LocalTask
    stop_asked: bool
    cause: str = ""


def reap(dead: list[DeadTask]) -> list[LocalTask]:
    """End what is left of these tasks and record their exits. Returns those that have ended.

    Each shim's lock is held, so that a late shim cannot begin meanwhile. A task is missing from the result if it has a
    shim after all, or a process did not die yet: try again later. A deleted folder is created again: without it the
    task would look like a running one.
    """
    over = []
    for begin in range(0, len(dead), AT_ONCE):
        over += _reap(dead[begin : begin + AT_ONCE])
    return over


def _reap(dead: list[DeadTask]) -> list[LocalTask]:
    with contextlib.ExitStack() as locks:
        held = [each for each in dead if locks.enter_context(lock_of(each.task))]
        alive = kill_rest([each.task for each in held])
        remove_containers([name for each in held if (name := each.task.record.container)])
        return [each.task for each in held if each.task not in alive and write_exit(each)]


@contextlib.contextmanager
def lock_of(task: LocalTask) -> Iterator[bool]:
    """True if it could be locked."""
    fd = -1
    try:
        fd = open_lock(task.path)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_taken = True
    except OSError as error:
        if not isinstance(error, BlockingIOError):
            log.warning("%s cannot be locked now: %s", task.path, error)
        is_taken = False
    try:
        yield is_taken
    finally:
        if fd >= 0:
            os.close(fd)


def open_lock(path: Path) -> int:
    """Works regardless of what the task has done to the folder and its content."""
    make_way(str(path), stat.S_ISDIR)
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)
    make_way(str(path / "lock"))
    return reserve.open(path / "lock", os.O_RDWR | os.O_CREAT | CAREFULLY)


def write_exit(dead: DeadTask) -> bool:
    """True if it is recorded, by us or by the shim before."""
    path = dead.task.path
    try:
        if not is_file(path / "exit.json"):
            record = ExitRecord(KILLED, dead.cause, ran=is_file(path / "main"), stop_asked=dead.stop_asked)
            write_durable(path / "exit.json", record)
    except OSError as error:
        log.warning("the end of %s cannot be written now: %s", path, error)
        return False
    return True


def kill_rest(tasks: list[LocalTask]) -> set[LocalTask]:
    """Kill what is left of these tasks. Returns those with a process that did not die yet.

    Repeats until two scans in a row find no process: during a scan new processes may be forked.
    """
    groups = [group for task in tasks for group in task.record.cgroups]
    # No other task of any server has this folder, while another server may have a job of the same number.
    marks = {f"SKEP_TASK_DIR={task.own}": task for task in tasks}
    stop_forks(groups)
    deadline = time.monotonic() + KILL_S
    quiet, alive = 0, set(tasks)
    while tasks and quiet < 2 and time.monotonic() < deadline:
        alive = {task for task in tasks if kill_members(task.record.cgroups)}
        alive |= {marks[mark] for mark in kill_marked(set(marks))}
        quiet = 0 if alive else quiet + 1
        if alive:
            time.sleep(0.01)
    for group in groups:
        remove_folder(group)
    return alive


def kill_by_force(task: LocalTask) -> None:
    """Kill a task and its shim, which does not answer. The exit can be recorded when they have died."""
    if (shim := lock_holder(task.path / "lock")) > 0:
        # First those below it: while the shim lives, it inherits every process of the task, even if it is stopped.
        stop_forks(task.record.cgroups)
        kill_below(shim)
        send(shim, signal.SIGKILL)


def kill_shim(path: Path) -> None:
    """Kill the shim of a task, and wait briefly for its lock."""
    if (pid := lock_holder(path / "lock")) > 0:
        send(pid, signal.SIGKILL)
        deadline = time.monotonic() + KILL_S
        while lock_holder(path / "lock") == pid and time.monotonic() < deadline:
            time.sleep(0.002)


def clear(folder: Folder, launch: Path) -> None:
    """Delete a launch without a record, and kill its processes."""
    for path in (each for each in launch.iterdir() if each.is_dir() and not each.is_symlink()):
        kill_shim(path)
        own = folder.own / path.relative_to(folder.jobs) / "own"
        task = LocalTask(TaskRecord(path.name, 0, "", own=str(own)), path)
        by_s = time.monotonic() + CLEAR_S
        while not reap([DeadTask(task, stop_asked=True)]) and time.monotonic() < by_s:
            time.sleep(0.01)
    remove_tree(str(launch))
