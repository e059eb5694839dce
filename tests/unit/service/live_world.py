"""A live service without processes: an engine that does as it is told when it is told to."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.support.engines import NoEngine
from tests.support.invariants import check

from skep.core.actions import Action, Launch, Move, Stop
from skep.core.cluster import Cluster
from skep.core.events import ClusterChanged, NodeLost, PolicyChanged
from skep.core.reports import Exited, Looked, Moved, Report, Started
from skep.jobs.request import UNLIMITED, LimitRules, Request, TaskRole
from skep.service import commands
from skep.service.store import Store
from skep.service.turn import Command
from skep.service.writer import Writer


class Puppet(NoEngine):
    """Remembers what it was asked; the test says when it happens."""

    def __init__(self) -> None:
        self.asked: list[Action] = []
        self.lost: set[str] = set()
        self.launched: dict[tuple[str, int], Any] = {}
        self.is_asked_to_look = False
        self.looked_at: list[set[str]] = []
        self.settled: list[tuple[str, int]] = []

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Launch):
                if (action.job_id, action.launch) in self.launched:
                    continue
                self.launched[action.job_id, action.launch] = action.allocation
            self.asked.append(action)

    def use_cluster(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def lose_node(self, epoch: int, node: str) -> None:
        self.lost.add(node)

    def restore_node(self, epoch: int, node: str) -> None:
        self.lost.discard(node)

    def look(self, job_ids: Collection[str]) -> None:
        self.is_asked_to_look = True
        self.looked_at.append(set(job_ids))

    def settle(self, epoch: int, job_id: str, launch: int) -> None:
        self.settled.append((job_id, launch))


class LiveWorld:
    """A writer on a store of its own, with a clock that the test moves."""

    def __init__(
        self, folder: Path, cluster: str = "2x4", policy: str = "fifo", limits: LimitRules = UNLIMITED
    ) -> None:
        self.limits = limits
        self.folder = folder
        self.now_s = 1000.0
        self.puppet = Puppet()
        self.opening = (ClusterChanged("test", cluster), PolicyChanged(policy))
        self.open()

    def open(self) -> None:
        self.store = Store(self.folder / "skep.db")
        self.writer = Writer(self.store, self.now_s, opening=self.opening, limits=self.limits)
        self.writer.start(self.puppet)

    def crash(self) -> None:
        """Nothing is closed in order; what was committed is there."""
        self.store.close()
        self.open()

    def ask(self, prepare: Any) -> Any:
        future: Future[Any] = Future()
        self.turn([Command(prepare, future)], [])
        return future.result(0)

    def turn(self, asked: list[Command], reports: list[Report]) -> None:
        self.now_s += 1.0
        self.writer.turn(asked, reports, self.now_s)
        check(self.writer.state)
        if self.puppet.is_asked_to_look:
            self.puppet.is_asked_to_look = False
            self.writer.turn([], [Looked()], self.now_s)
            check(self.writer.state)

    def submit(self, *requests: Request, key: str = "") -> list[str]:
        found: list[str] = self.ask(commands.submit(list(requests), "ann", key))
        return found

    def tell(self, *reports: Report) -> None:
        self.turn([], list(reports))

    def settle(self) -> None:
        """The engine does whatever it was asked, and tells."""
        while self.puppet.asked:
            asked, self.puppet.asked = self.puppet.asked, []
            reports: list[Report] = []
            for action in asked:
                job = self.writer.state.jobs[action.job_id]
                if isinstance(action, Launch):
                    reports.append(Started(job.id, action.launch))
                elif isinstance(action, Move):
                    reports.append(Moved(job.id, action.launch))
                elif isinstance(action, Stop):
                    reports.append(Exited(job.id, job.held_launch, 143, was_stopped=True))
            self.tell(*reports)

    def end(self, core_id: str, code: int = 0, log_tail: str = "") -> None:
        job = self.writer.state.jobs[core_id]
        self.tell(Exited(core_id, job.held_launch, code, log_tail=log_tail))
        self.settle()

    def lose(self, node: int) -> None:
        state = self.writer.state
        there = [job for job in state.held_jobs.values() if job.held is not None and node in job.held.nodes()]
        gone = [Exited(job.id, job.held_launch, 137, cause="node-lost") for job in there]
        self.tell(NodeLost(state.cluster.nodes[node].name), *gone)
        self.settle()

    def state(self, job_id: str) -> str:
        found = self.store.job(int(job_id))
        assert found is not None
        return found[0].state


def request(name: str = "job", gpus: int = 1, **fields: Any) -> Request:
    return Request(name=name, tasks={"task": TaskRole(count=gpus, gpus=1, command="true")}, user="ann", **fields)
