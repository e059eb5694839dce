"""The whole service on seeded faults: reports late, doubled and lost, launches that fail, nodes that die, and crashes
between any two writes. First safety, then faults off and everything must end."""

from __future__ import annotations

import random
from collections.abc import Collection
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from tests.support.engines import NoEngine
from tests.support.invariants import check
from tests.support.snapshot import snapshot

from skep.clusters.discovered import with_found
from skep.core.actions import Action, Launch, Move, Stop
from skep.core.cluster import Allocation, NodeSpec
from skep.core.errors import InputError
from skep.core.events import (
    ClusterChanged,
    NodeBack,
    NodeChanged,
    NodeJoined,
    NodeLeft,
    NodeLost,
    OthersChanged,
    PolicyChanged,
    PolicyFailed,
)
from skep.core.others import NodeUse
from skep.core.ports import Capability
from skep.core.record import decode
from skep.core.reports import Exited, LaunchFailed, Looked, Moved, Report, Started
from skep.jobs.request import Elastic, Request, TaskRole
from skep.service import commands
from skep.service import writer as writer_module
from skep.service.recover import recompute, recover
from skep.service.store import JobFilter, Notice, Store, Writes
from skep.service.turn import Command
from skep.service.writer import Writer

VCS = """
nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}, {name: c, gpus: 4}]
vcs: {red: 1 nodes, blue: 1 nodes}
"""
POLICIES = ("fifo", "fifo:walk=skip", "srtf", "las", "tiresias-l", "tiresias-g", "drf", "yarn-cs", "afs-l")


class Crash(Exception):
    """The process is gone, here and now."""


class Run:
    """A start of a job that really happened."""

    def __init__(self, job_id: str, launch: int, allocation: Allocation) -> None:
        self.job_id = job_id
        self.launch = launch
        self.allocation = allocation
        self.is_asked_to_stop = False
        self.news: list[Report] = []
        """Told until somebody must have heard."""
        self.is_over = False


class FaultyEngine(NoEngine):
    """Runs outlive the server. What it tells may come late, twice, or only after somebody looks again."""

    capabilities = frozenset({Capability.MIGRATE, Capability.RESIZE})

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.faults = True
        self.runs: dict[tuple[str, int], Run] = {}
        self.done: set[str] = set()
        self.mail: list[Report] = []
        self.down: set[int] = set()
        self.moves: dict[str, Move] = {}
        self.names: list[str] = []

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        for action in actions:
            if self.faults and self.chance.random() < 0.01:
                raise Crash
            if isinstance(action, Launch):
                self._launch(action.job_id, action.launch, action.allocation)
            elif isinstance(action, Move):
                self.moves[action.job_id] = action
            elif isinstance(action, Stop):
                for run in self.of(action.job_id):
                    run.is_asked_to_stop = True

    def look(self, job_ids: Collection[str]) -> None:
        self.mail.append(Looked())

    def of(self, job_id: str) -> list[Run]:
        return [run for run in self.runs.values() if run.job_id == job_id and not run.is_over]

    def _launch(self, job_id: str, launch: int, allocation: Allocation) -> None:
        if (job_id, launch) in self.runs:
            self.mail += self.runs[job_id, launch].news  # told again: it has been done
            return
        assert not self.of(job_id), f"{job_id} runs already"
        assert job_id not in self.done, f"{job_id} is over and was started again"
        self._assert_free(allocation)
        run = self.runs[job_id, launch] = Run(job_id, launch, allocation)
        if self.down & set(allocation.nodes()):
            self._end(run, Exited(job_id, launch, 137, cause="node-lost"))
        elif self.faults and self.chance.random() < 0.1:
            self._end(run, LaunchFailed(job_id, launch, "no luck"))
        else:
            self._tell(run, Started(job_id, launch))

    def _assert_free(self, allocation: Allocation) -> None:
        for run in self.runs.values():
            for mine in allocation.slices if not run.is_over else ():
                for theirs in run.allocation.slices:
                    assert mine.node != theirs.node or not mine.gpus & theirs.gpus, f"{run.job_id} is still there"

    def _is_free(self, allocation: Allocation, but: Run) -> bool:
        """Whoever is there moves or leaves too. Jobs that swap their GPUs are in the contract of engines."""
        others = [run for run in self.runs.values() if not run.is_over and run is not but]
        return not any(
            mine.node == theirs.node and mine.gpus & theirs.gpus
            for mine in allocation.slices
            for run in others
            for theirs in run.allocation.slices
        )

    def _tell(self, run: Run, report: Report) -> None:
        run.news.append(report)
        for _ in range(self.chance.choice((0, 1, 1, 1, 2)) if self.faults else 1):
            self.mail.append(report)

    def _end(self, run: Run, report: Report) -> None:
        run.is_over = True
        self._tell(run, report)

    def live(self) -> None:
        """Some time passes: somebody ends, somebody leaves as asked, somebody fails."""
        for run in [run for run in self.runs.values() if not run.is_over]:
            move = self.moves.get(run.job_id)
            if move is not None and not run.is_asked_to_stop and self._is_free(move.allocation, run):
                self._move(run, move)
            elif run.is_asked_to_stop and self.chance.random() < 0.5:
                self._end(run, Exited(run.job_id, run.launch, 143, was_stopped=True))
            elif self.chance.random() < 0.15:
                code = 1 if self.faults and self.chance.random() < 0.2 else 0
                if code == 0:
                    self.done.add(run.job_id)
                self._end(run, Exited(run.job_id, run.launch, code))

    def _move(self, run: Run, move: Move) -> None:
        del self.moves[run.job_id]
        if move.launch <= run.launch:
            return
        run.is_over = True
        moved = self.runs[run.job_id, move.launch] = Run(run.job_id, move.launch, move.allocation)
        self._tell(moved, Moved(run.job_id, move.launch))

    def flip_node(self) -> None:
        node = self.chance.randrange(len(self.names) - 1)  # the last one leaves and joins
        if node in self.down:
            self.down.remove(node)
        else:
            self.down.add(node)
            for run in self.runs.values():
                if not run.is_over and node in run.allocation.nodes():
                    self._end(run, Exited(run.job_id, run.launch, 137, cause="node-lost"))
        self.mail.append((NodeLost if node in self.down else NodeBack)(self.names[node]))

    def discover(self) -> None:
        """A node that comes and goes, each time with other GPUs; whoever is there stays until it has ended."""
        name = self.chance.choice(("extra", self.names[-1]))
        spec = NodeSpec(name, self.chance.randint(1, 6))
        others = OthersChanged(self.chance.choice(self.names), self.foreign())
        self.mail.append(self.chance.choice((NodeJoined(spec), NodeChanged(spec), NodeLeft(name), others)))

    def foreign(self) -> tuple[NodeUse, ...]:
        """Whole GPUs and parts of them that others use; jobs may be in their way."""
        return tuple(
            NodeUse(self.chance.randrange(16), self.chance.choice((300, 1000)), cpu_milli=self.chance.randrange(2000))
            for _ in range(self.chance.randrange(3))
        )

    def take_mail(self) -> list[Report]:
        """Some of it; now and then everything is looked at again."""
        self.chance.shuffle(self.mail)
        if self.chance.random() < 0.2 or not self.faults:
            self.mail += [report for run in self.runs.values() for report in run.news]
            self.mail += [(NodeLost if node in self.down else NodeBack)(name) for node, name in enumerate(self.names)]
        count = self.chance.randint(0, len(self.mail)) if self.faults else len(self.mail)
        taken, self.mail = self.mail[:count], self.mail[count:]
        return taken


