"""The records of studies and traces: a database of their own, in which nothing but this server writes.

The files of traces and reports are not in a backup of the store, so their records are not in the store either.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from pathlib import Path
from typing import TypeVar

import msgspec

from skep.core.errors import InputError
from skep.server.studies.records import StudyRecord, TraceRecord

NAME = "studies.db"
VERSION = 1
TABLES = {TraceRecord: "traces", StudyRecord: "studies"}

Kind = TypeVar("Kind", TraceRecord, StudyRecord)

log = logging.getLogger("skep")


class Kept:
    def __init__(self, data: Path) -> None:
        self.path = data / NAME
        self._lock = threading.Lock()
        try:
            self._db = self._open()
        except sqlite3.DatabaseError as error:
            log.warning("%s cannot be used and is replaced by a new one: %s", self.path, error)
            self.path.replace(self.path.with_suffix(".damaged"))
            self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        # SQLite would make it readable for all accounts.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise InputError(f"{self.path} was written by a newer version of Skep", hint="use that version")
        for table in TABLES.values():
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} (id TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID")
        db.execute(f"PRAGMA user_version = {VERSION}")
        return db

    def put(self, record: TraceRecord | StudyRecord) -> None:
        """Durable when this returns."""
        with self._lock:
            self._db.execute(
                f"INSERT OR REPLACE INTO {TABLES[type(record)]} VALUES (?, ?)", (record.id, msgspec.json.encode(record))
            )

    def find(self, kind: type[Kind], record_id: str) -> Kind | None:
        with self._lock:
            row = self._db.execute(f"SELECT record FROM {TABLES[kind]} WHERE id = ?", (record_id,)).fetchone()
        return msgspec.json.decode(row[0], type=kind) if row else None

    def all(self, kind: type[Kind]) -> list[Kind]:
        """The newest first."""
        with self._lock:
            rows = self._db.execute(f"SELECT record FROM {TABLES[kind]}").fetchall()
        found = [msgspec.json.decode(row[0], type=kind) for row in rows]
        return sorted(found, key=lambda record: (-record.created_s, record.id))

    def remove(self, kind: type[Kind], record_id: str) -> None:
        with self._lock:
            self._db.execute(f"DELETE FROM {TABLES[kind]} WHERE id = ?", (record_id,))

    def close(self) -> None:
        with self._lock:
            self._db.close()
