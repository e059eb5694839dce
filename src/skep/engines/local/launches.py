"""Launches from beginning to end. Their files are the truth about them, see `folder.py`.

A task runs at most once per launch, a gang starts when all its shims are ready, and a launch begins only when no
process of the previous one is left. Not thread-safe.
"""

from __future__ import annotations

import errno
import logging
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from skep.core.actions import Action, Launch, Move, Reshare, names_of
from skep.core.cluster import Allocation, Cluster
from skep.core.errors import InputError
from skep.core.model import GroupRef
from skep.core.reports import Exited, LaunchFailed, Moved, Report, Resumed, Started, Suspended
from skep.engines.local.begin import Beginner, Beginning, place_tasks
from skep.engines.local.cgroups import members
from skep.engines.local.disk import remove_folder
from skep.engines.local.folder import Folder, LaunchRecord, read_launch, trim_logs
from skep.engines.local.reap import clear, kill_rest
from skep.engines.local.run import (
    NODE_LOST,
    SERVER_AWAY,
    SHIM_KILLED,
    LaunchRun,
    LocalTask,
    Phase,
    lone_terms,
    owned,
    terms_of,
)
from skep.engines.local.shares import Shares
from skep.engines.local.start import start_shim
from skep.engines.local.uses import ALL, Scope
from skep.jobs.env import ports_wanted
from skep.jobs.request import Request

NOWHERE = Allocation((), 0)
MARGIN_S = 10.0
"""How long after its grace period a remaining task is killed without the help of its shim."""
FREEZE_S = 600.0
"""Additional time for a task that is frozen: the shim writes its memory to the disk."""
START_S = 300.0
"""The time limit for all shims of a launch to be ready, and their tasks to run."""
SHORTAGE = "shortage"
SHORTAGES = {
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.EIO),
    *(errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.EBUSY, errno.EINTR),
}
"""Errors that may disappear later: a shortage on the machine."""

log = logging.getLogger(__name__)


class OnLostNode(InputError):
    """The server had not heard of the loss when it decided."""


