"""The service with its threads: what becomes of those who ask when it can no longer write."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from live_world import Puppet, request

from skep.core.model import GroupRef
from skep.jobs.request import Request, TaskRole
from skep.service.live import Live
from skep.service.store import Store, Writes
from skep.service.turn import Busy


class Quiet(Puppet):
    def last_job(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing runs."""


class FullStore(Store):
    """Its disk fills up while one writes and others wait."""

    is_full = False
    reached = threading.Event()
    go = threading.Event()

    def commit(self, writes: Writes) -> None:
        if self.is_full:
            self.reached.set()
            self.go.wait(60)
            raise sqlite3.OperationalError("database or disk is full")
        super().commit(writes)


def test_nobody_waits_for_ever_when_the_disk_is_full(tmp_path: Path) -> None:
    store = FullStore(tmp_path / "skep.db")
    faults: list[Exception] = []
    live = Live(store, lambda live: Quiet(), lambda: 1000.0, cluster=("test", "1x4"), on_fault=faults.append)
    assert live.submit([request()], "ann").result(60) == ["1"]
    store.is_full = True
    asked: list[Any] = [live.submit([request()], "ann")]
    assert store.reached.wait(60)
    asked += [live.submit([request()], "ann"), live.stop("1", "ann")]  # behind the one that is being written
    store.go.set()
    for future in asked:
        with pytest.raises(Busy, match="cannot write any more: database or disk is full"):
            future.result(60)
    with pytest.raises(Busy):
        live.submit([request()], "ann").result(60)
    assert len(faults) == 1
    live.close()


def test_engines_learn_which_task_a_job_of_the_core_is(tmp_path: Path) -> None:
    """Also of one that the state has forgotten; a gang is all of its tasks, whatever group it is in."""
    live = Live(Store(tmp_path / "skep.db"), lambda live: Quiet(), lambda: 1000.0, cluster=("test", "1x4"))
    single = Request("single", {"a-b": TaskRole(count=3, command="true")}, user="ann", gang=False)
    assert live.submit([single, request(group="tune")], "ann").result(60) == ["1", "2"]
    for _ in range(2):
        found, member = live.request_of("1/a-b-2")
        assert (found.name, member) == ("single", GroupRef("1", "a-b", 2))
        live.writer.state.jobs.pop("1/a-b-2", None)
    assert live.request_of("2")[1] is None
    live.close(snapshot=False)
