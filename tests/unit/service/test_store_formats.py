"""Stores of other formats: an older one is brought up to date and kept, a newer one is refused and left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.core.errors import InputError
from skep.core.timers import LIMIT
from skep.service import schema
from skep.service.recover import recover
from skep.service.schema import VERSION, copy_path, take_step
from skep.service.store import JobFilter, Store

KEPT = Path(__file__).parent / "data"
"""`store-N.sql` is the dump of a store that a program of format N wrote: `python tests/unit/service/dump_store.py`."""


def old_store(folder: Path, version: int) -> Path:
    path = folder / "skep.db"
    db = sqlite3.connect(path)
    db.executescript((KEPT / f"store-{version}.sql").read_text())
    db.close()
    return path


def tables(path: Path) -> list[tuple[str, ...]]:
    db = sqlite3.connect(path)
    found = [
        row for name in table_names(db) for row in db.execute("SELECT ?, * FROM pragma_table_info(?)", (name,) * 2)
    ]
    indexes = db.execute("SELECT name, tbl_name FROM sqlite_master WHERE type='index' ORDER BY name").fetchall()
    marks = [db.execute(f"PRAGMA {name}").fetchone() for name in ("user_version", "application_id")]
    db.close()
    return [*found, *indexes, *marks]


def table_names(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")]


def test_a_store_of_format_1_goes_on(tmp_path: Path) -> None:
    path = old_store(tmp_path, 1)
    world = LiveWorld(tmp_path)
    rows = {row.name: row.state for row in world.store.jobs(JobFilter(all=True), 100, None)}
    assert rows == {
        "first": "succeeded",
        "second": "failed",
        "third": "running",
        "fourth": "pending",
        "last": "pending",
    }
    assert [timer.kind for timer in world.writer.state.timers.all()] == [LIMIT]
    assert world.submit(request("new")) == ["6"]
    world.end("3")
    assert [world.state(job) for job in ("3", "4", "5", "6")] == ["succeeded", "running", "running", "running"]
    assert snapshot(recover(world.store)[0]) == snapshot(world.writer.state)
    world.store.close()
    fresh = tmp_path / "fresh.db"
    Store(fresh).close()
    assert tables(path) == tables(fresh)


@pytest.fixture
def two_more_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it may be two formats later."""
    more = ("CREATE TABLE notes (text TEXT NOT NULL)", "ALTER TABLE notes ADD COLUMN who TEXT NOT NULL DEFAULT 'ann'")
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, *more))
    monkeypatch.setattr(schema, "VERSION", VERSION + 2)


@pytest.mark.usefixtures("two_more_formats")
def test_the_older_store_is_kept_for_the_older_program(tmp_path: Path) -> None:
    path = old_store(tmp_path, 1)
    before = tables(path)
    Store(path).close()
    assert [row[2] for row in tables(path) if row[0] == "notes"] == ["text", "who"]
    copy = copy_path(path, 1)
    assert tables(copy) == before
    assert copy.stat().st_mode & 0o777 == 0o600
    Store(path).close()
    assert sorted(each.name for each in tmp_path.iterdir() if "-" not in each.suffix) == ["skep.db"]
    assert copy.exists()


@pytest.mark.usefixtures("two_more_formats")
@pytest.mark.parametrize("reached", [1, 2])
def test_a_crash_between_two_steps_is_gone_on_from(tmp_path: Path, reached: int) -> None:
    path = old_store(tmp_path, 1)
    db = sqlite3.connect(path, isolation_level=None)
    for number, step in enumerate(schema.STEPS[1:reached], 2):
        take_step(db, number, step)
    db.close()
    world = LiveWorld(tmp_path)
    assert world.state("3") == "running"
    assert world.store.db.execute("PRAGMA user_version").fetchone() == (VERSION + 2,)
    world.store.close()


def test_a_newer_store_is_refused_in_a_line_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version={VERSION + 3}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(InputError) as raised:
        Store(path)
    assert str(raised.value) == (
        f"{path} was written by a newer Skep (format {VERSION + 3}; this one knows formats up to {VERSION})"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize("lines", ["CREATE TABLE tokens (id)", "CREATE TABLE log (x); PRAGMA user_version=1"])
def test_another_sqlite_file_is_not_taken_for_a_store(tmp_path: Path, lines: str) -> None:
    path = tmp_path / "skep.db"
    db = sqlite3.connect(path)
    db.executescript(lines)
    db.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="is not a store of Skep"):
        Store(path)
    assert path.read_bytes() == before


def test_a_store_that_was_only_begun_is_made(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.close()
    assert path.stat().st_size
    Store(path).close()
    assert "log" in {row[0] for row in tables(path)}