class FaultyStore(Store):
    chance: random.Random
    faults = False

    def commit(self, writes: Writes) -> None:
        if self.faults and self.chance.random() < 0.02:
            raise Crash
        super().commit(writes)
        if self.faults and self.chance.random() < 0.02:
            raise Crash


class Trial:
    def __init__(self, folder: Path, seed: int, policies: tuple[str, ...] = POLICIES) -> None:
        self.folder = folder
        self.policies = policies
        self.chance = random.Random(seed)
        self.has_vcs = seed % 2 == 1
        self.engine = FaultyEngine(self.chance)
        self.now_s = 1000.0
        self.keys: dict[str, list[str]] = {}
        self.crashes = 0
        self.told: list[Notice] = []
        cluster = VCS if self.has_vcs else with_found("nodes: discovered\n", [NodeSpec(f"n{at}", 4) for at in range(3)])
        self.opening = (ClusterChanged("test", cluster), PolicyChanged(self.chance.choice(policies)))
        self.faults = True
        self.open()

    def open(self) -> None:
        self.store = FaultyStore(self.folder / "skep.db")
        self.store.db.execute("PRAGMA synchronous=OFF")  # here processes crash, not machines
        self.store.chance = self.chance
        self.writer = Writer(self.store, self.now_s, opening=self.opening)
        self.engine.names = self.engine.names or list(self.writer.state.cluster.by_name)
        self.store.faults = self.faults
        while True:
            try:
                self.writer.start(self.engine)
                return
            except Crash:
                self.crashes += 1

    def guarded(self, asked: list[Command]) -> None:
        try:
            self.writer.turn(asked, self.engine.take_mail(), self.now_s)
            check(self.writer.state)
        except Crash:
            self.crashes += 1
            self.store.close()
            self.open()
            folded, _ = recover(self.store, from_start=True)
            assert snapshot(folded)["jobs"].keys() == snapshot(self.writer.state)["jobs"].keys()

    def ask(self, prepare: Any) -> Any:
        """None when the server was gone before it answered."""
        future: Future[Any] = Future()
        self.guarded([Command(prepare, future)])
        if not future.done():
            return None
        try:
            return future.result(0)
        except InputError:
            return None

    def submit(self, number: int) -> None:
        key = f"key {number}"
        ids = None
        while ids is None:  # as a client does that got no answer
            ids = self.ask(commands.submit([self.request(number)], "ann", key))
        assert self.keys.setdefault(key, ids) == ids

    def request(self, number: int) -> Request:
        chance = random.Random(number)
        gpus = chance.choice((1, 1, 2, 4))
        vc = chance.choice(("red", "blue")) if self.has_vcs else "default"
        elastic = Elastic("w", 1, 4) if chance.random() < 0.3 else None
        role = TaskRole(count=gpus, gpus=1, command="true")
        priority = chance.choice((-1, 10, 10, 100))
        return Request(
            f"job{number}", {"w": role}, vc=vc, priority=priority, elastic=elastic, retries=-1, expect_s=60.0
        )

    def meddle(self) -> None:
        """What owners and admins do."""
        open_ids = list(self.writer.book.records)
        ref = self.chance.choice(open_ids) if open_ids else "1"
        node = self.chance.choice(list(self.writer.state.cluster.by_name))
        choice = self.chance.randrange(10)
        if choice == 0:
            self.ask(commands.use_policy(self.chance.choice(self.policies), "root"))
        elif choice == 1:
            self.ask(commands.stop(ref, "ann", ""))
        elif choice in (2, 3):
            self.ask(commands.hold(ref, choice == 2, "ann"))
        elif choice == 4:
            self.ask(commands.reprioritise(ref, self.chance.choice((-1, 5, 200)), "ann"))
        elif choice in (5, 6):
            self.ask(commands.drain(node, choice == 5, "root"))
        elif choice == 7:
            self.engine.flip_node()
        else:
            self.engine.discover()

    def run(self, steps: int) -> None:
        number = 0
        for _ in range(steps):
            self.now_s += self.chance.choice((0.0, 1.0, 30.0))
            if number < steps // 4 and self.chance.random() < 0.3:
                self.submit(number)
                number += 1
            elif self.chance.random() < 0.15:
                self.meddle()
            else:
                self.guarded([])
            self.engine.live()

    def finish(self) -> None:
        """Faults off: everything must end."""
        self.faults = self.engine.faults = self.store.faults = False
        for node in list(self.writer.state.health.drained):
            self.ask(commands.drain(node, False, "root"))
        self.engine.down.clear()
        whole = NodeSpec(self.engine.names[-1], 4)
        old = (NodeJoined, NodeChanged, NodeLeft, OthersChanged)
        self.engine.mail = [report for report in self.engine.mail if not isinstance(report, old)]
        self.engine.mail += [NodeJoined(whole), NodeChanged(whole)]
        self.engine.mail += [OthersChanged(name, ()) for name in self.engine.names]
        for ref in list(self.writer.book.records):
            self.ask(commands.hold(ref, False, "ann"))
        for _ in range(600):
            if not self.writer.book.records:
                return
            self.now_s += 100.0
            self.guarded([])
            self.engine.live()
        raise AssertionError(f"still open: {list(self.writer.state.jobs.values())}")


