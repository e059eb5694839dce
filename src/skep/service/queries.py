"""Queries of the dashboard on the tables of the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import InputError
from skep.service.sight import Sight
from skep.service.store import JOB_COLUMNS, JobFilter, Store, StoredJob, as_json, conditions, job_row, read_held
from skep.service.values import Json, SqlRow, SqlValue

if TYPE_CHECKING:
    from skep.service.reads import Reads

DAY_S = 86400.0


def last_seq(store: Store) -> int:
    """The number of the last event."""
    found: int | None = store.reader.execute("SELECT max(seq) FROM events").fetchone()[0]
    return found or 0


def state_counts(store: Store, where: JobFilter) -> dict[str, int]:
    """Jobs by state; the states in the filter are ignored."""
    terms, values = conditions(msgspec.structs.replace(where, states=(), all=True))
    clause = f"WHERE {' AND '.join(terms)}" if terms else ""
    return dict(store.reader.execute(f"SELECT state, count(*) FROM jobs {clause} GROUP BY state", values).fetchall())


def waits(store: Store, since_s: float, sight: Sight) -> list[float]:
    """Seconds from submission to first start of jobs that started since then."""
    clause, values = sight.clause()
    query = f"SELECT start_s - submit_s FROM jobs WHERE start_s >= ? AND {clause} AND finish_s"
    rows = store.reader.execute(
        f"{query} IS NULL UNION ALL {query} >= ?", (since_s, *values, since_s, *values, since_s)
    )
    return [wait_s for (wait_s,) in rows]


def rows_of(store: Store, ids: Iterable[str], sight: Sight) -> list[StoredJob]:
    """The jobs that exist and are visible, newest first."""
    clause, values = sight.clause()
    wanted = as_json([int(job) for job in ids])
    query = f"""SELECT {", ".join(JOB_COLUMNS)} FROM jobs
        WHERE seq IN (SELECT value FROM json_each(?)) AND {clause} ORDER BY seq DESC"""
    return [job_row(row) for row in store.reader.execute(query, (wanted, *values))]


def about(store: Store, ids: Iterable[str], sight: Sight) -> dict[str, tuple[str, str, str]]:
    """Name, VC and user of jobs that exist and are visible."""
    clause, values = sight.clause()
    wanted = as_json([int(job) for job in ids if job.isdecimal()])
    query = f"SELECT seq, name, vc, user FROM jobs WHERE seq IN (SELECT value FROM json_each(?)) AND {clause}"
    return {str(seq): (name, vc, user) for seq, name, vc, user in store.reader.execute(query, (wanted, *values))}


def timeline(
    reads: Reads, since_s: float | None, until_s: float | None, limit: int, *, vc: str, user: str, node: str
) -> Json:
    """Attempts that held something between these times; if there are too many, the latest."""
    until_s = reads.clock() if until_s is None else until_s
    since_s = until_s - DAY_S if since_s is None else since_s
    if since_s >= until_s:
        raise InputError("since must be before until", hint="until is now, or earlier")
    clause, visible = reads.sight.clause("jobs.vc")
    terms = ["attempts.start_s < ?", clause]
    values: list[SqlValue] = [until_s, *visible]
    for column, wanted in (("jobs.vc", vc), ("jobs.user", user)):
        if wanted:
            terms.append(f"{column} = ?")
            values.append(wanted)
    if node:
        terms.append("EXISTS (SELECT 1 FROM json_each(attempts.nodes) WHERE value = ?)")
        values.append(node)
    columns = "job, name, vc, user, task, launch, attempts.start_s, end_s, outcome, held"
    query = f"SELECT {columns} FROM attempts JOIN jobs ON jobs.seq = job WHERE {' AND '.join(terms)} AND end_s"
    rows = reads.store.reader.execute(
        f"{query} IS NULL UNION ALL {query} > ? ORDER BY 7 DESC LIMIT ?", (*values, *values, since_s, limit + 1)
    ).fetchall()
    return {
        "since_s": since_s,
        "until_s": until_s,
        "spans": [span(row) for row in rows[:limit]],
        "is_cut": len(rows) > limit,
    }


def span(row: SqlRow) -> Json:
    job, name, vc, user, task, launch, start_s, end_s, outcome, held = row
    return {
        "job": str(job),
        "name": name,
        "vc": vc,
        "user": user,
        "task": task,
        "attempt": launch,
        "start_s": start_s,
        "end_s": end_s,
        "outcome": outcome,
        "held": read_held(held),
    }
