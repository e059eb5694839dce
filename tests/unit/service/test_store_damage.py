"""A store that is not as it was written says so in a line; one whose log was forgotten is still what it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from live_world import LiveWorld, Puppet, request
from tests.support.snapshot import snapshot

from skep.core.errors import InputError
from skep.service import check
from skep.service.live import Live
from skep.service.store import Store, checksum


@pytest.fixture
def world(tmp_path: Path) -> LiveWorld:
    return LiveWorld(tmp_path)


def change(world: LiveWorld, *lines: str) -> None:
    world.store.close()
    db = sqlite3.connect(world.folder / "skep.db")
    for line in lines:
        db.execute(line)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("DELETE FROM log WHERE seq=3", "entry 3 of its log is missing"),
        ("DELETE FROM log WHERE seq=5", "job 4 is open in the table of jobs, but not in the log"),
        ("UPDATE log SET entry=X'00ff' WHERE seq=3", "entry 3 of its log is not as it was written"),
        (
            f"UPDATE log SET entry=X'00ff', crc={checksum(3, bytes([0, 255]))} WHERE seq=3",
            "Expected `object`, got `int`",
        ),
        (
            "UPDATE log SET crc=a.crc, entry=a.entry FROM log AS a WHERE a.seq=2 AND log.seq=3",
            "entry 3 of its log is not",
        ),
        ("UPDATE jobs SET request=X'7b'", "truncated"),
        ("UPDATE jobs SET tags='[1]' WHERE seq=1", "Expected `str`, got `int`"),
        ("UPDATE jobs SET submit_s='soon' WHERE seq=1", "Expected `float`, got `str`"),
        ("UPDATE jobs SET submit_s=1e300 WHERE seq=1", "a row of jobs: 1e+300 is not between 0 and 1e+11"),
        ("UPDATE events SET at_s=9e999", "a row of events: inf is not between 0 and 1e+11"),
        ("UPDATE attempts SET end_s=-1e300", "a row of attempts: -1e+300 is not between 0 and 1e+11"),
        ("UPDATE jobs SET finish_s=1.0 WHERE seq=1", "job 1 is open in the log, but not in the table of jobs"),
        ("UPDATE events SET text=X'ff' WHERE seq=1", "Expected `str`, got `bytes`"),
        ("UPDATE meta SET value='many'", "invalid literal"),
    ],
)
def test_damage_is_said_in_a_line(world: LiveWorld, damage: str, said: str) -> None:
    for _ in range(4):
        world.submit(request())
    change(world, damage)
    with pytest.raises(InputError) as raised:
        Live(Store(world.folder / "skep.db"), lambda live: Puppet(), lambda: 5000.0)
    assert str(raised.value).startswith(f"{world.folder}/skep.db is damaged: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert "backup" in raised.value.hint


def test_a_damaged_page_is_said_in_a_line(world: LiveWorld) -> None:
    for _ in range(50):
        world.submit(request())
    change(world, "PRAGMA wal_checkpoint(TRUNCATE)")
    file = world.folder / "skep.db"
    content = bytearray(file.read_bytes())
    for page in range(2, len(content) // 4096):
        content[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    file.write_bytes(content)
    with pytest.raises(InputError, match="malformed"):
        Live(Store(file), lambda live: Puppet(), lambda: 5000.0)
    assert file.read_bytes() == content


def test_where_all_of_the_log_is_forgotten_the_snapshot_stands_for_it(world: LiveWorld) -> None:
    """A server on which nothing happens for longer than it keeps."""
    (job,) = world.submit(request(gpus=4))
    world.settle()
    world.writer.save_snapshot()
    world.writer.forget(world.now_s + 1.0)
    assert list(world.store.entries()) != []  # one snapshot alone may turn out to be damaged
    world.submit(request())
    world.writer.save_snapshot()
    world.writer.forget(world.now_s + 1.0)
    assert list(world.store.entries(world.store.log_seq)) == []
    assert world.store.db.execute("SELECT count(*) FROM log").fetchone() == (1,)
    before = snapshot(world.writer.state)
    world.opening = None
    world.crash()
    assert snapshot(world.writer.state) == before
    world.end(job)
    world.crash()
    assert world.writer.state.jobs[job].state == "succeeded"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE snapshots SET state=X'01' WHERE seq=(SELECT max(seq) FROM snapshots)",
        "UPDATE snapshots SET cluster='4x8' WHERE seq=(SELECT max(seq) FROM snapshots)",
        "UPDATE snapshots SET state=X'01'",
    ],
    ids=["newest", "its cluster", "all"],
)
def test_a_damaged_snapshot_is_done_without(world: LiveWorld, damage: str) -> None:
    for _ in range(3):
        world.submit(request())
        world.settle()
        world.writer.save_snapshot()
    world.submit(request(gpus=4))
    before = snapshot(world.writer.state)
    change(world, damage)
    world.open()
    assert snapshot(world.writer.state) == before
    world.writer.save_snapshot()
    world.crash()
    assert snapshot(world.writer.state) == before
    assert len(world.store.snapshot_seqs()) <= 2


def test_a_large_store_is_checked_for_a_while_only(world: LiveWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(100):
        world.submit(request())
    monkeypatch.setattr(check, "STEP", 10)
    assert not check.check_rows(world.store, limit_s=0.0)
    assert check.check_rows(world.store, limit_s=60.0)
