"""Engines without processes: one on which nothing ever happens, and one that only records jobs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from skep.core.actions import (
    Action,
    Checkpoint,
    Launch,
    Limit,
    Move,
    Reshare,
    Resume,
    Setting,
    Stop,
    Suspend,
    Tune,
    names_of,
)
from skep.core.cluster import Allocation, Cluster
from skep.core.errors import NotFound
from skep.core.events import NodeBack, NodeLost
from skep.core.ports import (
    Capability,
    ForeignStore,
    LogReader,
    Metrics,
    StaleEpoch,
    TaskEnvironment,
    TaskStatus,
    Wanted,
)
from skep.core.reports import (
    Exited,
    GivenSeat,
    LaunchFailed,
    Looked,
    Moved,
    Progressed,
    Refused,
    Report,
    Resumed,
    Started,
    Suspended,
)

STOPPED, KILLED = 143, 137


class NoEngine:
    """Accepts every command and never reports. Tests and benchmarks override what they need."""

    name = "none"
    capabilities: frozenset[Capability] = frozenset()

    def last_epoch(self) -> int:
        return 0

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        for node in sorted(wanted.lost):
            self.lose_node(epoch, node)
        self.execute(epoch, at_s, wanted.actions)

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None: ...

    def lose_node(self, epoch: int, node: str) -> None: ...

    def restore_node(self, epoch: int, node: str) -> None: ...

    def use_cluster(self, cluster: Cluster) -> None: ...

    def look(self, job_ids: Collection[str]) -> None: ...

    def settle(self, epoch: int, job_id: str, launch: int) -> None: ...

    def problems(self) -> list[str]:
        return []

    def make_room(self) -> bool:
        return False

    def forget(self, job_id: str) -> None: ...

    def close(self) -> None: ...

    def last_job(self) -> int:
        return 0

    def tasks(self, job_id: str) -> list[TaskStatus]:
        return []

    def progress(self, job_id: str) -> dict[str, Setting]:
        return {}

    def metrics(self, job_id: str, task: str = "") -> Iterable[Metrics]:
        return []

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        raise NotFound(f"job {job_id}: it has not started yet")

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        return Printed(Machine(), job_id, task, launch, tail)

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        raise NotFound(f"job {job_id}: it has not started yet")

    def share(self, job_id: str) -> dict[str, Setting]:
        return {}

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        return {}

    def disk_used(self) -> Mapping[tuple[str, str], int] | None:
        return None


class FakeRun(msgspec.Struct):
    """The last launch of a job."""

    launch: int
    allocation: Allocation
    given: tuple[GivenSeat, ...]
    is_move: bool = False
    is_suspended: bool = False
    end: Exited | LaunchFailed | None = None


class Machine:
    """What outlives an engine: the runs, their output and reports, and the latest epoch."""

    def __init__(self) -> None:
        self.epoch = 0
        self.lost: set[str] = set()
        self.runs: dict[str, FakeRun] = {}
        self.store = ""
        self.settled: set[tuple[str, int]] = set()
        """Job and number of every launch whose exit is durable."""
        self.starts: list[tuple[str, int]] = []
        """Job and number of every launch that was really begun."""
        self.printed: dict[tuple[str, int], dict[str, bytes]] = {}
        """By job and launch, what each task printed."""
        self.metrics: dict[tuple[str, int], list[bytes]] = {}
        self.said: dict[str, dict[str, Setting]] = {}
        self.settings: dict[str, dict[str, Setting]] = {}
        self.health: dict[str, list[dict[str, Setting]]] = {}
        self.stubborn: set[str] = set()
        """Jobs that do not exit when they are asked to."""
        self.broken: dict[str, str] = {}
        """By job, a task of it that cannot be started."""


class FakeEngine(NoEngine):
    """Does everything at once; jobs run until a test ends them."""

    name = "fake"
    capabilities = frozenset(Capability) - {
        *(Capability.IMAGES, Capability.INSTANT, Capability.LIMIT, Capability.NODES, Capability.SWAP)
    }

    def __init__(
        self, tell: Callable[[list[Report]], None], cluster: Cluster | None = None, machine: Machine | None = None
    ) -> None:
        self.tell = tell
        self.cluster = cluster or Cluster([])
        self.machine = machine or Machine()

    # What tests do

    def end(self, job_id: str, code: int = 0) -> None:
        """A job ends by itself."""
        self.tell([self._over(job_id, code)])

    def fail(self, job_id: str, reason: str) -> None:
        run = self.machine.runs[job_id]
        run.end = LaunchFailed(job_id, run.launch, reason)
        self.tell([run.end])

    def print(self, job_id: str, text: str, task: str = "task-0", launch: int = 0) -> None:
        printed = self.machine.printed.setdefault((job_id, launch or self.machine.runs[job_id].launch), {})
        printed[task] = printed.get(task, b"") + text.encode()

    def say(self, job_id: str, **values: Setting) -> None:
        """The job reports this through `skep.train`."""
        self.machine.said.setdefault(job_id, {}).update(values)
        self.tell([Progressed(job_id, self.machine.runs[job_id].launch, self.machine.said[job_id])])

    # Commands

    def last_epoch(self) -> int:
        return self.machine.epoch

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        self._check(epoch)
        if self.machine.store not in ("", wanted.store) and not wanted.is_new:
            raise ForeignStore(wanted.store, self.machine.store)
        self.machine.epoch, self.machine.store = epoch, wanted.store
        for job_id, run in self.machine.runs.items():
            if run.end is None and (job_id, run.launch) not in wanted.known:
                run.end = Exited(job_id, run.launch, KILLED, was_stopped=True)
        super().adopt(epoch, at_s, wanted)

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        self._check(epoch)
        reports = [report for action in actions for report in self._do(action)]
        if reports:
            self.tell(reports)

    def lose_node(self, epoch: int, node: str) -> None:
        self._check(epoch)
        self.machine.lost.add(node)
        there = [job_id for job_id, run in self.machine.runs.items() if run.end is None and node in self._nodes(run)]
        self.tell([NodeLost(node), *(self._over(job_id, KILLED, cause="node-lost") for job_id in there)])

    def restore_node(self, epoch: int, node: str) -> None:
        self._check(epoch)
        self.machine.lost.discard(node)
        self.tell([NodeBack(node)])

    def use_cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def look(self, job_ids: Collection[str]) -> None:
        self.tell([Looked()])

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        self._check(epoch)
        run = self.machine.runs.get(job_id)
        if run is not None and run.launch == launch and run.end is not None:
            self.machine.settled.add((job_id, launch))

    def forget(self, job_id: str) -> None:
        self.machine.runs.pop(job_id, None)
        for which in [which for which in self.machine.printed if which[0] == job_id]:
            del self.machine.printed[which]

    def _check(self, epoch: int) -> None:
        if epoch < self.machine.epoch:
            raise StaleEpoch(epoch, self.machine.epoch)

    def _do(self, action: Action) -> list[Report]:
        run = self.machine.runs.get(action.job_id)
        if isinstance(action, Launch | Move):
            return self._launch(action, run)
        if isinstance(action, Stop):
            return self._stop(action, run)
        if run is None or run.end is not None or action.launch not in (0, run.launch):
            return []
        return self._on_running(action, run)

    def _launch(self, action: Launch | Move, run: FakeRun | None) -> list[Report]:
        if run is None or run.launch < action.launch:
            run = self._begin(action, run)
        elif run.launch == action.launch:
            run.allocation = action.allocation  # the terms may be new
        return [run.end] if run.end is not None else standing(action.job_id, run)

    def _begin(self, action: Launch | Move, before: FakeRun | None) -> FakeRun:
        if isinstance(action, Move) and before is not None and before.end is not None:
            return before  # It ended by itself before it could move.
        names = names_of(action)
        given = tuple(GivenSeat(names[seat.node], seat.gpus) for seat in action.allocation.seating())
        run = FakeRun(action.launch, action.allocation, given, isinstance(action, Move))
        self.machine.runs[action.job_id] = run
        broken = self.machine.broken.get(action.job_id)
        if lost := self.machine.lost & self._nodes(run):
            run.end = LaunchFailed(action.job_id, action.launch, f"node {min(lost)} is lost", "node-lost")
        elif broken:
            run.end = LaunchFailed(action.job_id, action.launch, f"task {broken} cannot be started", "shortage")
        else:
            self.machine.starts.append((action.job_id, action.launch))
            self.machine.printed.setdefault((action.job_id, action.launch), {})
        return run

    def _nodes(self, run: FakeRun) -> set[str]:
        return {seat.node for seat in run.given}

    def _stop(self, action: Stop, run: FakeRun | None) -> list[Report]:
        if run is None:
            return [Exited(action.job_id, action.launch, STOPPED, was_stopped=True)]
        if 0 < action.launch < run.launch:
            return []
        code = KILLED if action.job_id in self.machine.stubborn else STOPPED
        return [self._over(action.job_id, code, was_stopped=True)]

    def _over(self, job_id: str, code: int, *, was_stopped: bool = False, cause: str = "") -> Report:
        run = self.machine.runs[job_id]
        run.end = run.end or Exited(job_id, run.launch, code, was_stopped=was_stopped, cause=cause)
        return run.end

    def _on_running(self, action: Suspend | Resume | Limit | Tune | Checkpoint | Reshare, run: FakeRun) -> list[Report]:
        job_id = action.job_id
        if isinstance(action, Suspend) and action.memory == "resident":
            run.is_suspended = True
            return [Suspended(job_id, run.launch)]
        if isinstance(action, Resume):
            run.is_suspended = False
            return [Resumed(job_id, run.launch)]
        if isinstance(action, Tune):
            self.machine.settings.setdefault(job_id, {}).update(action.settings)
            return []
        if isinstance(action, Reshare):
            run.allocation = action.allocation
            return []
        if isinstance(action, Checkpoint):
            said = self.machine.said.setdefault(job_id, {})
            said["checkpoint_step"] = said.get("step", 0)
            return [Progressed(job_id, run.launch, dict(said))]
        return [Refused(job_id, run.launch, type(action).__name__.lower(), "the fake engine does not offer this")]

    # Queries

    def tasks(self, job_id: str) -> list[TaskStatus]:
        run = self.machine.runs.get(job_id)
        if run is None:
            return []
        code = run.end.code if isinstance(run.end, Exited) else None
        state = "running" if run.end is None else "succeeded" if code == 0 else "failed"
        return [
            TaskStatus(f"task-{rank}", state, seat.node, [*(seat.gpus or ())], code)
            for rank, seat in enumerate(run.given)
        ]

    def progress(self, job_id: str) -> dict[str, Setting]:
        return self.machine.said.get(job_id, {})

    def metrics(self, job_id: str, task: str = "") -> list[Metrics]:
        found = [(launch, lines) for (job, launch), lines in self.machine.metrics.items() if job == job_id]
        return [Metrics(launch, lines) for launch, lines in sorted(found)]

    def check_log(self, job_id: str, task: str = "", launch: int = 0) -> None:
        if not [each for job, each in self.machine.printed if job == job_id and launch in (0, each)]:
            raise NotFound(
                f"job {job_id}: {f'attempt {launch} does not exist' if launch else 'it has not started yet'}"
            )

    def open_log(self, job_id: str, task: str = "", launch: int = 0, tail: int | None = None) -> LogReader:
        return Printed(self.machine, job_id, task, launch, tail)

    def environment(self, job_id: str, task: str = "", launch: int = 0) -> TaskEnvironment:
        if job_id not in self.machine.runs:
            raise NotFound(f"job {job_id}: it has not started yet")
        return TaskEnvironment({"SECRET": "s"}, "/", task or "task-0")

    def gpu_health(self) -> dict[str, list[dict[str, Setting]]]:
        return self.machine.health


class Printed:
    """The output of a task of a recorded job."""

    def __init__(self, machine: Machine, job_id: str, task: str, launch: int, tail: int | None) -> None:
        self.machine, self.job_id, self.task = machine, job_id, task
        self.follows = launch == 0
        self.launch = launch or max((each for job, each in machine.printed if job == job_id), default=0)
        self.at = 0
        if tail is not None:
            lines = self._text().splitlines(keepends=True)
            self.at = sum(map(len, lines[: len(lines) - tail] if tail < len(lines) else []))

    def line(self) -> int:
        return self._text()[: self.at].count(b"\n") + 1

    def size(self) -> int:
        return len(self._text())

    def _text(self) -> bytes:
        printed = self.machine.printed.get((self.job_id, self.launch), {})
        return printed.get(self.task, b"") if self.task else next(iter(printed.values()), b"")

    def read(self) -> bytes:
        piece = self._text()[self.at :]
        later = [each for job, each in self.machine.printed if job == self.job_id and each > self.launch]
        if not piece and self.follows and later:
            self.launch, self.at = min(later), 0
            piece = self._text()
        self.at += len(piece)
        return piece

    def close(self) -> None: ...


def standing(job_id: str, run: FakeRun) -> list[Report]:
    """The status of a repeated launch."""
    reports: list[Report] = [(Moved if run.is_move else Started)(job_id, run.launch, run.given)]
    return [*reports, Suspended(job_id, run.launch)] if run.is_suspended else reports