class Launches:
    def __init__(
        self,
        folder: Folder,
        cluster: Cluster,
        beginner: Beginner,
        request_of: Callable[[str], tuple[Request, GroupRef | None]],
    ) -> None:
        self.folder = folder
        self.shares = Shares(folder.turns)
        self.sharing: dict[str, LaunchRun] = {}
        """The launches in `by_job` that take turns on their GPUs."""
        self.cluster = cluster
        self.request_of = request_of
        self.beginner = beginner
        self.ports = Ports()
        self.by_job: dict[str, LaunchRun] = {}
        """The launch of each job that has not ended."""
        self.lost: set[str] = set()
        self.strays: list[LaunchRun] = []
        """Launches that the server does not know, until they have ended."""
        self.unread: list[Path] = []
        """Folders of such launches that could not be read yet."""
        self.delayed: dict[str, list[Action]] = {}
        """By job, the actions that wait because its files could not be read; in order."""
        self.dead: dict[LocalTask, tuple[LaunchRun, str]] = {}
        """Tasks without a shim that must still be reaped, and the cause to report."""
        self.ended: deque[str] = deque()
        """Jobs whose launch has ended, for the upkeep."""
        self.shortage = ""
        """Why nothing is started now: the disk is nearly full."""
        self.full: dict[Scope, str] = {}
        """The users and VCs of whom nothing is started now, and why: their files take too much of the disk."""
        self.epoch = 0
        """The epoch of the server that the engine acts for."""
        self.checks = 0
        self._reports: list[Report] = []
        self._unsettled: list[LaunchRun] = []

    def _guarded(self, run: LaunchRun, do: Callable[..., None], *args: Any) -> None:
        """A failure with one job must not delay others; the next check retries it."""
        try:
            do(*args)
            run.problem = ""
        except Exception as error:
            if run.problem != str(error):
                log.warning("%r: %s", run, error, exc_info=not isinstance(error, OSError))
            run.problem = str(error)
            if isinstance(error, PermissionError):
                run.open_folders()

    def _find(self, job_id: str) -> LaunchRun | None:
        """The last launch of a job, ended or not: from memory, else from its files."""
        if job_id in self.by_job:
            return self.by_job[job_id]
        launches = self.folder.launches(job_id)
        if not launches:
            return None
        path = self.folder.launch(job_id, launches[-1])
        record = read_launch(path)
        if record is None:
            # The machine went down before it was written. Nothing is known of that launch, so it is started again.
            clear(self.folder, path)
            return self._find(job_id)
        run = self._run_of(record, Launch(job_id, NOWHERE, launches[-1]), *self.request_of(job_id))
        self._adopt(run)
        run.was_found = True
        self.by_job[job_id] = run
        for task in run.tasks:
            self.ports.keep((job_id, run.launch), task.record.ports)
        return run

    def _adopt(self, run: LaunchRun) -> None:
        """Adopt a launch: every task has a shim, gets one, or is recorded as ended."""
        for task in run.tasks:
            self._look(task)
            if task.phase in (Phase.READY, Phase.RUNNING) and not task.shim_pid():
                self.dead[task] = (run, SERVER_AWAY)
        if not any(task.phase is Phase.GONE or task in self.dead for task in run.tasks):
            self._spawn(run)

    def _begin_or_say(self, action: Launch | Move) -> None:
        try:
            self._begin(action)
        except Exception as error:
            self._say_why_not(action, error)
            if not isinstance(error, OSError | InputError):
                log.exception("start %d of job %s", action.launch, action.job_id)

    def _say_why_not(self, action: Launch | Move, error: Exception) -> None:
        cause = SHORTAGE if isinstance(error, OSError) and error.errno in SHORTAGES else ""
        cause = NODE_LOST if isinstance(error, OnLostNode) else cause
        self._reports.append(LaunchFailed(action.job_id, action.launch, reason_of(error), cause))

    def _begin(self, action: Launch | Move) -> None:
        request, member = self.request_of(action.job_id)
        full = (self.full.get(scope, "") for scope in (("user", request.user), ("VC", request.vc), ALL))
        if shortage := self.shortage or next(filter(None, full), ""):
            raise OSError(errno.ENOSPC, shortage)
        nodes = names_of(action)
        places = place_tasks(request, member, action.allocation, nodes)
        for place in places:
            if place.node in self.lost:
                raise OnLostNode(f"node {place.node} is lost")
        account = self.beginner.accounts.of(request.user)
        owner = (action.job_id, action.launch)
        ports = self.ports.take(owner, ports_wanted(request, places))
        try:
            record = self.beginner.write(
                Beginning(action, request, places, ports, owned(action.allocation, nodes), account)
            )
        except BaseException:
            self.ports.give(owner)
            raise
        trim_logs(self.folder.job(action.job_id), action.launch, self.beginner.log_bytes(request))
        run = self._run_of(record, action, request, member)
        self.by_job[action.job_id] = run
        self._set_share(run, action)
        self._spawn(run)

    def _run_of(
        self, record: LaunchRecord, action: Launch | Move, request: Request, member: GroupRef | None
    ) -> LaunchRun:
        tasks = [LocalTask(each, self.folder.task(action.job_id, action.launch, each.name)) for each in record.tasks]
        run = LaunchRun(action, request, member, tasks)
        run.force_at_s = time.monotonic() + START_S
        return run

    def _set_share(self, run: LaunchRun, action: Launch | Move | Reshare) -> None:
        run.allocation, run.nodes = action.allocation, names_of(action)
        self._follow_terms(run)

    def _follow_terms(self, run: LaunchRun) -> None:
        """Note how it shares its GPUs; the turn keeper is informed after all other actions."""
        run.terms = terms_of(run.allocation, run.nodes, run.limit)
        run.speed = self._speed_of(run)
        if run.terms is None and run.speed < 1.0:
            run.terms = lone_terms(run)
        if run.terms is not None:
            self.sharing[run.job_id] = run
        else:
            self.sharing.pop(run.job_id, None)

    def _speed_of(self, run: LaunchRun) -> float:
        """A gang is as fast as its slowest GPU."""
        there = {task.record.node for task in run.tasks if task.record.gpus or task.record.shared}
        nodes = [node for name in there if (node := self.cluster.by_name.get(name)) is not None]
        return min((node.spec.speed_of(run.request.model) for node in nodes), default=1.0)

    def _spawn(self, run: LaunchRun) -> None:
        """Start the missing shims. They wait for each other; if one cannot be started, none of the tasks starts."""
        is_alone = len(run.tasks) == 1 and not run.is_stopping and self._has_room(run, Phase.SPAWNED)
        for task in run.tasks:
            if task.phase is Phase.SPAWNED and not task.shim_pid():
                try:
                    task.shim = start_shim(task.path, goes_at_once=is_alone)
                    run.has_gone = run.has_gone or is_alone
                except OSError as error:
                    cause = SHORTAGE if error.errno in SHORTAGES or error.errno is None else ""
                    self._fail(run, f"task {task.record.name} cannot be started: {error.strerror}", cause)
                    return

    def _fail(self, run: LaunchRun, reason: str, cause: str) -> None:
        if not run.failure:
            run.failure, run.failure_cause = reason, cause
        self._stop(run)
        self._advance(run)

    def _stop(self, run: LaunchRun) -> None:
        grace_s = run.request.grace_s + FREEZE_S * (run.request.checkpoint == "criu")
        wait_s = MARGIN_S + (grace_s if run.has_gone and not run.kill_cause else 0.0)
        force_at_s = time.monotonic() + wait_s
        run.force_at_s = min(run.force_at_s, force_at_s) if run.is_stopping else force_at_s
        run.is_stopping = True
        for task in run.tasks:
            if task.phase in (Phase.READY, Phase.RUNNING):
                self._ask_to_stop(run, task)

    def _ask_to_stop(self, run: LaunchRun, task: LocalTask, *, is_late: bool = False) -> None:
        is_waiting = task.phase is Phase.READY and not run.has_gone
        is_killed = is_waiting or (is_late and run.kill_cause)
        word, value = ("kill", run.kill_cause or "-") if is_killed else ("stop", run.request.grace_s)
        task.was_asked = task.send(self.epoch, word, value)

    def _look(self, task: LocalTask) -> None:
        has_ended = task.phase is not Phase.GONE and task.has_ended()
        task.look(may_end=not has_ended or self._has_left(task))

    def _has_left(self, task: LocalTask) -> bool:
        """True if shim and processes are gone: until then the task may have written its files itself."""
        if task.shim_pid() or (members(task.record.cgroups) and kill_rest([task])):
            return False
        for group in task.record.cgroups:
            remove_folder(group)
        return True

    def _advance(self, run: LaunchRun) -> None:
        if run.is_stopping:
            self._stop_late(run)
        else:
            self._go(run)
            if run.has_gone and not run.is_over and run.decided() is not None:
                self._stop(run)
        if run.is_over and self.by_job.get(run.job_id) is run:
            self._end(run)

    def _stop_late(self, run: LaunchRun) -> None:
        """Stop a shim that was not ready yet when the launch was stopped."""
        for task in run.tasks:
            if task.phase in (Phase.READY, Phase.RUNNING) and not task.was_asked:
                self._ask_to_stop(run, task, is_late=True)

    def _go(self, run: LaunchRun) -> None:
        unborn = [task for task in run.tasks if task.exit and not task.exit.ran]
        if unborn:
            # The others of a gang must not start. This shim was stopped, or was killed while it waited.
            if not run.failure and not all(task.exit and task.exit.stop_asked for task in unborn):
                run.failure = f"task {unborn[0].record.name} was killed before it could start"
                run.failure_cause = SHIM_KILLED
            self._stop(run)
        elif not run.has_gone and run.is_ready and self._has_room(run, Phase.READY):
            run.has_gone = True
            run.force_at_s = time.monotonic() + START_S
            for task in run.tasks:
                if task.phase is Phase.READY:
                    task.send(self.epoch, "go")
        if run.has_gone and not run.was_told and all(task.phase >= Phase.RUNNING for task in run.tasks):
            run.was_told = True
            self._reports.append((Moved if run.is_move else Started)(run.job_id, run.launch, run.given()))
        is_standing = run.is_standing
        is_lapse = run.is_to_stand and not is_standing  # The order was renewed too late; it is renewed at this check.
        if run.was_told and is_standing != run.told_standing and not is_lapse:
            run.told_standing = is_standing
            self._reports.append((Suspended if is_standing else Resumed)(run.job_id, run.launch))

    def _has_room(self, run: LaunchRun, phase: Phase) -> bool:
        """Two jobs may move at once, each onto GPUs that the other still holds: the first to be ready waits. It also
        waits until a job that is to be suspended there has stopped."""
        wanted = run.gpus_in_use(phase)
        if not wanted:
            return True
        others = (other for other in self.by_job.values() if other is not run and not other.is_standing)
        return not any(
            wanted & other.gpus_in_use(Phase.SPAWNED if other.has_gone else Phase.RUNNING) for other in others
        )

    def _end(self, run: LaunchRun) -> None:
        self._drop(run)
        verdict = run.verdict()
        is_own = isinstance(verdict, Exited) and not verdict.was_stopped and verdict.cause != NODE_LOST
        if run.next is not None and not is_own:
            self._begin_or_say(run.next)
        else:
            self._reports.append(verdict)
        for other in [other for other in self.by_job.values() if not other.has_gone and not other.is_stopping]:
            self._guarded(other, self._advance, other)

    def _drop(self, run: LaunchRun) -> None:
        self.by_job.pop(run.job_id, None)
        self.ended.append(run.job_id)
        self.sharing.pop(run.job_id, None)
        self.ports.give((run.job_id, run.launch))


