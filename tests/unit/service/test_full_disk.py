"""A store whose disk is full, and jobs that take too much of it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.reports import Exited, Overrun
from skep.jobs.request import Request, TaskRole
from skep.service.store import FULL_TRIES, Store, Writes

REASON = "its files take 3 GiB of the disk, and 2 GiB are allowed"


def fill(store: Store) -> None:
    """No page more: SQLite answers as it does when the disk is full."""
    (pages,) = store.db.execute("PRAGMA page_count").fetchone()
    store.db.execute(f"PRAGMA max_page_count={pages}")


def write(store: Store) -> None:
    store.commit(Writes(log=[(0.0, b"x" * 100_000)]))


def test_a_write_is_tried_again_when_there_is_room(tmp_path: Path) -> None:
    store = Store(tmp_path / "skep.db")
    fill(store)
    asked = []

    def make_room() -> bool:
        asked.append(1)
        if len(asked) == FULL_TRIES - 1:
            store.db.execute("PRAGMA max_page_count=10000")
        return True

    store.make_room = make_room
    write(store)
    assert len(asked) == FULL_TRIES - 1
    assert store.log_seq == 1
    assert list(store.entries()) == [b"x" * 100_000]
    store.close()


@pytest.mark.parametrize("can", [True, False])
def test_a_write_fails_if_no_room_comes(tmp_path: Path, can: bool) -> None:
    store = Store(tmp_path / "skep.db")
    fill(store)
    asked = []
    store.make_room = lambda: not asked.append(1) and can  # type: ignore[func-returns-value]
    with pytest.raises(sqlite3.OperationalError, match="database or disk is full"):
        write(store)
    assert len(asked) == (FULL_TRIES if can else 1)
    assert store.log_seq == 0
    assert not store.db.in_transaction
    store.close()


def test_an_overrun_stops_the_job_with_the_reason(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (job,) = world.submit(request())
    world.settle()
    for _ in range(2):
        world.tell(Overrun(job, 1, REASON))
    assert world.state(job) == "stopping"
    world.settle()
    row = world.store.job(int(job))
    assert row is not None
    assert (row[0].state, row[0].reason) == ("stopped", REASON)
    told = [notice.text for notice in world.store.notices(0, job, 100) if notice.kind == "stop-requested"]
    assert told == [REASON]
    world.tell(Overrun(job, 1, REASON))
    assert world.state(job) == "stopped"


def test_the_end_of_a_killed_job_may_come_in_the_same_turn(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (job,) = world.submit(request())
    world.settle()
    world.tell(Overrun(job, 1, REASON), Exited(job, 1, 137, was_stopped=True, cause="full-disk"))
    row = world.store.job(int(job))
    assert row is not None
    assert (row[0].state, row[0].reason) == ("stopped", REASON)
    assert world.store.attempts(int(job))[-1].phrase == "killed, because the disk was nearly full"


def test_all_tasks_of_a_job_are_stopped(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    world.submit(Request("inc", {"w": TaskRole(count=3, gpus=1, command="true")}, gang=False))
    world.settle()
    world.tell(Overrun("1/w-1", 1, REASON))
    world.settle()
    row = world.store.job(1)
    assert row is not None
    assert (row[0].state, row[0].reason) == ("stopped", REASON)


def test_a_report_about_an_earlier_launch_stops_nothing(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path)
    (job,) = world.submit(request(retries=3))
    world.settle()
    world.tell(Exited(job, 1, 137, cause="server-away"))
    world.now_s += 100
    world.tell()
    world.settle()
    assert world.state(job) == "running"
    world.tell(Overrun(job, 1, REASON))
    assert world.state(job) == "running"
