"""The results of one simulated run: a row per job, a summary, and, for charts, the history of the cluster."""

from __future__ import annotations

import msgspec


class JobRow(msgspec.Struct, gc=False):
    """One line of jobs.csv; `None` if there is no value."""

    job_id: str
    vc: str
    gpus: float
    """Requested GPUs; a fraction if the job shares one."""
    submit_s: float
    start_s: float | None
    finish_s: float | None
    jct_s: float | None
    queue_s: float | None
    queue_quota_s: float
    queue_fragmentation_s: float
    run_s: float
    service_gpu_s: float
    preemptions: int
    migrations: int
    resizes: int
    state: str


class Summary(msgspec.Struct):
    """summary.json."""

    policy: str
    cluster: str
    trace: str
    seed: int
    jobs: int
    finished: int
    unfinished: int
    unrunnable: int
    makespan_s: float | None
    jct_avg_s: float | None
    jct_p50_s: float | None
    jct_p90_s: float | None
    jct_p95_s: float | None
    jct_p99_s: float | None
    queue_avg_s: float | None
    queue_p50_s: float | None
    queue_p90_s: float | None
    queue_p95_s: float | None
    queue_p99_s: float | None
    """Waiting is all time without GPUs from submission to end, also after preemptions: jct - run."""
    first_wait_p90_s: float | None
    """From submission to the first start; of all jobs that have started."""
    first_wait_avg_s: float | None
    slowdown_avg: float | None
    """JCT ÷ the time the job needs alone, of finished jobs. Jobs shorter than 10 s count as 10 s, and no value is below
    1: else the shortest jobs alone would decide it."""
    utilization: float | None
    """GPU-seconds held, out of all there were (`metrics/gpu_time.py` defines the three)."""
    busy: float | None
    """The part of them in which jobs ran: without restarts and the copying of memory."""
    fre: float | None
    """GPU-seconds of useful work, out of all there were. Always fre <= busy <= utilization <= 1."""
    preemptions: int
    migrations: int
    resizes: int
    ftf_max: float | None
    ftf_avg: float | None
    jain: float | None
    """Jain's index over users of the speed of their jobs relative to an even share: 1 is even, 1 ÷ users the worst."""
    deadline_misses: int
    """Jobs that ended after their deadline, or had not ended when it passed."""
    fragmented_gpus: float | None
    """GPUs that were free while a job found enough of them but in no acceptable shape: average over the makespan."""
    idle_gpus: float | None
    """Idle GPUs and parts of GPUs: average over the makespan. Nodes that are down have none."""
    fragment_gpus: float | None
    """The part of `idle_gpus` that typical tasks of the trace could not use: FGD's measure."""
    arrival_utilization: float | None
    """As `utilization`, from the first submission to the last."""
    events: int
    decisions: int
    wall_s: float
    events_per_s: float
    decision_avg_ms: float
    decision_p99_ms: float
    """The measured time of a decision."""
    oracle: bool = False
    """True if the policy knew the true durations: a bound for comparison only."""
    estimate_error: float = 0.0
    """The error of the durations that policies got as estimates; 0: they were true."""
    measured_jobs: int = 0
    """Jobs of which the trace says with how much of a GPU they were measured: with more, they ran faster than
    recorded."""


class Span(msgspec.Struct, frozen=True):
    """A job held GPUs of one node from `start_s` to `end_s`."""

    job: int
    """Index into `Run.rows`."""
    node: int
    gpus: int
    """Bit mask of the node's GPUs."""
    start_s: float
    end_s: float


class RunHistory(msgspec.Struct):
    """The cluster over time; the three lists run in parallel, a value is valid from its instant to the next."""

    at_s: list[float] = []
    pending_jobs: list[int] = []
    busy_gpus: list[float] = []
    spans: list[Span] = []


class Run(msgspec.Struct):
    """Everything about one policy on one trace."""

    summary: Summary
    rows: list[JobRow]
    gpu_total: int
    node_names: list[str]
    node_gpus: list[int]
    history: RunHistory | None = None
    unrunnable: dict[str, str] = {}
    """Job id → why it can never run."""
    unanswered: int = 0
    """Questions of the policy to which its solver gave no answer, and why the latest one."""
    solver_error: str = ""

    @property
    def is_oracle(self) -> bool:
        return self.summary.oracle

    def named(self, label: str) -> Run:
        """The same run under another name."""
        replace = msgspec.structs.replace
        return self if self.summary.policy == label else replace(self, summary=replace(self.summary, policy=label))
