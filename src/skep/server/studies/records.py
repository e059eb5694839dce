"""Stored studies and uploaded traces: a folder each, with a record in JSON."""

from __future__ import annotations

import msgspec

from skep.service.values import Json

QUEUED, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED = (
    *("queued", "running", "done"),
    *("failed", "cancelled", "interrupted"),
)
HISTORY = "history"
"""Instead of the id of a trace: the jobs of this cluster."""
TABLE = (
    *("jobs", "finished", "unfinished", "unrunnable", "makespan_s", "jct_avg_s", "jct_p50_s", "jct_p90_s", "jct_p99_s"),
    *("queue_avg_s", "queue_p99_s", "utilization", "preemptions", "migrations", "resizes"),
)
"""Numbers of a summary that the API shows."""


class TraceRecord(msgspec.Struct):
    id: str
    name: str
    created_s: float
    bytes: int
    format: str
    jobs: int
    user: str


class StudyPart(msgspec.Struct):
    """The progress of one policy."""

    policy: str
    jobs: int
    done: int = 0
    summary: Json | None = None


class StudyRecord(msgspec.Struct, kw_only=True):
    id: str
    name: str
    user: str
    trace: str
    trace_name: str
    cluster: str
    """Its name."""
    cluster_text: str
    policies: list[str]
    seed: int
    created_s: float
    estimate_error: float = 0.0
    state: str = QUEUED
    start_s: float | None = None
    end_s: float | None = None
    parts: list[StudyPart] = []
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.state not in (QUEUED, RUNNING)


def shown(study: StudyRecord) -> Json:
    values = msgspec.structs.asdict(study)
    del values["cluster_text"]
    parts = study.parts
    whole = sum(part.jobs for part in parts)
    values["progress"] = 1.0 if study.state == DONE else sum(part.done for part in parts) / whole if whole else 0.0
    return values