def try_seed(folder: Path, seed: int, steps: int = 150) -> Trial:
    trial = Trial(folder, seed)
    trial.run(steps)
    trial.finish()
    rows = trial.store.jobs(JobFilter(all=True), 1000, None)
    assert len(rows) == len(trial.keys), "a submission is one job, however often it was repeated"
    for row in rows:
        assert row.finish_s is not None
        assert (str(row.seq) in trial.engine.done) == (row.state == "succeeded"), row
    assert not [run for run in trial.engine.runs.values() if not run.is_over], "somebody runs for nobody"
    trial.told = trial.store.notices(0, None, 100_000)
    folded, _ = recover(trial.store, from_start=True)
    trial.store.close()
    store = Store(folder / "skep.db")
    recovered, _ = recover(store)
    assert snapshot(recovered) == snapshot(folded)
    entries = [decode(data) for data in store.entries()]
    assert not [event for entry in entries for event in entry.events if isinstance(event, PolicyFailed)]
    assert recompute(entries) == []
    store.close()
    return trial


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "ENDED_KEPT", 3)


SEEDS = [
    *range(12),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in (*range(12, 40), 237, 255, 279)),
]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_and_everything_ends(tmp_path: Path, seed: int) -> None:
    try_seed(tmp_path, seed)


@pytest.mark.slow
def test_the_faults_are_there(tmp_path: Path) -> None:
    trials = []
    for seed in (116, 122, 128, 130):
        (tmp_path / str(seed)).mkdir()
        trials.append(try_seed(tmp_path / str(seed), seed, 400))
    assert sum(trial.crashes for trial in trials) > 5
    kinds = [told.kind for trial in trials for told in trial.told]
    nodes = {"node-lost", "drained", "joined", "changed", "left"}
    assert {"preempted", "retried", "resized", "policy"} | nodes <= set(kinds)
