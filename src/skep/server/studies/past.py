"""The jobs of this cluster as a trace: submission times and run times."""

from __future__ import annotations

import sqlite3

import msgspec

from skep.core.errors import InputError
from skep.jobs.core import task_of, to_core
from skep.jobs.request import Request
from skep.server.studies.records import PastJobs
from skep.service.values import SqlValue
from skep.traces.trace import Trace, TraceJob

JOBS_MAX = 200_000
NONE = "no job of this cluster has run and ended in that time"


def past_vcs(db: sqlite3.Connection, past: PastJobs) -> list[str]:
    """The VCs of these jobs. Raises if there is no such job."""
    clause, values = clause_of(past)
    found = [vc for (vc,) in db.execute(f"SELECT DISTINCT vc FROM jobs WHERE {clause} ORDER BY vc", values)]
    if not found:
        raise InputError(NONE, hint="choose another time")
    return found


def past_trace(db: sqlite3.Connection, past: PastJobs) -> Trace:
    """The work of a job is the time it ran, all attempts together; jobs that it needed are left out, because they may
    be older."""
    clause, values = clause_of(past)
    chosen = f"SELECT seq, submit_s, request FROM jobs WHERE {clause} ORDER BY submit_s, seq LIMIT {JOBS_MAX}"
    ran = dict(
        ((job, task), seconds)
        for job, task, seconds in db.execute(
            "SELECT job, task, sum(end_s - start_s) FROM attempts WHERE end_s > start_s GROUP BY job, task"
        )
    )
    jobs = [
        TraceJob(submit_s, ran[seq, task], spec)
        for seq, submit_s, data in db.execute(chosen, values)
        for request in [msgspec.json.decode(data, type=Request)]
        for spec in to_core(request, str(seq))
        if (seq, task := task_of(spec, request)) in ran
    ]
    if not jobs:
        raise InputError(NONE, hint="choose another time")
    return Trace("history of this cluster", "native", jobs)


def clause_of(past: PastJobs) -> tuple[str, list[SqlValue]]:
    visible, vcs = past.sight.clause()
    clause = f"submit_s >= ? AND submit_s <= ? AND finish_s <= ? AND start_s IS NOT NULL AND {visible}"
    return clause, [past.since_s, past.until_s, past.ended_s, *vcs]
