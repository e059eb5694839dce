"""Small inputs as tables, their runs, and checks that are a table as well: jobs are named a, b, c, … in the order of
their rows."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.clusters.read import read_cluster
from skep.core.cluster import Cluster
from skep.core.model import DEFAULT_VC, JobSpec, Shape, gpu_shape
from skep.experiments.simulate import Experiment, Options
from skep.metrics.run import Run
from skep.profiles.speed import Speed
from skep.traces.trace import Trace, TraceJob
from skep.verify.check import Finding, same

Rows = Sequence[tuple[float, float, int]]
"""(submitted, seconds of work, GPUs) of each job."""
Times = tuple[float | None, ...]


def play(
    policy: str,
    cluster: str | Cluster,
    rows: Rows,
    *,
    vcs: Sequence[str] = (),
    users: Sequence[str] = (),
    models: Sequence[str] = (),
    restart_s: float = 0.0,
) -> Run:
    """Run these jobs under this policy. Restarts cost nothing unless given, so that times can be computed by hand."""
    jobs = [
        TraceJob(
            float(submit_s),
            float(work_s),
            JobSpec(
                string.ascii_lowercase[at],
                (gpu_shape(gpus),),
                vc=vcs[at] if vcs else DEFAULT_VC,
                user=users[at] if users else "",
                model=models[at] if models else "",
                expect_s=float(work_s),
            ),
        )
        for at, (submit_s, work_s, gpus) in enumerate(rows)
    ]
    return play_jobs(policy, cluster, jobs, restart_s=restart_s)


def play_jobs(
    policy: str,
    cluster: str | Cluster,
    jobs: list[TraceJob],
    *,
    restart_s: float = 0.0,
    speed: Callable[[Cluster], Speed] | None = None,
) -> Run:
    hardware = read_cluster(cluster) if isinstance(cluster, str) else cluster
    options = Options(restart_s=restart_s, keep_history=True)
    return Experiment(Trace("check", "table", jobs), hardware, options, speed).run(policy)


def endless(name: str, shape: Shape, *, user: str) -> TraceJob:
    """A job that is present from the beginning and never ends."""
    return TraceJob(0.0, float("inf"), JobSpec(name, (shape,), user=user))


def starts(run: Run) -> Times:
    return tuple(row.start_s for row in run.rows)


def finishes(run: Run) -> Times:
    return tuple(row.finish_s for row in run.rows)


def preemptions(run: Run) -> tuple[int, ...]:
    return tuple(row.preemptions for row in run.rows)


def mean_jct_s(run: Run) -> float:
    assert run.summary.jct_avg_s is not None
    return run.summary.jct_avg_s


def node_gpus(run: Run, row: int) -> dict[str, int]:
    """On which nodes a job held how many GPUs (when it ran last)."""
    assert run.history is not None
    spans = [span for span in run.history.spans if span.job == row]
    last_s = max((span.start_s for span in spans), default=0.0)
    return {run.node_names[span.node]: span.gpus.bit_count() for span in spans if span.start_s == last_s}


def row_names(run: Run) -> str:
    return " ".join(row.job_id for row in run.rows)


COLUMNS: dict[str, Callable[[Run], object]] = {
    "starts": starts,
    "ends": finishes,
    "preemptions": preemptions,
    "GPU-seconds": lambda run: tuple(row.service_gpu_s for row in run.rows),
    "seconds without quota": lambda run: tuple(row.queue_quota_s for row in run.rows),
    "average JCT": mean_jct_s,
}
"""What a plain check compares, by the name that is shown: a value for each job, or one for the run."""


class Case(msgspec.Struct, frozen=True):
    """Jobs under a policy, and the columns that are expected."""

    policy: str
    cluster: str
    rows: Rows
    columns: Mapping[str, object]
    """By the names in `COLUMNS`."""
    vcs: Sequence[str] = ()
    users: Sequence[str] = ()
    restart_s: float = 0.0

    def findings(self) -> list[Finding]:
        run = play(self.policy, self.cluster, self.rows, vcs=self.vcs, users=self.users, restart_s=self.restart_s)
        who = f"{self.policy}, {row_names(run)}"
        return [same(f"{who}: {name}", expected, COLUMNS[name](run)) for name, expected in self.columns.items()]


def compare(*cases: Case) -> Callable[[], list[Finding]]:
    """What a plain check asks: every column of every case."""
    return lambda: [finding for case in cases for finding in case.findings()]