def reason_of(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return str(error) or type(error).__name__


FIRST_PORT = 15_000
END_PORT = 40_000
EPHEMERAL_PORT = 32_768
"""The kernel assigns ports from here on to outgoing connections: the search does not begin there."""


class Ports:
    """Ports for tasks: free when they are assigned, and not assigned twice while in use. The search continues where the
    last one ended, so that a port is reused as late as possible."""

    def __init__(self) -> None:
        self.in_use: set[int] = set()
        self._of: dict[tuple[str, int], list[int]] = {}
        """By job and launch."""
        # A random position: another server on this machine would find the same ports free until its tasks listen on
        # them.
        self._next = FIRST_PORT + secrets.randbelow(max(min(END_PORT, EPHEMERAL_PORT) - FIRST_PORT, 1))

    def take(self, owner: tuple[str, int], wanted: list[dict[str, int]]) -> list[dict[str, list[int]]]:
        """The ports of each label for each task; all of them or none."""
        count = sum(sum(labels.values()) for labels in wanted)
        if count > END_PORT - FIRST_PORT:
            raise InputError(f"{count} ports are more than there are between {FIRST_PORT} and {END_PORT - 1}")
        if count > END_PORT - FIRST_PORT - len(self.in_use):
            raise none_free()
        self._of.setdefault(owner, [])
        try:
            return [{label: self._some(owner, count) for label, count in labels.items()} for labels in wanted]
        except OSError:
            self.give(owner)
            raise

    def keep(self, owner: tuple[str, int], ports: dict[str, list[int]]) -> None:
        """Note the ports of an adopted task, unless another task got them after it had ended."""
        for port in (port for numbers in ports.values() for port in numbers):
            if port not in self.in_use:
                self._add(owner, port)

    def give(self, owner: tuple[str, int]) -> None:
        self.in_use.difference_update(self._of.pop(owner, ()))

    def _some(self, owner: tuple[str, int], count: int) -> list[int]:
        found: list[int] = []
        for _ in range(END_PORT - FIRST_PORT):
            if len(found) == count:
                break
            port = self._next
            self._next = port + 1 if port + 1 < END_PORT else FIRST_PORT
            if port not in self.in_use and is_free(port):
                self._add(owner, port)
                found.append(port)
        if len(found) < count:
            raise none_free()
        return found

    def _add(self, owner: tuple[str, int], port: int) -> None:
        self.in_use.add(port)
        self._of.setdefault(owner, []).append(port)


def none_free() -> OSError:
    """A shortage: others release their ports when they end."""
    return OSError(errno.EADDRNOTAVAIL, f"not enough free ports between {FIRST_PORT} and {END_PORT - 1}")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
