"""The types of what the dashboard reads, for `/openapi.json`. A test checks real answers against them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from skep.server.schemas import (
    LINE,
    Answer,
    Event,
    HeldGpus,
    JobRequest,
    JobSchema,
    Seconds,
    State,
    StateCounts,
    Strict,
    Whole,
    without_default,
)

NodeState = Literal["up", "drained", "lost"]
Outcome = Literal[
    "launching",
    "running",
    "succeeded",
    "failed",
    "retried",
    "preempted",
    "node-lost",
    "stopped",
    "moved",
    "resized",
]
Values = list[float | None]
"""A series; null for unknown values."""


# The cluster now ----------------------------------------------------------------------------------------------------


class TenantSchema(Answer):
    """A job on a GPU of a node."""

    job: str
    name: str = Field(description="Empty for a job of another VC.")
    gpu: int
    milli: int = Field(description="Thousandths of the GPU; 1000 is all of it.")
    gpu_mem_mib: int = Field(description="Requested GPU memory; 0: not stated.")


class GpuSchema(Answer):
    """Current values of a GPU from the driver; null if the driver does not provide one."""

    index: int
    utilization: float | None = Field(description="Percent.")
    memory_used_mib: int | None
    memory_total_mib: int | None
    temperature_c: float | None
    power_w: float | None
    errors: int | None = Field(description="Uncorrected memory errors since the driver was loaded.")


class CellName(Answer):
    level: str
    name: str


class NodeSchema(Answer):
    name: str
    state: NodeState
    gpu_type: str
    gpus: int
    used: int = Field(description="GPUs in use, shared ones included.")
    jobs: list[list[str]] = Field(description="By GPU, the jobs on it.")
    tenants: list[TenantSchema]
    cpus: float | None = Field(description="null: not limited.")
    cpus_free: float | None
    memory_gib: float | None
    memory_free_gib: float | None
    within: list[CellName] = Field(description="The cells above it, outermost first.")
    health: list[GpuSchema] = Field(description="Empty without a driver.")


class VcSchema(Answer):
    name: str
    gpus: int = Field(description="Guaranteed. Without virtual clusters: all there are.")
    used: float = Field(description="Held by its jobs within its guarantee.")
    borrowed: float = Field(description="Held by its jobs beyond it.")
    lent: float = Field(
        description="Of its idle GPUs, those that borrowers of other VCs hold. "
        "Which VC lends a GPU is undetermined until it is taken back, so borrowed GPUs "
        "are divided among the VCs in proportion to what they leave idle."
    )
    pending: int
    running: int
    policy: str


class ClusterSchema(Answer):
    name: str
    text: str
    policy: str
    gpus: int
    used: int
    nodes: list[NodeSchema]
    vcs: list[VcSchema]


class Quantiles(Answer):
    """Seconds of waiting; null if there are no jobs."""

    jobs: int
    p50_s: float | None
    p90_s: float | None
    max_s: float | None


class Overview(Answer):
    at_s: float
    seq: int = Field(description="The last event that this includes.")
    name: str
    policy: str
    version: str
    gpus: int
    used: float = Field(description="GPUs held, shares as fractions.")
    free: float = Field(description="GPUs that a job could get now.")
    idle_gpus: float = Field(description="Idle GPUs and parts of GPUs on nodes that are up.")
    fragment_gpus: float = Field(description="Of these, the part that typical jobs (of the latest 10,000) cannot use.")
    lent: float
    bad: int = Field(description="GPUs of lost nodes.")
    drained: int = Field(description="GPUs of drained nodes.")
    nodes: int
    queue_gpus: float = Field(description="Requested by pending jobs.")
    jobs: StateCounts
    waiting: Quantiles = Field(description="Until the first start, of jobs that started in the last 24 hours.")
    waiting_now: Quantiles = Field(description="For jobs that wait now: all their waiting so far.")


class MapCell(Answer):
    """A cell above the nodes: a rack, a row. `parent` is its index in `cells`, -1 for an outermost one."""

    level: str
    name: str
    parent: int


class MapNode(Answer):
    """GPU number `first` of the map is GPU 0 of this node."""

    name: str
    state: NodeState
    gpu_type: str
    cell: int = Field(description="The index of its cell in `cells`; -1: none.")
    first: int
    gpus: int
    inner: list[int] = Field(description="Sizes of the cells inside the node, outermost first: 4, 2.")


class MapJob(Answer):
    id: str
    name: str
    vc: str
    user: str
    state: State
    lent: bool = Field(description="True if it borrows its GPUs.")


class MapShare(Answer):
    gpu: int
    job: int
    milli: int


class Map(Answer):
    """Every GPU in one answer: `gpus` has, GPU by GPU, the index in `jobs` of its only tenant; -1: free; -2: shared,
    then `shares` has the tenants."""

    at_s: float
    seq: int
    cells: list[MapCell]
    nodes: list[MapNode]
    jobs: list[MapJob]
    gpus: list[int]
    shares: list[MapShare]


class DrainPreview(Answer):
    """The effect of draining a node: jobs there run on, nothing new starts."""

    node: str
    state: NodeState
    gpus: int
    idle: int = Field(description="Its idle GPUs, which cannot be used from now on.")
    gpus_left: int = Field(description="GPUs of the cluster that remain in use.")
    jobs: list[JobSchema] = Field(description="Jobs that hold something there; they run on until they end.")
    unrunnable: list[JobSchema] = Field(description="Pending jobs that could not start anywhere while it is drained.")


# The past -----------------------------------------------------------------------------------------------------------


class VcHistory(Answer):
    name: str
    gpus: Values
    used: Values
    borrowed: Values
    queue: Values = Field(description="Pending jobs.")


class HistorySchema(Answer):
    """Means over steps. `t` is where each step begins; null while the server did not run."""

    since_s: float
    until_s: float
    step_s: float = Field(description="At least the requested step: old samples are kept at larger intervals.")
    t: list[float]
    gpus: Values
    used: Values
    lent: Values
    bad: Values
    drained: Values
    queue: Values = Field(description="Pending jobs.")
    queue_gpus: Values
    vcs: list[VcHistory]


class SpanSchema(Answer):
    """A job on some GPUs, from start to end."""

    job: str
    name: str
    vc: str
    user: str
    task: str = Field(description="The task, if tasks start one by one; otherwise empty.")
    attempt: int
    start_s: float
    end_s: Seconds
    outcome: Outcome
    held: list[HeldGpus] = Field(description="Empty for attempts of older versions, which did not store it.")


class Timeline(Answer):
    since_s: float
    until_s: float
    spans: list[SpanSchema]
    is_cut: bool = Field(description="There are more; these are the latest.")


class LimitsSchema(Answer):
    """null: no limit."""

    jobs: int | None
    pending: int | None
    tasks: int | None
    ports: int | None
    cpus: float | None
    memory_gib: float | None
    processes: int | None
    log_mib: int | None
    job_gib: float | None
    disk_gib: float | None
    priority: int | None


class LimitsUsed(Answer):
    jobs: int
    pending: int
    tasks: int
    ports: int
    cpus: float
    memory_gib: float
    disk_gib: float | None = Field(description="null: the engine does not measure it.")


class LimitSchema(Answer):
    """What a user, or all users of a VC together, may use at once, and do use."""

    kind: Literal["user", "vc"]
    name: str = Field(description="Empty: users without a name.")
    limits: LimitsSchema
    used: LimitsUsed


class Usage(Answer):
    """One of `user`, `vc` and `job` is present, as requested."""

    user: Annotated[str | SkipJsonSchema[None], without_default()] = None
    vc: Annotated[str | SkipJsonSchema[None], without_default()] = None
    job: Annotated[str | SkipJsonSchema[None], without_default()] = None
    jobs: int
    gpu_hours: float


class Where(Answer):
    nodes: list[str]
    gpus: float


class DecisionSchema(Answer):
    """What the policy decided about a job."""

    seq: int = Field(description="Number of the log entry.")
    at_s: float
    kind: Literal["start", "preempt", "move", "resize", "share", "suspend", "resume", "measured", "reject"]
    job: str
    name: str
    vc: str
    user: str
    reason: str = Field(description="The decision as one sentence.")
    because: list[str] = Field(description="The events on which the policy decided.")
    before: Where | None
    after: Where | None


class Decisions(Answer):
    decisions: list[DecisionSchema] = Field(description="The newest first.")
    next: int | None = Field(description="`before` of the next page; null: there are no earlier ones.")


# Jobs ---------------------------------------------------------------------------------------------------------------


class Change(Answer):
    """What a message of `/changes` carries."""

    seq: int = Field(description="The last event that it includes.")
    resync: bool = Field(description="Too much was missed: read everything again.")
    events: list[Event]
    jobs: list[JobSchema] = Field(description="New and changed jobs in their present state.")
    cluster: bool = Field(description="Nodes, the cluster or the policy have changed.")


class BulkBody(Strict):
    ids: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$")]] = Field(
        min_length=1, max_length=1000
    )
    action: Literal["stop", "hold", "release", "priority"]
    value: Whole = Field(default=0, ge=-1, le=1000, description="The priority.")
    reason: str = Field(default="", max_length=500, pattern=LINE, description="Of a stop.")


class BulkResult(Answer):
    id: str
    ok: bool
    error: str = Field(description="Why it failed; empty if it was done.")
    hint: str


class Bulk(Answer):
    results: list[BulkResult] = Field(description="In the order of the request.")
    done: int


class SeriesSchema(Answer):
    """`step`, `at_s` and `value` belong together, point by point."""

    key: str
    step: Values
    at_s: Values
    value: Values
    attempt: list[int]


class Curve(Answer):
    """What a job reported through `skep.train`."""

    job: str
    task: str
    keys: list[str] = Field(description="All keys.")
    series: list[SeriesSchema]
    is_cut: bool = Field(description="The files are too long; only the latest part is included.")


class JobFile(Answer):
    """The job as a file that submits it again."""

    text: str = Field(description="YAML.")
    hidden: list[str] = Field(description="Variables whose values are not shown: fill them in.")


class Problem(Answer):
    path: str = Field(description="The field, such as tasks.worker.gpus; empty if it concerns the whole file.")
    line: int | None
    text: str
    hint: str


class DryRun(Answer):
    requests: list[JobRequest] = Field(description="What would be submitted; empty if there are errors.")
    errors: list[Problem]
    warnings: list[str]


class Example(Answer):
    name: str
    title: str
    text: str = Field(description="A job file.")


# Policies and studies -----------------------------------------------------------------------------------------------


class PolicyKnob(Answer):
    name: str
    default: str
    help: str
    choices: list[str]


class PolicyInfo(Answer):
    name: str
    title: str
    paper: str
    assumes: str = Field(description="Its needs as text.")
    needs: list[str] = Field(description="The same as a list: history, progress, throughput, oracle, checkpoint, …")
    missing: list[str] = Field(description="The needs that are not met here, and what is lost; in sentences.")
    oracle: bool = Field(description="True if it needs the true durations, which no real cluster knows.")
    knobs: list[PolicyKnob]


class TraceSchema(Answer):
    """An uploaded trace."""

    id: str
    name: str
    created_s: float
    bytes: int
    format: str
    jobs: int
    user: str
    vcs: list[str] = Field(description="The virtual clusters of its jobs.")


class StudyBody(Strict):
    """`trace` is the id of an uploaded one, or `history`: the jobs of this cluster between `since` and `until`."""

    name: str = Field(default="", max_length=100, pattern=LINE)
    trace: str = Field(pattern=r"^(history|[0-9a-f]{8})$")
    policies: list[Annotated[str, Field(min_length=1, max_length=300, pattern=LINE)]] = Field(
        max_length=12, description="May be empty with `repetitions`: all that the trace can serve."
    )
    repetitions: Whole = Field(default=0, ge=0, le=50, description="Bootstraps, as in `skep study`; 0: each runs once.")
    files: dict[Annotated[str, Field(pattern=r"^[a-z]\w{0,40}\.py$")], Annotated[str, Field(max_length=100_000)]] = (
        Field(default={}, max_length=5, description="Policies of an admin's own: `mine.py:Mine` then names one.")
    )
    cluster: str = Field(default="", max_length=1000, pattern=LINE, description="A spec such as 16x8; empty: this one.")
    seed: Whole = Field(default=0, ge=0, le=2**31)
    estimate_error: float = Field(
        default=0.0, ge=0, le=10, description="Error of the durations that policies see; 0: the true ones."
    )
    since_s: float = Field(default=0.0, ge=0, le=1e11)
    until_s: float = Field(default=1e11, ge=0, le=1e11)


class StudySummary(Answer):
    """The numbers of the report's table; null if no job has finished."""

    jobs: int
    finished: int
    unfinished: int
    unrunnable: int
    makespan_s: Seconds
    jct_avg_s: Seconds
    jct_p50_s: Seconds
    jct_p90_s: Seconds
    jct_p99_s: Seconds
    queue_avg_s: Seconds = Field(description="Time without GPUs from submission to end, on average.")
    queue_p50_s: Seconds = None
    queue_p90_s: Seconds = None
    queue_p99_s: Seconds
    first_wait_p90_s: Seconds = Field(None, description="Nine of ten jobs first started within this time.")
    utilization: float | None = Field(description="GPU time that jobs held, as a part of all there was.")
    busy: float | None = Field(None, description="The same without restarts and the copying of memory.")
    fre: float | None = Field(None, description="GPU time of useful work; fre <= busy <= utilization <= 1.")
    preemptions: int
    migrations: int
    resizes: int
    oracle: bool = Field(False, description="True if the policy knew true durations: a bound, not a rival.")
    measured_jobs: int = Field(
        0,
        description="Jobs that may run faster than recorded: the trace has the part of a GPU they were measured with.",
    )


class StudyPartSchema(Answer):
    policy: str
    done: int = Field(description="Jobs of the trace that have ended.")
    jobs: int
    summary: StudySummary | None = Field(description="When it is done.")


class StudySchema(Answer):
    id: str
    name: str
    user: str
    trace: str
    trace_name: str
    cluster: str
    policies: list[str]
    seed: int
    estimate_error: float
    repetitions: int
    state: Literal["queued", "running", "done", "failed", "cancelled", "interrupted"]
    created_s: float
    start_s: Seconds
    end_s: Seconds
    progress: float = Field(description="0 to 1.")
    parts: list[StudyPartSchema]
    error: str


class Removed(Answer):
    removed: str
