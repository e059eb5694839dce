"""A backup that somebody has prepared: refused with one line, wherever it is opened, and nothing is changed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.errors import InputError
from skep.service.copy import read_copy
from skep.service.restore import put_back
from skep.service.store import Store

SCHEMA = {
    "trigger": "CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM jobs; END",
    "view": "CREATE VIEW v AS SELECT * FROM jobs",
    "view for a table": "ALTER TABLE keys RENAME TO k; CREATE VIEW keys AS SELECT * FROM k",
    "virtual table": "CREATE VIRTUAL TABLE words USING fts5(text)",
    "table": "CREATE TABLE more (a)",
    "table with lines in its name": "CREATE TABLE 'a\n\x1b[31mb' (a)",
    "column": "ALTER TABLE jobs ADD COLUMN more TEXT DEFAULT 1",
    "column that is computed": "ALTER TABLE keys ADD COLUMN more GENERATED ALWAYS AS (length(who)) VIRTUAL",
    "index": "CREATE UNIQUE INDEX one ON jobs (user)",
    "missing index": "DROP INDEX jobs_open",
    "missing table": "DROP TABLE keys",
    "table with a check": "DROP TABLE keys; CREATE TABLE keys (who TEXT NOT NULL CHECK (length(who) < 3), key TEXT)",
    "statistics": "ANALYZE",
}
NUMBERS = {
    "next event": "UPDATE sqlite_sequence SET seq=9223372036854775807",
    "job": "UPDATE jobs SET seq=9223372036854775807",
    "job below zero": """INSERT INTO jobs
        SELECT -5, name, user, vc, 'succeeded', priority, gpus, submit_s, start_s, 1.0,
        reason, grp, tags, attempts, nodes, service_gpu_s, request FROM jobs""",
    "log": "UPDATE log SET seq=9223372036854775807 WHERE seq=(SELECT max(seq) FROM log)",
    "next job": "INSERT OR REPLACE INTO meta VALUES ('next_job', '99999999999999999999')",
    "epoch": "INSERT OR REPLACE INTO meta VALUES ('epoch', '9999999999999999999')",
    "epoch that is none": "INSERT OR REPLACE INTO meta VALUES ('epoch', 'x')",
    "clock": """INSERT OR REPLACE INTO meta VALUES
        ('clock', '{"boot": "", "steady_s": 0, "at_s": 1e300, "jumps": []}')""",
    "clock that is none": "INSERT OR REPLACE INTO meta VALUES ('clock', '[]')",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    world = LiveWorld(data)
    world.submit(request("first"))
    world.store.backup(tmp_path / "copy.db")
    world.store.close()
    return data


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(data: Path, file: Path) -> str:
    before = files(data)
    with pytest.raises(InputError) as raised:
        put_back(file, data, "now")
    assert files(data) == before
    assert str(file) in str(raised.value)
    assert str(raised.value).isprintable()
    return str(raised.value)


@pytest.mark.parametrize("what", SCHEMA)
def test_a_store_with_another_schema(data: Path, what: str) -> None:
    file = data.with_name("copy.db")
    with sqlite3.connect(file) as db:
        db.executescript(SCHEMA[what])
    db.close()
    assert "is not as Skep makes a store: it has " in refused(data, file)
    for opens in (Store, read_copy):  # a server's own store, and a forecast
        with pytest.raises(InputError, match="is not as Skep makes a store"):
            opens(file)


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_that_leave_no_next_one(data: Path, what: str) -> None:
    file = data.with_name("copy.db")
    with sqlite3.connect(file) as db:
        db.executescript(NUMBERS[what])
    db.close()
    assert "damaged" in refused(data, file)


def test_a_schema_that_names_pages_of_others(data: Path) -> None:
    """Two tables on the same pages: what is written to one is written to the other."""
    file = data.with_name("copy.db")
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA writable_schema=1")
        db.execute(
            "UPDATE sqlite_master SET rootpage=(SELECT rootpage FROM sqlite_master WHERE name='keys') WHERE name='meta'"
        )
    db.close()
    refused(data, file)


def a_folder(file: Path) -> None:
    file.mkdir()


def a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def a_hole(file: Path) -> None:
    """Far more than the disk has, on no blocks at all."""
    with file.open("wb") as out:
        out.write(b"SQLite format 3\0")
        out.truncate(1 << 43)


@pytest.mark.parametrize("make", [a_folder, a_device, a_hole, os.mkfifo])
def test_what_is_no_file_or_too_large(data: Path, make: Callable[[Path], None]) -> None:
    file = data.with_name("other.db")
    make(file)
    refused(data, file)
