"""A server that dies after it has logged new terms of a job, and before the engine got them, sends them again."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import request
from tests.support.engines import FakeEngine, Machine

from skep.core.actions import Action
from skep.core.ports import Engine
from skep.service.live import Live
from skep.service.store import Store


class Deaf(FakeEngine):
    """Gets no actions while it is deaf, as if the server had died before it sent them."""

    is_deaf = False

    def execute(self, epoch: int, at_s: float, actions: list[Action]) -> None:
        if not self.is_deaf:
            super().execute(epoch, at_s, actions)


class World:
    """Servers one after another on one store and one machine with a single GPU."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = Machine()
        self.now_s = 0.0
        self.open()

    def open(self) -> None:
        def engine_of(live: Live) -> Engine:
            self.engine = Deaf(live.tell, live.writer.state.cluster, self.machine)
            return self.engine

        self.live = Live(
            Store(self.folder / "skep.db"), engine_of, lambda: self.now_s, cluster=("1x1", "1x1"), policy="gandiva"
        )

    def crash(self) -> None:
        self.live.close()
        self.open()

    def mode(self, job_id: str) -> str:
        """The share mode in which the machine runs it."""
        return self.machine.runs[job_id].allocation.terms.mode


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_terms_of_a_share_group_are_sent_again(world: World) -> None:
    world.live.submit([request("first")], "ann").result(60)
    assert world.mode("1") == ""
    world.engine.is_deaf = True
    world.live.submit([request("second")], "ann").result(60)
    assert world.mode("1") == ""
    world.crash()
    assert (world.mode("1"), world.mode("2")) == ("slice", "slice")
    world.live.close()


def test_so_are_those_of_a_job_that_has_its_gpu_to_itself_again(world: World) -> None:
    world.live.submit([request("first")], "ann").result(60)
    world.live.submit([request("second")], "ann").result(60)
    assert (world.mode("1"), world.mode("2")) == ("slice", "slice")
    world.engine.is_deaf = True
    world.engine.end("2")
    world.live.note("test", "the turn of the report is over").result(60)
    assert world.mode("1") == "slice"
    world.crash()
    assert world.mode("1") == ""
    world.live.close()
