"""Which launches take turns with each other; the turn keeper (`keeper.py`) does the rest.

Launches that hold parts of the same GPU in a mode with turns form a group, and so do all that are connected through a
gang on several GPUs: a gang takes its turns as a whole. The groups are a file, because the keeper outlives the server.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from skep.core.reports import ShareMeasured
from skep.engines.local.disk import write_whole
from skep.engines.local.processes import TURN, send
from skep.engines.local.run import LaunchRun, LocalTask, Phase, Terms
from skep.engines.local.start import start_keeper
from skep.files.untrusted import decode_as, lock_holder, read_small, write_line

STUCK_S = 10.0
"""A keeper that has not written its measurements for this long is replaced."""
FILE_MAX = 16 << 20
TELL_S = 10.0

log = logging.getLogger(__name__)


class TurnTask(msgspec.Struct, frozen=True):
    path: str
    own: str
    freezer: str
    shim: int


class TurnMember(msgspec.Struct, frozen=True):
    lanes: tuple[str, ...]
    request: float
    limit: float
    weight: float
    is_lent: bool
    tasks: list[TurnTask]
    speed: float = 1.0
    """Declared for its GPU type: below 1 it rests for a part of its turns."""


class TurnGroup(msgspec.Struct, frozen=True):
    name: str
    quantum_s: float
    members: dict[str, TurnMember]
    """By job and launch."""


class TurnFile(msgspec.Struct, frozen=True):
    epoch: int
    groups: list[TurnGroup]


class MemberUsage(msgspec.Struct, frozen=True):
    """The measured use of a member of a share group."""

    share: float
    """The part of the time that it got recently; those of all members on a GPU add up to 1 at most."""
    cpu: float
    """CPUs that it used recently."""
    turn_s: float
    """The total time of its turns since it joined."""
    cpu_s: float
    wall_s: float
    """Since it joined."""
    late: int
    """How often it did not stop in time at the end of its turn."""
    idle_s: float
    """The time since it last used any CPU: a job that has turns and uses none may hang."""
    is_settled: bool
    """True if the group has been unchanged for long enough to make the share meaningful."""
    way: str
    """How it is paused: by the `freezer` of control groups or by `signals`."""
    duty: float | None = None
    """The part of the time in which an opportunistic job may run."""
    is_idle_class: bool = False
    """It also has the kernel's scheduling class SCHED_IDLE."""


class MeasuredFile(msgspec.Struct, frozen=True):
    at_s: float = 0.0
    """By the machine's monotonic clock."""
    members: dict[str, MemberUsage] = {}


class Shares:
    """The engine's side of the turn keeper. Not thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: TurnFile | None = None
        self._began_s = 0.0
        """When a keeper was last started."""
        self._told_s = 0.0

    @property
    def is_used(self) -> bool:
        """True if groups were written since we began."""
        return self._written is not None

    def send_groups(self, runs: Iterable[LaunchRun], epoch: int) -> None:
        """Send the keeper the present groups, if they changed."""
        wanted = TurnFile(epoch, groups_of([run for run in runs if takes_turns(run)]))
        if wanted == self._written or (self._written is None and not wanted.groups and not self.folder.exists()):
            return
        self._prepare()
        write_whole(str(self.folder / "groups.json"), msgspec.json.encode(wanted).decode())
        self._written = wanted
        self._ring_or_start()

    def check(self) -> None:
        """Replace a keeper that died or is stuck."""
        if self._written is None:
            return
        keeper = lock_holder(self.folder / "lock")
        since_s = max(self.measured().at_s, self._began_s)
        if keeper and time.monotonic() - since_s > STUCK_S:
            log.warning("the turn keeper (process %d) does not answer and is replaced", keeper)
            send(keeper, signal.SIGKILL)
            keeper = 0
        if not keeper and self._written.groups:
            self._ring_or_start()

    def news(self) -> list[ShareMeasured]:
        """The measurements to report now: often enough to be useful, too rarely to show single turns."""
        if self._written is None or not self._written.groups or time.monotonic() - self._told_s < TELL_S:
            return []
        self._told_s = time.monotonic()
        return [
            ShareMeasured(key.rpartition("/")[0], int(key.rpartition("/")[2]), min(each.share, 1.0))
            for key, each in self.measured().members.items()
            if each.is_settled
        ]

    def measured(self) -> MeasuredFile:
        return decode_as(read_small(self.folder / "measured.json", FILE_MAX), MeasuredFile) or MeasuredFile()

    def _prepare(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for name in ("bell", "lock"):
            with contextlib.suppress(FileExistsError):
                if name == "bell":
                    os.mkfifo(self.folder / name, 0o600)
                else:
                    os.close(os.open(self.folder / name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _ring_or_start(self) -> None:
        assert self._written is not None
        is_heard = lock_holder(self.folder / "lock") and write_line(self.folder / "bell", "new")
        if self._written.groups and not is_heard:
            self._began_s = time.monotonic()
            start_keeper(self.folder)


def takes_turns(run: LaunchRun) -> bool:
    """Suspended and exiting launches take no turns: their shims alone control them."""
    return run.terms is not None and run.was_told and not (run.is_stopping or run.is_over or run.is_to_stand)


def groups_of(runs: list[LaunchRun]) -> list[TurnGroup]:
    found = []
    for together in connected(runs):
        terms = [run.terms for run in together if run.terms is not None]
        if len(together) > 1 or terms[0].limit < 1.0 or together[0].speed < 1.0:
            members = {
                f"{run.job_id}/{run.launch}": member_of(run, each) for run, each in zip(together, terms, strict=True)
            }
            name = min(lane for each in terms for lane in each.lanes)
            found.append(TurnGroup(name, min(each.quantum_s for each in terms), members))
    return found


def connected(runs: list[LaunchRun]) -> Iterator[list[LaunchRun]]:
    """Launches that share a GPU, directly or through others; in the given order."""
    by_lane: dict[str, list[LaunchRun]] = {}
    for run in runs:
        for lane in run.terms.lanes if run.terms else ():
            by_lane.setdefault(lane, []).append(run)
    seen: set[LaunchRun] = set()
    for run in runs:
        together: list[LaunchRun] = []
        todo = [run]
        while todo:
            each = todo.pop()
            if each not in seen and each.terms is not None:
                seen.add(each)
                together.append(each)
                todo += [other for lane in each.terms.lanes for other in by_lane[lane]]
        if together:
            yield sorted(together, key=runs.index)


def member_of(run: LaunchRun, terms: Terms) -> TurnMember:
    tasks = [turn_task(task) for task in run.tasks if task.phase is Phase.RUNNING]
    return TurnMember(terms.lanes, terms.request, terms.limit, terms.weight, terms.is_lent, tasks, run.speed)


def turn_task(task: LocalTask) -> TurnTask:
    groups = task.record.cgroups
    freezer = next((group for group in groups if f"{group}/{TURN}" in groups), "")
    return TurnTask(str(task.path), str(task.own), freezer, task.shim_pid())
