"""A launch in flight, as read from its files: its tasks, when it ends and how, and how it shares its GPUs."""

from __future__ import annotations

import contextlib
import enum
import math
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from skep.core.actions import Launch, Move
from skep.core.cluster import WHOLE, Allocation, Slice, bits
from skep.core.model import GroupRef
from skep.core.reports import Exited, GivenSeat, LaunchFailed
from skep.core.share import MODES
from skep.engines.local.folder import ExitRecord, TaskRecord, log_tail
from skep.engines.local.start import ShimProcess
from skep.files.untrusted import decode_as, is_file, lock_holder, read_small, read_values, status_of, write_line
from skep.jobs.core import task_name
from skep.jobs.request import Request, TaskRole

SHIM_KILLED = "shim-killed"
SERVER_AWAY = "server-away"
FULL_DISK = "full-disk"
NODE_LOST = "node-lost"
CAUSES = ("oom", "image", "config", NODE_LOST, "evicted", "deleted", FULL_DISK, SHIM_KILLED, SERVER_AWAY)
"""Causes of an exit that are reported."""
KILLED = 128 + signal.SIGKILL


class Phase(enum.IntEnum):
    SPAWNED = 0
    READY = 1
    """Its shim waits for the others of the gang."""
    RUNNING = 2
    GONE = 3


class LocalTask:
    """One task of a launch."""

    __slots__ = ("ended_ns", "exit", "is_suspended", "path", "phase", "progress_ns", "record", "shim", "was_asked")

    def __init__(self, record: TaskRecord, path: Path) -> None:
        self.record = record
        self.path = path
        self.shim: ShimProcess | None = None
        """Its shim process, if this engine started it."""
        self.was_asked = False
        """True if a stop was sent and a shim received it."""
        self.phase = Phase.SPAWNED
        self.is_suspended = False
        """True if all its processes are suspended."""
        self.exit: ExitRecord | None = None
        self.ended_ns = 0
        self.progress_ns = 0

    @property
    def own(self) -> Path:
        """Where the task itself writes."""
        return Path(self.record.own) if self.record.own else self.path

    def look(self, *, may_end: bool = True) -> None:
        """Read its files again. Raises OSError if they cannot be read now."""
        if may_end and self.phase is not Phase.GONE and (written := status_of(self.path / "exit.json")) is not None:
            # A file that is not a record only shows that the task has ended.
            self.exit = decode_as(read_small(self.path / "exit.json"), ExitRecord) or ExitRecord(KILLED)
            self.ended_ns = written.st_mtime_ns
            self.phase = Phase.GONE
        elif self.phase < Phase.RUNNING and is_file(self.path / "main"):
            self.phase = Phase.RUNNING
        elif self.phase < Phase.READY and is_file(self.path / "pid"):
            self.phase = Phase.READY
        self.is_suspended = self.phase is Phase.RUNNING and is_file(self.path / "suspended")

    @property
    def state(self) -> str:
        """Named like the states of jobs."""
        if self.exit is None and self.is_suspended:
            return "suspended"
        if self.exit is None:
            return "running" if self.phase is Phase.RUNNING else "launching"
        if self.exit.stop_asked:
            return "stopped"
        return "failed" if self.exit.code else "succeeded"

    def has_ended(self) -> bool:
        """True if its end is recorded. It is valid only when its shim is gone too."""
        return status_of(self.path / "exit.json") is not None

    def shim_pid(self) -> int:
        """The process that holds its lock; 0: none. Only for the engine's thread: the query drops a lock of our own."""
        return lock_holder(self.path / "lock")

    def send(self, epoch: int, word: str, value: object = "-") -> bool:
        """Send a command; true if a shim received it. Shims ignore commands of a server that was replaced."""
        return write_line(self.path / "control", f"{word} {value} {epoch}")

    def progress_stamp(self) -> int:
        try:
            return (self.own / "progress.json").lstat().st_mtime_ns
        except OSError:
            return 0

    def progress(self) -> dict[str, Any]:
        """What it reports through `skep.train`; None if it does not, or if it cannot be read now."""
        try:
            return read_values(self.own / "progress.json")
        except OSError:
            return {}


