"""Checks at the start that the store can be read, so that damage is reported then and not by a later request.

SQLite's own check finds damaged pages and indexes; every row that a request may need is decoded; and the tables must
have the same open jobs as the log. The log and the snapshots have checksums, which recovery verifies.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from skep.core.errors import InputError
from skep.core.state import State
from skep.jobs.request import Request
from skep.service.book import Book, owner_of
from skep.service.clock import Mark
from skep.service.store import JOB_COLUMNS, PUT_BACK, Attempt, Notice, Store, StoredJob, attempt_row, job_row

CHECK_S = 5.0
"""The time limit for checking a large store, newest rows first."""
NUMBER_MAX = 10**15
TIME_MAX_S = 1e11
"""The year 5138: a clock that follows a later time would never agree with that of the machine."""
TIMES = {"at_s", "submit_s", "start_s", "finish_s", "end_s"}
"""Fields of rows: no calendar has a later time."""
STEP = 10_000
"""SQLite instructions between two checks of the time."""


def check_rows(store: Store, limit_s: float = CHECK_S) -> bool:
    """True if everything was checked in that time; raises if something cannot be read."""
    has_whole_pages = within(store, limit_s / 2, _pages)
    return within(store, limit_s / 2, _rows) and has_whole_pages


def within(store: Store, limit_s: float, check: Callable[[Store], None]) -> bool:
    """True if a check was completed in that time."""
    by_s = time.monotonic() + limit_s
    store.db.set_progress_handler(lambda: int(time.monotonic() > by_s), STEP)
    try:
        check(store)
    except sqlite3.Error as error:
        if str(error) == "interrupted":
            return False
        raise damaged(store, str(error)) from error
    finally:
        store.db.set_progress_handler(None, 0)
    return True


def _pages(store: Store) -> None:
    (found,) = store.db.execute("PRAGMA integrity_check(1)").fetchone()
    if found != "ok":
        raise damaged(store, found.removeprefix("*** in database main ***\n"))


def _rows(store: Store) -> None:
    for what, decode_all in CHECKS:
        try:
            for _ in decode_all(store.db):
                pass
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError) as error:
            raise damaged(store, f"{what}: {error}") from error


def damaged(store: Store, found: str) -> InputError:
    return InputError(f"{store.path} is damaged: {' '.join(found.split())}", hint=PUT_BACK)


def _jobs(db: sqlite3.Connection) -> Iterator[None]:
    decode = msgspec.json.Decoder(Request).decode
    for row in db.execute(f"SELECT {', '.join(JOB_COLUMNS)}, request FROM jobs ORDER BY seq DESC"):
        validate(job_row(row[:-1]), StoredJob)
        decode(row[-1])
        yield


def _attempts(db: sqlite3.Connection) -> Iterator[None]:
    for row in db.execute("SELECT * FROM attempts ORDER BY job DESC"):
        validate(attempt_row(row), Attempt)
        yield


def _events(db: sqlite3.Connection) -> Iterator[None]:
    for row in db.execute("SELECT at_s, kind, text, job, who, seq FROM events ORDER BY seq DESC"):
        validate(Notice(*row), Notice)
        yield


def _keys(db: sqlite3.Connection) -> Iterator[None]:
    for who, key, digest, ids, at_s in db.execute("SELECT who, key, digest, ids, at_s FROM keys"):
        msgspec.convert((who, key, digest, at_s), tuple[str, str, str, float])
        validate(msgspec.json.decode(ids), list[str])
        yield


def _meta(db: sqlite3.Connection) -> Iterator[None]:
    for row in db.execute("SELECT name, value FROM meta"):
        name, value = msgspec.convert(row, tuple[str, str])
        if name in ("next_job", "epoch"):
            in_range(int(value), NUMBER_MAX)
        elif name == "clock":
            in_range(msgspec.json.decode(value, type=Mark).at_s, TIME_MAX_S)
        yield


def _numbers(db: sqlite3.Connection) -> Iterator[None]:
    """Numbers that leave room for the next ones."""
    for table in ("log", "snapshots", "jobs", "events"):
        for number in db.execute(f"SELECT min(seq), max(seq) FROM {table}").fetchone():
            in_range(number or 0, NUMBER_MAX)
        yield
    for table, seq in db.execute("SELECT name, seq FROM sqlite_sequence"):
        msgspec.convert((table, seq), tuple[Literal["events"], int])
        in_range(seq, NUMBER_MAX)
        yield


def in_range(value: float, most: float) -> None:
    if not 0 <= value <= most:  # neither is a NaN
        raise ValueError(f"{value:g} is not between 0 and {most:g}")


CHECKS: tuple[tuple[str, Callable[[sqlite3.Connection], Iterator[None]]], ...] = (
    ("a row of jobs", _jobs),
    ("a row of attempts", _attempts),
    ("a row of events", _events),
    ("a row of keys", _keys),
    ("a row of meta", _meta),
    ("the numbers of rows", _numbers),
)


# Any type that msgspec knows.
def validate(value: Any, kind: Any) -> None:
    """SQLite does not enforce types: a damaged row may have text in place of a number."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    msgspec.convert(value, kind)
    for name in TIMES.intersection(value) if isinstance(value, dict) else ():
        in_range(value[name] or 0.0, TIME_MAX_S)


def check_open_jobs(store: Store, state: State, book: Book) -> None:
    """The tables and the log are written together, so they must have the same open jobs."""
    if not 0 <= state.now_s <= TIME_MAX_S:
        raise damaged(store, f"its log ends at {state.now_s:g} s")
    open_jobs = {owner_of(state, job.id) for job in state.jobs.values() if not job.state.is_final}
    for job_id in sorted(open_jobs ^ book.records.keys(), key=int):
        where = "log, but not in the table of jobs" if job_id in open_jobs else "table of jobs, but not in the log"
        raise damaged(store, f"job {job_id} is open in the {where}")
