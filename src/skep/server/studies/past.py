"""The jobs of this cluster as a trace: submission times and run times."""

from __future__ import annotations

import msgspec

from skep.core.errors import InputError
from skep.jobs.core import task_of, to_core
from skep.jobs.request import Request
from skep.service.reads import Reads
from skep.traces.trace import Trace, TraceJob

JOBS_MAX = 200_000


def past_trace(reads: Reads, since_s: float, until_s: float) -> Trace:
    """Visible jobs that were submitted between these times and have ended after they ran. The work of a job is the time
    it ran, all attempts together; jobs that it needed are left out, because they may be older."""
    clause, values = reads.sight.clause()
    found = reads.store.reader.execute(
        f"""SELECT seq, submit_s, request FROM jobs WHERE submit_s >= ? AND submit_s <= ? AND finish_s IS NOT NULL
        AND start_s IS NOT NULL AND {clause} ORDER BY submit_s, seq LIMIT ?""",
        (since_s, until_s, *values, JOBS_MAX),
    ).fetchall()
    ran = dict(
        ((job, task), seconds)
        for job, task, seconds in reads.store.reader.execute(
            "SELECT job, task, sum(end_s - start_s) FROM attempts WHERE end_s > start_s GROUP BY job, task"
        )
    )
    jobs = [
        TraceJob(submit_s, ran[seq, task], spec)
        for seq, submit_s, data in found
        for request in [msgspec.json.decode(data, type=Request)]
        for spec in to_core(request, str(seq))
        if (seq, task := task_of(spec, request)) in ran
    ]
    if not jobs:
        raise InputError("no job of this cluster has run and ended in that time", hint="choose another time")
    return Trace("history of this cluster", "native", jobs)