class LaunchRun:
    """All tasks of one launch of a job."""

    def __init__(
        self, action: Launch | Move, request: Request, member: GroupRef | None, tasks: list[LocalTask]
    ) -> None:
        self.job_id = action.job_id
        self.launch = action.launch
        self.request = request
        self.member = member
        self.tasks = tasks
        self.is_move = isinstance(action, Move)
        self.allocation = action.allocation
        self.nodes: dict[int, str] = {}
        """The names of its nodes, by the number in the allocation."""
        self.limit = 0
        """The most it may use of each GPU, in thousandths; 0: no limit was set."""
        self.terms: Terms | None = None
        """How it shares its GPUs; None: exclusive, or without turns."""
        self.speed = 1.0
        """Declared in the cluster file for its GPUs and its model."""
        self.has_gone = False
        """All shims were ready and got the order to start."""
        self.was_found = False
        """True if an earlier server started it."""
        self.was_told = False
        """True if its start was reported."""
        self.is_stopping = False
        self.is_to_stand = False
        """True if its tasks are to be suspended."""
        self.told_standing = False
        """True if their suspension was reported."""
        self.force_at_s = math.inf
        """When a launch that is stopping, or does not start, is killed without the help of its shims."""
        self.problem = ""
        """The last failed operation on it."""
        self.kill_cause = ""
        self.failure = ""
        self.failure_cause = ""
        self.progress: dict[str, Any] = {}
        """Its latest progress report."""
        self.next: Launch | Move | None = None
        """What to do when no process of this launch is left."""

    def __repr__(self) -> str:
        return f"start {self.launch} of job {self.job_id}"

    def open_folders(self) -> None:
        """Make its files readable for us again, as far as they belong to us."""
        for task in self.tasks:
            for path, mode in ((task.path.parent, 0o700), (task.path, 0o700), (task.path / "exit.json", 0o600)):
                with contextlib.suppress(OSError):
                    if not path.is_symlink():
                        path.chmod(mode)

    def given(self) -> tuple[GivenSeat, ...]:
        records = (task.record for task in self.tasks)
        return tuple(GivenSeat(each.node, (*each.gpus, *each.shared) or None) for each in records)

    def gpus_in_use(self, phase: Phase) -> set[tuple[str, int]]:
        """(node, GPU) of its tasks that have started and not exited."""
        there = (task for task in self.tasks if phase <= task.phase < Phase.GONE)
        return {(task.record.node, gpu) for task in there for gpu in task.record.gpus}

    @property
    def is_ready(self) -> bool:
        """True if all its shims are ready."""
        return all(task.phase is not Phase.SPAWNED for task in self.tasks)

    @property
    def is_standing(self) -> bool:
        """True if all its remaining tasks are suspended."""
        left = [task for task in self.tasks if task.phase is not Phase.GONE]
        return bool(left) and all(task.is_suspended for task in left)

    @property
    def is_over(self) -> bool:
        return all(task.phase is Phase.GONE for task in self.tasks)

    def decided(self) -> Outcome | None:
        """How the job ended by itself, if it did."""
        own = sorted((task for task in self.tasks if self._left_by_itself(task)), key=lambda task: task.ended_ns)
        if self.member is not None:
            codes = [task.exit.code for task in own if task.exit]
            return Outcome(codes[0] == 0, codes[0], task_name(self.member)) if codes else None
        counts = dict.fromkeys(self.request.tasks, 0)
        for task in self.tasks:
            counts[task.record.role] += 1
        exits = {(task.record.role, task.record.index): task.exit.code for task in own if task.exit}
        return outcome(self.request, exits, counts=counts)

    def _left_by_itself(self, task: LocalTask) -> bool:
        """A task that was asked to stop and exits with 0 was done if the job reports progress but did not report that
        it left."""
        if task.exit is None or not task.exit.ran or task.exit.cause == NODE_LOST:
            return False
        if not task.exit.stop_asked:
            return True
        said = [each.progress() for each in self.tasks]
        return task.exit.code == 0 and any(said) and not any(values.get("left") for values in said)

    def verdict(self) -> Exited | LaunchFailed:
        """The report when no task is left."""
        if self.failure:
            return LaunchFailed(self.job_id, self.launch, self.failure, self.failure_cause)
        decided = self.decided()
        if decided is not None:
            return self._exited(self._named(decided.task), decided.code, task=decided.task)
        lost = [task for task in self.tasks if task.exit and task.exit.cause == NODE_LOST]
        if lost:
            return self._exited(lost[0], KILLED, task=lost[0].record.name)
        stopped = [task for task in self.tasks if task.exit and task.exit.stop_asked]
        if stopped and stopped[0].exit:
            return self._exited(stopped[0], stopped[0].exit.code, task=stopped[0].record.name, was_stopped=True)
        return LaunchFailed(self.job_id, self.launch, "a task could not be started", SHIM_KILLED)

    def _named(self, name: str) -> LocalTask:
        return next((task for task in self.tasks if task.record.name == name), self.tasks[0])

    def _exited(self, which: LocalTask, code: int, *, task: str, was_stopped: bool = False) -> Exited:
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


