"""Readers need not wait until the writer has gone through a large submission."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from live_world import LiveWorld, request

from skep.jobs.request import Request, TaskRole
from skep.service import commands, present
from skep.service.clock import Clock
from skep.service.reads import Reads
from skep.service.store import JobFilter
from skep.service.turn import PIECE, Lendable


class ReadWhenLent(Lendable):
    """Whenever the lock is lent, somebody reads."""

    def __init__(self, world: LiveWorld) -> None:
        super().__init__()
        self.count = 0
        self.is_reading = False
        self.reads = reads = Reads()
        reads.store, reads.writer, reads.lock = world.store, world.writer, self
        reads.clock = Clock(lambda: 5000.0, lambda: 5000.0)
        reads.engine = SimpleNamespace(gpu_health=dict, progress=lambda job: {}, disk_used=dict)

    @contextmanager
    def lent(self) -> Iterator[None]:
        with super().lent():
            if not self.is_reading:
                self.is_reading = True
                self.read()
                self.is_reading = False
            yield

    def read(self) -> None:
        self.count += 1
        self.reads.nodes()
        self.reads.jobs(JobFilter(), 100, None)
        self.reads.check([request()])
        self.reads.limits(None)
        if self.count % 20 == 1:  # those that look at every job
            self.reads.stats()
            self.reads.vcs()
            present.overview(self.reads)
            present.cluster_map(self.reads)
            present.drain_preview(self.reads, self.reads.writer.state.cluster.nodes[0].name)


def watched(folder: Path, cluster: str) -> tuple[LiveWorld, ReadWhenLent]:
    world = LiveWorld(folder, cluster=cluster)
    lock = world.writer.lock = ReadWhenLent(world)
    return world, lock


def test_reads_are_answered_while_a_sweep_is_booked(tmp_path: Path) -> None:
    world, lock = watched(tmp_path, "1x8")
    role = TaskRole(count=10_000, gpus=1, command="true")
    world.submit(Request("sweep", {"task": role}, user="ann", gang=False))
    assert lock.count >= 10_000 // PIECE
    assert len(world.writer.state.jobs) == 10_000


def test_reads_are_answered_while_many_jobs_are_booked_and_start(tmp_path: Path) -> None:
    world, lock = watched(tmp_path, "125x8")
    ids = world.submit(*[request()] * 1000)
    assert lock.count >= 1000 // PIECE * 4  # checked, added, launched, brought up to date
    lock.count = 0
    world.settle()
    assert lock.count >= 1000 // PIECE * 2  # told of, brought up to date
    assert world.state(ids[-1]) == "running"


def test_reads_are_answered_while_a_policy_is_tried(tmp_path: Path) -> None:
    world, lock = watched(tmp_path, "1x8")
    world.ask(commands.use_policy("srsf", "root"))
    assert lock.count >= 3  # made, rehearsed, begins
    lock.count = 0
    with lock:
        commands.changes_of(world.writer, "2x8", "more")
    assert lock.count == 2


def test_who_waits_gets_the_lock_as_soon_as_it_is_lent() -> None:
    lock = Lendable()
    passed: list[int] = []

    def read() -> None:
        with lock:
            passed.append(1)

    for count in range(1, 21):
        with lock:
            reader = threading.Thread(target=read)
            reader.start()
            while not lock._line.locked():
                time.sleep(0.001)
            with lock.lent():
                pass
            assert len(passed) == count
        reader.join()
