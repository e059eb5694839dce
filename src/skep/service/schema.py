"""The tables of the store, and the upgrade of older stores.

`STEPS[n]` upgrades a store from format `n` to format `n + 1`; a new store takes all of them. A released step is never
changed: to change a table, append a step. Each step is one transaction with its number, so a crash between two of them
leaves a store of the format in between.

The format also covers the content of blobs: entries of the log, snapshots and requests. A field that is added there
with a default needs no step, unless older programs must not ignore it; then an empty step raises the number.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from skep.core.errors import InputError
from skep.files.text import shorten

APPLICATION = 0x536B6570
"""Marks the file as a store of Skep (`Skep`), to distinguish it from other SQLite files."""

TABLES = f"""
PRAGMA application_id={APPLICATION};
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE log (seq INTEGER PRIMARY KEY, at_s REAL NOT NULL, entry BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, cluster_name TEXT NOT NULL, cluster TEXT NOT NULL,
    policy TEXT NOT NULL, files TEXT NOT NULL, state BLOB NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE jobs (seq INTEGER PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, vc TEXT NOT NULL,
    state TEXT NOT NULL, priority INTEGER NOT NULL, gpus REAL NOT NULL, submit_s REAL NOT NULL, start_s REAL,
    finish_s REAL, reason TEXT NOT NULL, grp TEXT NOT NULL, tags TEXT NOT NULL, attempts INTEGER NOT NULL,
    nodes TEXT NOT NULL, service_gpu_s REAL NOT NULL, request BLOB NOT NULL);
CREATE INDEX jobs_open ON jobs (seq) WHERE finish_s IS NULL;
CREATE INDEX jobs_name ON jobs (name, seq);
CREATE INDEX jobs_finish ON jobs (finish_s) WHERE finish_s IS NOT NULL;
CREATE TABLE members (id TEXT PRIMARY KEY, job INTEGER NOT NULL, task TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX members_job ON members (job);
CREATE TABLE attempts (job INTEGER NOT NULL, task TEXT NOT NULL, launch INTEGER NOT NULL, start_s REAL, end_s REAL,
    nodes TEXT NOT NULL, gpus REAL NOT NULL, outcome TEXT NOT NULL, code INTEGER, phrase TEXT NOT NULL,
    advice TEXT NOT NULL, held TEXT NOT NULL,
    PRIMARY KEY (job, task, launch)) WITHOUT ROWID;
CREATE INDEX attempts_end ON attempts (end_s);
CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, kind TEXT NOT NULL, job TEXT,
    who TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX events_job ON events (job, seq) WHERE job IS NOT NULL;
CREATE TABLE keys (who TEXT NOT NULL, key TEXT NOT NULL, digest TEXT NOT NULL, ids TEXT NOT NULL, at_s REAL NOT NULL,
    PRIMARY KEY (who, key)) WITHOUT ROWID;
"""

STEPS: tuple[str, ...] = (TABLES,)
VERSION = len(STEPS)


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Upgrade a store that `refuse_unknown` has accepted. A copy of an older one is kept."""
    version: int = db.execute("PRAGMA user_version").fetchone()[0]
    if version == VERSION:
        return
    if version > 0:
        keep_copy(db, path, version)
    for number, step in enumerate(STEPS[version:], version + 1):
        take_step(db, number, step)


def take_step(db: sqlite3.Connection, number: int, step: str) -> None:
    """Upgrade to that format, atomically."""
    try:
        db.executescript(f"BEGIN IMMEDIATE; {step}")
        db.execute(f"PRAGMA user_version={number}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def refuse_unknown(path: Path) -> None:
    """Raises if the file is not a store, was written by a newer program, or has anything beside what a store has, such
    as a trigger, which would run inside our transactions. It is not changed."""
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        version, application = (
            db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")
        )
        found = schema_of(db)
    finally:
        db.close()
    if version > VERSION and application == APPLICATION:
        raise InputError(
            f"{path} was written by a newer Skep (format {version}; this one knows formats up to {VERSION})",
            hint="use that version, or go back as docs/upgrade.md says",
        )
    hint = "put the store back, or use another --data"
    expected = made_by(version) if 0 <= version <= VERSION else set()
    is_begun = version == 0 and not found  # a crash during its creation
    if not is_begun and (application != APPLICATION or not found & expected):
        raise InputError(f"{path} is not a store of Skep", hint=hint)
    if differing := sorted(found ^ expected):
        kind, name, *_ = differing[0]
        how = "has no" if differing[0] in expected else "has a foreign"
        raise InputError(f"{path} is not as Skep makes a store: it {how} {kind} {shorten(name)}", hint=hint)


Entry = tuple[str, str, str, str]
"""What SQLite notes of a table, index, view or trigger: its kind, its name, its table, the statement that made it."""
ENTRIES_READ = 1000


def schema_of(db: sqlite3.Connection) -> set[Entry]:
    rows = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchmany(ENTRIES_READ)
    return {(str(kind), str(name), str(table), " ".join(str(sql).split())) for kind, name, table, sql in rows}


def made_by(version: int) -> set[Entry]:
    """The schema of a store of this format."""
    db = sqlite3.connect(":memory:")
    try:
        for step in STEPS[:version]:
            db.executescript(step)
        return schema_of(db)
    finally:
        db.close()


def copy_path(path: Path, version: int) -> Path:
    return path.with_name(f"{path.name}.format-{version}")


def keep_copy(db: sqlite3.Connection, path: Path, version: int) -> None:
    """A copy for going back to the older program, written atomically."""
    target = copy_path(path, version)
    aside = target.with_name(f".{target.name}.part")
    aside.unlink(missing_ok=True)
    os.close(os.open(aside, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
    copy = sqlite3.connect(aside)
    try:
        db.backup(copy)
    finally:
        copy.close()
    aside.replace(target)
