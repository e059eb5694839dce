"""The embedded store: the log, which is the truth, and tables for queries.

One connection writes, and everything of one turn is one transaction, so the log and the tables never differ. Readers
have connections of their own and never wait for the writer.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from skep.core.errors import InputError, SkepError
from skep.files.untrusted import Anchor
from skep.service.order import NEWEST, Cursor, SortOrder
from skep.service.schema import prepare, refuse_unknown
from skep.service.sight import EVERYTHING, Sight
from skep.service.values import SqlRow, SqlValue

PUT_BACK = "`skep restore FILE` puts a backup in its place and keeps this one aside"
T = TypeVar("T")
FULL_TRIES = 20
SNAPSHOT_COLUMNS = "seq, cluster_name, cluster, policy, files, state, crc"

JOB_COLUMNS = [
    *("seq", "name", "user", "vc", "state", "priority", "gpus", "submit_s", "start_s", "finish_s", "reason", "grp"),
    *("tags", "attempts", "nodes", "service_gpu_s"),
]


SEARCHED = ("name", "user", "vc", "grp", "tags")
ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "\\%_"})


class StoredJob(msgspec.Struct):
    """A job as it is listed."""

    seq: int
    name: str
    user: str
    vc: str
    state: str
    priority: int
    gpus: float
    submit_s: float
    start_s: float | None = None
    finish_s: float | None = None
    reason: str = ""
    group: str = ""
    tags: tuple[str, ...] = ()
    attempts: int = 0
    nodes: tuple[str, ...] = ()
    service_gpu_s: float = 0.0

    def values(self) -> list[SqlValue]:
        values = [getattr(self, name) for name in self.__struct_fields__]
        values[12], values[14] = as_json(self.tags), as_json(self.nodes)
        return values


class Held(msgspec.Struct, frozen=True):
    """GPUs of one node, and how many thousandths of each."""

    node: str
    gpus: tuple[int, ...]
    milli: int


class Attempt(msgspec.Struct):
    """One launch of a job (of a task, if tasks start one by one) and how it ended."""

    job: int
    task: str
    launch: int
    start_s: float | None
    end_s: float | None
    nodes: tuple[str, ...]
    gpus: float
    outcome: str
    code: int | None = None
    phrase: str = ""
    advice: str = ""
    held: tuple[Held, ...] = ()

    def values(self) -> list[SqlValue]:
        values = [getattr(self, name) for name in self.__struct_fields__]
        values[5], values[11] = as_json(self.nodes), as_json(self.held)
        return values


class Notice(msgspec.Struct):
    """A notice for users."""

    at_s: float
    kind: str
    text: str
    job: str | None = None
    who: str = ""
    seq: int = 0
    name: str = ""
    """Of the job."""


Member = tuple[str, int, str]
"""A job of the core that is one task of a job: its id, the number of that job, the task."""


class Writes(msgspec.Struct):
    """Everything that one turn writes."""

    log: list[tuple[float, bytes]] = []
    new_jobs: list[tuple[StoredJob, bytes]] = []
    members: list[Member] = []
    jobs: dict[int, StoredJob] = {}
    requests: list[tuple[bytes, int]] = []  # of jobs that were altered, with their numbers
    attempts: list[Attempt] = []
    notices: list[Notice] = []
    keys: list[tuple[str, str, str, str, float]] = []
    meta: dict[str, str] = {}


class Snapshot(msgspec.Struct):
    """A whole state, with its cluster and policy."""

    seq: int
    """The number of the last log entry that it includes."""
    cluster_name: str
    cluster: str
    policy: str
    files: dict[str, dict[str, str]]
    """Texts of files by path: those of the `policy` and those of the `cluster`."""
    state: bytes


class JobFilter(msgspec.Struct, frozen=True):
    states: tuple[str, ...] = ()
    vc: str = ""
    user: str = ""
    group: str = ""
    tag: str = ""
    name: str = ""
    all: bool = False
    """Include jobs that have ended."""
    sight: Sight = EVERYTHING
    words: tuple[str, ...] = ()
    """Each word must be in the id, name, user, VC, group or tags."""
    ids: tuple[str, ...] = ()


class Damaged(SkepError):
    """The stored data is damaged."""


class Store:
    """`path` is a file, created if it does not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mark = ""
        """The positions of the clocks, written with the next write; empty: nothing is written."""
        self.make_room: Callable[[], bool] = lambda: False
        """Called if the disk is full; true if another attempt may succeed."""
        self._local = threading.local()
        self._readers: list[sqlite3.Connection] = []
        try:
            if path.exists() and path.stat().st_size:
                refuse_unknown(path)
            self.db = self._connect()
            self.checkpointer = self._connect()
            prepare(self.db, path)
            self.log_seq = self._last_entry()
            self.anchor = Anchor([path, path.with_name(f"{path.name}-wal")])
        except sqlite3.Error as error:
            is_damaged = not isinstance(error, sqlite3.OperationalError)
            hint = PUT_BACK if is_damaged else "is the disk full, or not ours?"
            raise InputError(f"{path}: cannot be used as a store: {error}", hint=hint) from error

    def _last_entry(self) -> int:
        """After a long idle time the whole log may have been deleted, and only a snapshot is left."""
        query = "SELECT max(seq) FROM (SELECT seq FROM log UNION ALL SELECT seq FROM snapshots UNION ALL SELECT 0)"
        found: int = self.db.execute(query).fetchone()[0]
        return found

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None, timeout=5.0)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA wal_autocheckpoint=0")  # `checkpoint` does it, outside any transaction
        db.execute("PRAGMA synchronous=FULL")  # a commit is durable when it returns
        return db

    # Writing, by one thread -------------------------------------------------------------------------------------

    def commit(self, writes: Writes) -> None:
        """Write atomically; durable when this returns."""
        self._in_transaction(lambda: self._write(writes))
        self.anchor.check()
        self.log_seq += len(writes.log)

    def _in_transaction(self, write: Callable[[], T]) -> T:
        """A full disk may be full no longer when the job that filled it has ended."""
        for _ in range(FULL_TRIES):
            try:
                with Transaction(self.db):
                    return write()
            except sqlite3.OperationalError as error:
                if not is_full(error) or not self.make_room():
                    raise
        with Transaction(self.db):
            return write()

    def _write(self, writes: Writes) -> None:
        db = self.db
        first = self.log_seq + 1
        entries = [(first + n, at_s, entry, checksum(first + n, entry)) for n, (at_s, entry) in enumerate(writes.log)]
        db.executemany("INSERT INTO log (seq, at_s, entry, crc) VALUES (?, ?, ?, ?)", entries)
        marks = ", ".join("?" * (len(JOB_COLUMNS) + 1))
        db.executemany(f"INSERT INTO jobs VALUES ({marks})", [(*row.values(), data) for row, data in writes.new_jobs])
        db.executemany("INSERT INTO members VALUES (?, ?, ?)", writes.members)
        updates = ", ".join(f"{name}=?" for name in JOB_COLUMNS[1:])
        db.executemany(
            f"UPDATE jobs SET {updates} WHERE seq=?", [(*row.values()[1:], row.seq) for row in writes.jobs.values()]
        )
        db.executemany("UPDATE jobs SET request=? WHERE seq=?", writes.requests)
        db.executemany(
            "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [each.values() for each in writes.attempts],
        )
        for notice in writes.notices:
            found = db.execute(
                "INSERT INTO events (at_s, kind, job, who, text) VALUES (?, ?, ?, ?, ?)",
                (notice.at_s, notice.kind, notice.job, notice.who, notice.text),
            )
            notice.seq = found.lastrowid or 0
        db.executemany("INSERT INTO keys VALUES (?, ?, ?, ?, ?)", writes.keys)
        db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(writes.meta.items()))
        if self.mark:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('clock', ?)", (self.mark,))

    def save_snapshot(self, saved: Snapshot) -> None:
        """Store a snapshot at the present end of the log; the previous one is kept too."""
        self._in_transaction(lambda: self._save_snapshot(saved))

    def _save_snapshot(self, saved: Snapshot) -> None:
        words = [saved.cluster_name, saved.cluster, saved.policy, as_json(saved.files)]
        crc = checksum(saved.seq, *(word.encode() for word in words), saved.state)
        self.db.execute(
            f"INSERT OR REPLACE INTO snapshots ({SNAPSHOT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (saved.seq, *words, saved.state, crc),
        )
        self.db.execute("DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)")

    def forget(self, before_s: float) -> list[str]:
        """Delete jobs that ended before that, and the log as far as snapshots cover it. Returns the ids of those
        jobs."""
        return self._in_transaction(lambda: self._forget(before_s))

    def _forget(self, before_s: float) -> list[str]:
        gone = [row[0] for row in self.db.execute("SELECT seq FROM jobs WHERE finish_s < ?", (before_s,))]
        self.db.executemany("DELETE FROM jobs WHERE seq=?", [(seq,) for seq in gone])
        for table in ("attempts", "members"):
            self.db.executemany(f"DELETE FROM {table} WHERE job=?", [(seq,) for seq in gone])
        self.db.execute("DELETE FROM events WHERE at_s < ?", (before_s,))
        self.db.execute("DELETE FROM keys WHERE at_s < ?", (before_s,))
        # As far as both snapshots cover it: if one is damaged, the other and the log are used.
        both = "SELECT iif(count(*) = 2, min(seq), 0) FROM snapshots"
        self.db.execute(f"DELETE FROM log WHERE at_s < ? AND seq <= ({both})", (before_s,))
        return [str(seq) for seq in gone]

    # Recovery ---------------------------------------------------------------------------------------------------

    def snapshot_seqs(self) -> list[int]:
        """The newest first."""
        return [seq for (seq,) in self.db.execute("SELECT seq FROM snapshots ORDER BY seq DESC")]

    def snapshot(self, seq: int) -> Snapshot:
        found = self.db.execute(f"SELECT {SNAPSHOT_COLUMNS} FROM snapshots WHERE seq=?", (seq,)).fetchone()
        _, *words, state, crc = found
        if crc != checksum(seq, *(word.encode() for word in words), state):
            raise Damaged(f"the snapshot at entry {seq} is not as it was written")
        name, cluster, policy, files = words
        return Snapshot(seq, name, cluster, policy, msgspec.json.decode(files, type=dict[str, dict[str, str]]), state)

    def drop_snapshots(self, seqs: list[int]) -> None:
        self.db.executemany("DELETE FROM snapshots WHERE seq=?", [(seq,) for seq in seqs])

    def entries(self, after: int = 0) -> Iterator[bytes]:
        rows = self.db.execute("SELECT seq, entry, crc FROM log WHERE seq > ? ORDER BY seq", (after,))
        last = after
        for last, (seq, entry, crc) in enumerate(rows, after + 1):
            if seq != last:
                raise Damaged(f"entry {last} of its log is missing")
            if crc != checksum(seq, entry):
                raise Damaged(f"entry {last} of its log is not as it was written")
            yield entry
        if last < self.log_seq:
            raise Damaged(f"entry {last + 1} of its log is missing")

    def first_entry(self) -> int:
        found: int | None = self.db.execute("SELECT min(seq) FROM log").fetchone()[0]
        return self.log_seq + 1 if found is None else found

    def open_requests(self) -> list[tuple[StoredJob, bytes]]:
        columns = ", ".join(JOB_COLUMNS)
        rows = self.db.execute(f"SELECT {columns}, request FROM jobs WHERE finish_s IS NULL ORDER BY seq")
        return [(job_row(row[:-1]), row[-1]) for row in rows]

    # Reading, from any thread -----------------------------------------------------------------------------------

    @property
    def reader(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = self._connect()
            db.execute("PRAGMA query_only=1")
            self._readers.append(db)
        return db

    def meta(self, name: str) -> str | None:
        found = self.reader.execute("SELECT value FROM meta WHERE name=?", (name,)).fetchone()
        return found[0] if found else None

    def own_id(self) -> str:
        """What distinguishes this store from all others; it stays the same in backups. Written at the first start."""
        return self.meta("store") or secrets.token_hex(8)

    def jobs(self, where: JobFilter, limit: int, after: Cursor | None, order: SortOrder = NEWEST) -> list[StoredJob]:
        return [row for row, _ in self.sorted_jobs(where, limit, after, order)]

    def sorted_jobs(
        self, where: JobFilter, limit: int, after: Cursor | None, order: SortOrder
    ) -> list[tuple[StoredJob, Cursor]]:
        """Jobs, each with its position in the order."""
        terms, values = conditions(where)
        if after is not None:
            term, more = order.behind(after)
            terms.append(term)
            values += more
        clause = f"WHERE {' AND '.join(terms)}" if terms else ""
        query = f"SELECT {order.column}, {', '.join(JOB_COLUMNS)} FROM jobs {clause} {order.clause} LIMIT ?"
        rows = self.reader.execute(query, (*values, limit))
        return [(job_row(row[1:]), Cursor(row[1], row[0], order.now_s)) for row in rows]

    def job(self, seq: int) -> tuple[StoredJob, bytes] | None:
        query = f"SELECT {', '.join(JOB_COLUMNS)}, request FROM jobs WHERE seq=?"
        row = self.reader.execute(query, (seq,)).fetchone()
        return (job_row(row[:-1]), row[-1]) if row else None

    def requests(self, seqs: Iterable[int]) -> dict[int, bytes]:
        query = "SELECT seq, request FROM jobs WHERE seq IN (SELECT value FROM json_each(?))"
        return dict(self.reader.execute(query, (as_json(list(seqs)),)).fetchall())

    def owner(self, core_id: str) -> tuple[str, str]:
        """The job that a job of the core belongs to, and the task that it consists of; itself and an empty text for a
        gang."""
        found = self.reader.execute("SELECT job, task FROM members WHERE id=?", (core_id,)).fetchone()
        return (str(found[0]), found[1]) if found else (core_id, "")

    def latest(self, name: str, sight: Sight = EVERYTHING) -> int | None:
        clause, values = sight.clause()
        found = self.reader.execute(f"SELECT max(seq) FROM jobs WHERE name=? AND {clause}", (name, *values)).fetchone()
        return found[0] if found else None

    def attempts(self, seq: int) -> list[Attempt]:
        rows = self.reader.execute("SELECT * FROM attempts WHERE job=? ORDER BY launch, task", (seq,))
        return [attempt_row(row) for row in rows]

    def notices(self, after: int, job: str | None, limit: int, sight: Sight = EVERYTHING) -> list[Notice]:
        clause, values = events_of(job, sight)
        name = "coalesce((SELECT name FROM jobs WHERE jobs.seq = CAST(job AS INTEGER)), '')"
        query = f"""SELECT at_s, kind, text, job, who, seq, {name} FROM events
            WHERE seq > ? AND {clause} ORDER BY seq LIMIT ?"""
        return [Notice(*row) for row in self.reader.execute(query, (after, *values, limit))]

    def first_notice(self) -> int | None:
        found: int | None = self.reader.execute("SELECT min(seq) FROM events").fetchone()[0]
        return found

    def last_notice(self, back: int, job: str | None, sight: Sight = EVERYTHING) -> int:
        """The number of the event after which there are `back` events; 0 if there are fewer."""
        clause, values = events_of(job, sight)
        query = f"SELECT seq FROM events WHERE {clause} ORDER BY seq DESC LIMIT 1 OFFSET ?"
        found = self.reader.execute(query, (*values, back)).fetchone()
        return found[0] if found else 0

    def vcs_of(self, jobs: Iterable[str]) -> dict[str, str]:
        """The VC of each of these jobs that exists, by id."""
        wanted = msgspec.json.encode([int(job) for job in jobs]).decode()
        query = "SELECT seq, vc FROM jobs WHERE seq IN (SELECT value FROM json_each(?))"
        return {str(seq): vc for seq, vc in self.reader.execute(query, (wanted,))}

    def key(self, who: str, key: str) -> tuple[str, str] | None:
        """(digest, ids) of the submission that had this key."""
        found: tuple[str, str] | None = self.db.execute(
            "SELECT digest, ids FROM keys WHERE who=? AND key=?", (who, key)
        ).fetchone()
        return found

    def usage(
        self, column: str, since_s: float, until_s: float, sight: Sight = EVERYTHING
    ) -> list[tuple[str, int, float]]:
        """(user or VC, jobs, GPU-seconds held between these times), largest first."""
        clause, values = sight.clause("jobs.vc")
        query = f"""SELECT jobs.{column}, count(DISTINCT job), sum(attempts.gpus * (end - begin)) FROM (
                SELECT job, gpus, max(start_s, ?) AS begin, min(coalesce(end_s, ?), ?) AS end
                FROM attempts WHERE start_s IS NOT NULL) AS attempts
            JOIN jobs ON jobs.seq = job WHERE end > begin AND {clause} GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT 1000"""
        return self.reader.execute(query, (since_s, until_s, until_s, *values)).fetchall()

    def checkpoint(self) -> None:
        """Move committed data from the journal into the tables. From a thread that may wait: the disk is slow."""
        self.checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def backup(self, path: Path) -> None:
        """A consistent copy while the server runs."""
        with sqlite3.connect(path) as copy:
            self.reader.backup(copy)
        copy.close()

    def close(self) -> None:
        for db in (*self._readers, self.checkpointer, self.db):
            db.close()


def checksum(seq: int, *parts: bytes) -> int:
    """The checksum of a row with this number: a row in the place of another does not match either."""
    crc = seq & 0xFFFFFFFF
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


class Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db

    def __enter__(self) -> None:
        self.db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *rest: object) -> None:
        try:
            if kind is None:
                self.db.execute("COMMIT")
        finally:
            if self.db.in_transaction:  # SQLite itself ends it after some errors
                self.db.execute("ROLLBACK")


