"""The simulator behind the protocol of live engines: events become reports, and a test advances the time."""

from __future__ import annotations

from collections.abc import Callable, Collection

from tests.support.engines import KILLED, STOPPED, NoEngine

from skep.core.actions import Action, Launch, Move, Reshare, Resume, Stop, Suspend, names_of
from skep.core.events import Event, Exit, NodeBack, NodeLost, TasksExited, TasksMoved, TasksStarted
from skep.core.ports import Capability, StaleEpoch, Wanted
from skep.core.reports import (
    Exited,
    GivenSeat,
    LaunchFailed,
    Looked,
    Moved,
    Refused,
    Report,
    Resumed,
    Started,
    Suspended,
)
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages

CODES = {Exit.FINISHED: 0, Exit.FAILED: 1, Exit.PREEMPTED: STOPPED, Exit.NODE_LOST: KILLED}


class SimWorld:
    """A simulator and what outlives its engines: the last launch of each job, and its status."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.simulator.observe(0.0)
        self.now_s = 0.0
        self.epoch = 0
        self.lost: set[str] = set()
        self.launches: dict[str, int] = {}
        self.given: dict[str, tuple[GivenSeat, ...]] = {}
        self.told: dict[str, Report] = {}
        """The last report of each job's launch."""
        self.starts: list[tuple[str, int]] = []


class SimEngine(NoEngine):
    name = "simulator"
    capabilities = frozenset(
        {Capability.SUSPEND, Capability.MIGRATE, Capability.RESIZE, Capability.SHARE, Capability.EXACT_GPUS}
    )

    def __init__(self, world: SimWorld, tell: Callable[[list[Report]], None]) -> None:
        self.world = world
        self.tell = tell

    def advance(self, by_s: float) -> None:
        until_s = self.world.now_s + by_s
        simulator = self.world.simulator
        while self.world.now_s < until_s:
            batch = simulator.observe(until_s)
            self.world.now_s = batch.at_s if batch is not None else until_s
            self._hear(batch.events if batch is not None else [])

    def last_epoch(self) -> int:
        return self.world.epoch

    def adopt(self, epoch: int, at_s: float, wanted: Wanted) -> None:
        self._check(epoch)
        self.world.epoch = epoch
        for job_id, launch in self.world.launches.items():
            if self._runs(job_id) and (job_id, launch) not in wanted.known:
                self._simulate(Stop(job_id, "the server does not know this launch"))
        super().adopt(epoch, at_s, wanted)

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        self._check(epoch)
        for action in actions:
            self._do(action)

    def lose_node(self, epoch: int, node: str) -> None:
        self._check(epoch)
        if node not in self.world.lost:
            self.world.lost.add(node)
            self._change(node, is_lost=True)

    def restore_node(self, epoch: int, node: str) -> None:
        self._check(epoch)
        self.world.lost.discard(node)
        self._change(node, is_lost=False)

    def look(self, job_ids: Collection[str]) -> None:
        self.tell([Looked()])

    def _check(self, epoch: int) -> None:
        if epoch < self.world.epoch:
            raise StaleEpoch(epoch, self.world.epoch)

    def _change(self, node: str, *, is_lost: bool) -> None:
        """As an outage that begins or ends now."""
        number = self.world.simulator.rates.cluster.by_name[node].index
        events: list[Event] = []
        self.world.simulator.outages = Outages([(self.world.now_s, number, is_lost)])
        self.world.simulator._node_changes(self.world.now_s, events)
        self.world.simulator.outages = Outages.none()
        self._hear(events)

    def _runs(self, job_id: str) -> bool:
        task = self.world.simulator.tasks.get(job_id)
        return task is not None and task.row in self.world.simulator.running

    def _do(self, action: Action) -> None:
        last = self.world.launches.get(action.job_id, 0)
        if isinstance(action, Launch | Move):
            if action.launch > last:
                self._begin(action)
            else:
                if action.launch == last and self._runs(action.job_id):
                    self._hear(self._simulate(Reshare(action.job_id, last, action.allocation)))
                self._retell(action.job_id)
        elif isinstance(action, Stop):
            if not self._runs(action.job_id):
                self._retell(action.job_id)
            elif action.launch in (0, last) or action.launch > last:
                self._hear(self._simulate(action))
        elif self._runs(action.job_id) and action.launch in (0, last):
            self._on_running(action, last)

    def _begin(self, action: Launch | Move) -> None:
        if lost := set(action.names) & self.world.lost:
            self.tell([LaunchFailed(action.job_id, action.launch, f"node {min(lost)} is lost", "node-lost")])
        elif isinstance(action, Move) and not self._runs(action.job_id):
            self._retell(action.job_id)  # It ended by itself before it could move.
        else:
            self.world.launches[action.job_id] = action.launch
            names = names_of(action)
            seats = action.allocation.seating()
            self.world.given[action.job_id] = tuple(GivenSeat(names[seat.node], seat.gpus) for seat in seats)
            self.world.starts.append((action.job_id, action.launch))
            self._hear(self._simulate(action))

    def _on_running(self, action: Action, launch: int) -> None:
        task = self.world.simulator.tasks[action.job_id]
        if isinstance(action, Reshare):
            self._hear(self._simulate(action))
            return
        report: Report = Refused(action.job_id, launch, type(action).__name__.lower(), "the simulator does not do this")
        if isinstance(action, Suspend) and action.memory == "resident":
            report = Suspended(action.job_id, launch)
            events = [] if task.is_suspended else self._simulate(action)
        elif isinstance(action, Resume):
            report = Resumed(action.job_id, launch)
            events = self._simulate(action) if task.is_suspended else []
        else:
            events = []
        self._hear(events)
        self.tell([report])

    def _simulate(self, action: Action) -> list[Event]:
        return self.world.simulator.execute(self.world.now_s, [action])

    def _retell(self, job_id: str) -> None:
        told = self.world.told.get(job_id)
        if told is not None:
            is_suspended = self._runs(job_id) and self.world.simulator.tasks[job_id].is_suspended
            launch = self.world.launches[job_id]
            self.tell([told, Suspended(job_id, launch)] if is_suspended else [told])

    def _hear(self, events: list[Event]) -> None:
        reports = [report for event in events if (report := self._report(event)) is not None]
        if reports:
            self.tell(reports)

    def _report(self, event: Event) -> Report | None:
        if isinstance(event, NodeLost | NodeBack):
            return event
        if not isinstance(event, TasksStarted | TasksMoved | TasksExited):
            return None
        launch = self.world.launches[event.job_id]
        report: Report
        if isinstance(event, TasksExited):
            cause = "node-lost" if event.exit is Exit.NODE_LOST else ""
            was_stopped = event.exit is Exit.PREEMPTED
            report = Exited(event.job_id, launch, CODES[event.exit], was_stopped=was_stopped, cause=cause)
        else:
            report = (Moved if isinstance(event, TasksMoved) else Started)(
                event.job_id, launch, self.world.given[event.job_id]
            )
        self.world.told[event.job_id] = report
        return report
