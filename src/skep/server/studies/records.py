"""Studies and uploaded traces as they are recorded."""

from __future__ import annotations

import msgspec

from skep.service.sight import Sight
from skep.service.values import Json

QUEUED, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED = (
    *("queued", "running", "done"),
    *("failed", "cancelled", "interrupted"),
)
TRACE_MAX = 256 << 20
"""Bytes of one trace."""
HISTORY = "history"
"""Instead of the id of a trace: the jobs of this cluster."""
TABLE = (
    *("jobs", "finished", "unfinished", "unrunnable", "makespan_s", "jct_avg_s", "jct_p50_s", "jct_p90_s", "jct_p99_s"),
    *("queue_avg_s", "queue_p50_s", "queue_p90_s", "queue_p99_s", "first_wait_p90_s", "utilization", "busy", "fre"),
    *("preemptions", "migrations", "resizes", "oracle", "measured_jobs"),
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
    vcs: list[str] = []


class PastJobs(msgspec.Struct, frozen=True):
    """Which jobs of this cluster: those submitted between two times that had ended at a third, as far as the user saw
    them."""

    since_s: float
    until_s: float
    ended_s: float
    sight: Sight


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
    files: dict[str, str] = {}
    """Texts of the files that policies of its VCs are made of, by path; no other file is read."""
    policies: list[str]
    seed: int
    created_s: float
    estimate_error: float = 0.0
    repetitions: int = 0
    """Bootstraps of the trace; 0: each policy runs once."""
    past: PastJobs | None = None
    """With the trace `history`."""
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
    del values["cluster_text"], values["files"], values["past"]
    parts = study.parts
    whole = sum(part.jobs for part in parts)
    values["progress"] = 1.0 if study.state == DONE else sum(part.done for part in parts) / whole if whole else 0.0
    return values