def is_full(error: sqlite3.Error) -> bool:
    """SQLite reports a disk without space as full, and at some calls as an error of input or output."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


def conditions(where: JobFilter) -> tuple[list[str], list[SqlValue]]:
    terms: list[str] = []
    values: list[SqlValue] = []
    if where.states:
        terms.append(f"state IN ({', '.join('?' * len(where.states))})")
        values += where.states
    elif not where.all:
        terms.append("finish_s IS NULL")
    if not where.sight.is_whole:
        clause, visible = where.sight.clause()
        terms.append(clause)
        values += visible
    for column, value in (("vc", where.vc), ("user", where.user), ("grp", where.group), ("name", where.name)):
        if value:
            terms.append(f"{column}=?")
            values.append(value)
    if where.tag:
        terms.append("EXISTS (SELECT 1 FROM json_each(tags) WHERE value=?)")
        values.append(where.tag)
    if where.ids:
        terms.append("seq IN (SELECT value FROM json_each(?))")
        values.append(as_json([int(job) for job in where.ids]))
    for word in where.words:
        # User input is plain text, including % and _.
        like = f"%{word.translate(ESCAPED)}%"
        terms.append(f"({' OR '.join(f'{column} LIKE ? ESCAPE ?' for column in SEARCHED)} OR seq = ?)")
        values += [*(each for _ in SEARCHED for each in (like, "\\")), int(word) if is_id(word) else -1]
    return terms, values


def is_id(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 16


def events_of(job: str | None, sight: Sight) -> tuple[str, list[SqlValue]]:
    """A term for a WHERE clause: events of one job, of all jobs in sight, or all events."""
    if job is not None:
        return "job=?", [job]
    if sight.is_whole:
        return "1", []
    clause, values = sight.clause()
    return f"job IS NOT NULL AND CAST(job AS INTEGER) IN (SELECT seq FROM jobs WHERE {clause})", list(values)


def job_row(row: SqlRow) -> StoredJob:
    values = list(row)
    values[12], values[14] = tuple(msgspec.json.decode(values[12])), tuple(msgspec.json.decode(values[14]))
    return StoredJob(*values)


read_held = msgspec.json.Decoder(tuple[Held, ...]).decode


def attempt_row(row: SqlRow) -> Attempt:
    values = list(row)
    values[5] = tuple(msgspec.json.decode(values[5]))
    values[11] = read_held(values[11])
    return Attempt(*values)


def as_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
