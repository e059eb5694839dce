"""What a trace can be used for: which questions its columns answer, and which not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from skep.core.model import told
from skep.core.share import Share
from skep.traces.trace import Trace, TraceJob


class TraceUse(msgspec.Struct, frozen=True):
    """A question, and how many jobs of the trace have the needed data."""

    name: str
    needs: str
    """The column, or what else the trace must have."""
    jobs: int

    @property
    def is_served(self) -> bool:
        return self.jobs > 0


def has_promise(share: Share | None) -> bool:
    return share is not None and (share.tier != "basic" or share.promise_milli > 0)


_USES: tuple[tuple[str, str, Callable[[TraceJob], bool]], ...] = (
    ("speeds by model (--profile), skew-gated placement", "model", lambda job: bool(job.spec.model)),
    ("GPU types (mixed clusters)", "gpu_type", lambda job: bool(job.spec.shapes[0].gpu_types)),
    ("several jobs on one GPU", "gpu_milli", lambda job: any(r.gpu_milli < 1000 for r in job.spec.shapes[0].roles)),
    ("CPUs and memory of nodes", "cpu, memory_gib", lambda job: any(r.cpu for r in job.spec.shapes[0].roles)),
    ("elastic jobs (afs-l)", "min_gpus, max_gpus", lambda job: job.spec.gpu_range is not None),
    ("promised parts of every hour (singularity)", "tier, promise_milli", lambda job: has_promise(job.spec.share)),
    ("progress by epochs (e-las)", "epochs", lambda job: told(job.spec).epochs is not None),
    ("priorities", "priority", lambda job: job.spec.priority != 0),
    ("deadline misses", "deadline_s", lambda job: told(job.spec).deadline_s is not None),
    ("dependencies", "needs", lambda job: bool(job.spec.needs)),
)


def uses(trace: Trace) -> list[TraceUse]:
    """Every question, the general ones first."""
    jobs = trace.jobs
    by_vc = _shared(job.spec.vc for job in jobs)
    by_user = _shared(job.spec.user for job in jobs)
    found = [
        TraceUse("virtual clusters, quotas (yarn-cs, drf, --vc-map)", "two or more values of vc", by_vc),
        TraceUse("fairness between users", "two or more values of user", by_user),
    ]
    return found + [TraceUse(name, needs, sum(map(has, jobs))) for name, needs, has in _USES]


def _shared(names: Iterable[str]) -> int:
    """The number of jobs with an owner, if there are at least two owners."""
    named = [name for name in names if name]
    return len(named) if len(set(named)) > 1 else 0