class Outcome(msgspec.Struct, frozen=True):
    succeeded: bool
    code: int
    """The exit code of the task that decided."""
    task: str
    """That task, as `role-index`; empty if all ended and no single task decided."""


class TaskTally:
    """Collects the exits of a job's tasks one by one, in order: the first decisive one counts. `counts` are the tasks
    by role if they differ from the request, as in an elastic job."""

    def __init__(self, request: Request, counts: Mapping[str, int] | None = None) -> None:
        self.request = request
        self.ended = {name: [0, 0] for name in request.tasks}
        """Failed and succeeded, by role."""
        self.wanted = counts or {name: role.count for name, role in request.tasks.items()}
        self.decided: Outcome | None = None

    def add(self, name: str, index: int, code: int) -> None:
        self.ended[name][code == 0] += 1
        verdict = _verdict(self.request.tasks[name], *self.ended[name]) if self.decided is None else None
        if verdict is not None:
            self.decided = Outcome(verdict, code if not verdict else 0, f"{name}-{index}")

    @property
    def outcome(self) -> Outcome | None:
        """None while the job continues."""
        if self.decided is not None:
            return self.decided
        is_over = all(sum(self.ended[name]) >= self.wanted[name] for name in self.ended)
        return Outcome(True, 0, "") if is_over else None


def outcome(
    request: Request, exits: Mapping[tuple[str, int], int], *, counts: Mapping[str, int] | None = None
) -> Outcome | None:
    """From the codes of the ended tasks by (role, index), oldest first."""
    tally = TaskTally(request, counts)
    for (name, index), code in exits.items():
        tally.add(name, index, code)
    return tally.outcome


def _verdict(role: TaskRole, failed: int, succeeded: int) -> bool | None:
    """What the exits of one role mean for the job so far."""
    completion = role.completion
    if completion.min_failed is not None and failed >= completion.min_failed:
        return False
    if completion.min_succeeded is not None and succeeded >= completion.min_succeeded:
        return True
    return None


QUANTUM_S = 0.1
"""The quantum if a plan names none."""
LANE, LEND, TOKEN = "lane", "lend", "token"


class Terms(msgspec.Struct, frozen=True):
    """How a launch shares its GPUs."""

    lanes: tuple[str, ...]
    """Node and number of each of them."""
    request: float
    limit: float
    weight: float
    quantum_s: float
    is_lent: bool = False
    """True if it runs on what a guaranteed job leaves idle."""


def terms_of(allocation: Allocation, nodes: dict[int, str], limit: int = 0) -> Terms | None:
    """None for a job with exclusive GPUs, or one that runs beside others without turns.

    `limit`: the most it may use of each GPU, in thousandths, as set since its start; 0: not set.
    """
    pieces = [piece for piece in allocation.slices if piece.gpus]
    if not pieces:
        return None
    first = allocation.terms
    mode = MODES.get(first.mode)
    own = first.limit or (first.milli if first.mode == TOKEN else WHOLE)
    is_bounded = mode is not None and not mode.may_exceed  # by the hardware or its driver
    most = min(WHOLE if is_bounded else own, limit or WHOLE)
    if most == WHOLE and (mode is None or not (mode.takes_turns or first.mode == LEND)):
        return None
    return Terms(
        lanes=tuple(sorted({lane for piece in pieces for lane in lanes_of(piece, nodes)})),
        request=first.milli / WHOLE if first.mode == TOKEN else 0.0,
        limit=most / WHOLE,
        weight=first.weight,
        quantum_s=first.quantum_ms / 1000 or QUANTUM_S,
        is_lent=first.mode == LEND and first.milli == 0,
    )


def lone_terms(run: LaunchRun) -> Terms:
    """For a launch that shares no turns with others, and is known to the turn keeper for another reason."""
    return Terms((f"{run.job_id}/{run.launch}",), request=0.0, limit=1.0, weight=1.0, quantum_s=QUANTUM_S)


def lanes_of(piece: Slice, nodes: dict[int, str]) -> set[str]:
    """Where a slice can conflict with others: its GPUs, in mode `lane` its lanes on them."""
    which = f"/{piece.group}.{piece.slot}" if piece.mode == LANE else ""
    return {f"{nodes[piece.node]}:{gpu}{which}" for gpu in bits(piece.gpus)}


def owned(allocation: Allocation, nodes: dict[int, str]) -> set[tuple[str, int]]:
    """(node, GPU) of its exclusive GPUs."""
    return {
        (nodes[piece.node], gpu)
        for piece in allocation.slices
        for gpu in bits(piece.gpus)
        if piece.milli == WHOLE and not piece.mode
    }
