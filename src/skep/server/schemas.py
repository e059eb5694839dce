"""Types of requests and answers, for `/openapi.json` and for reading small bodies. Answers are encoded without them.

`JobSchema` describes a `Job` and is published under that name (`published` in `app.py`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from skep.server.tokens import LIFE_MAX_S
from skep.service.values import Json

STATES = ("pending", "launching", "running", "suspended", "stopping", "succeeded", "failed", "stopped")
ACTIVE = ("launching", "running", "suspended", "stopping")
ENDED = frozenset({"succeeded", "failed", "stopped"})
WORD = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
REF = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$"
"""The form of a job's id or name."""
NODE = r"^[^/\x00-\x1f\x7f]{1,253}$"
LINE = r"^[^\x00-\x1f\x7f]*$"

Absent = SkipJsonSchema[None]
"""Optional. Not available as a query parameter."""
State = Literal["pending", "launching", "running", "suspended", "stopping", "succeeded", "failed", "stopped"]
Seconds = float | None
JobRef = Annotated[str, Path(pattern=REF, description="The id of a job, or a name: then the latest job of that name.")]
TaskName = Annotated[str, Query(max_length=128, pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?$")]
Word = Annotated[str, Query(max_length=128, pattern=LINE)]
Moment = Annotated[
    Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | Absent, Query(description="Unix seconds.")
]
Seq = Annotated[int, Field(ge=0, le=2**62)]
"""The number of an event."""


def whole(value: object) -> object:
    """In JSON 10.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(whole)]


class Strict(BaseModel):
    """Request bodies: no unknown fields, no conversion of types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Answer(BaseModel):
    """Answers: exactly these fields."""

    model_config = ConfigDict(extra="forbid")


# As pydantic's `Field`.
def without_default() -> Any:
    """For an optional field: a default would promise to clients that it is always present."""

    def drop(schema: Json) -> None:
        schema.pop("default", None)

    return Field(default=None, json_schema_extra=drop)


class Error(BaseModel):
    error: str = Field(description="What is wrong, in one line.")
    hint: str = Field(description="What to do about it; may be empty.")
    code: str = Field(default="", description="For a refusal by a limit: the limit, such as `limit-jobs`.")


class LikelySchema(Answer):
    """A time in the future: in four of five cases between `p10_s` and `p90_s`. null: later than `until_s`."""

    p10_s: Seconds
    p50_s: Seconds = Field(description="Half of the samples are earlier.")
    p90_s: Seconds
    poor: bool = Field(description="It rests mostly on jobs of whose length nothing is known.")


class EtaSchema(Answer):
    """A forecast for one job, made by simulating onwards from the state of that time."""

    made_s: float
    until_s: float = Field(description="The forecast does not reach beyond this.")
    samples: int
    start: LikelySchema | None = Field(description="The next start; null for a job that runs.")
    end: LikelySchema
    lengths: Literal["progress", "owner", "history", "none"] = Field(
        description="Where the length of this job comes from; `none`: nothing is known."
    )


class JobSchema(Answer):
    id: str
    name: str
    state: State
    vc: str
    user: str
    gpus: float
    priority: int
    submit_s: Seconds
    start_s: Seconds
    finish_s: Seconds
    reason: str = Field(
        description="Why a pending job waits, as in `explain`; why an ended one ended, unless it succeeded."
    )
    group: str
    tags: list[str]
    attempts: int
    nodes: list[str]
    waited_s: float = Field(description="Seconds since the submission in which it did not run, between attempts too.")
    ran_s: float = Field(description="Seconds it ran, all attempts together, with the one that runs.")
    service_gpu_s: float = Field(description="GPU-seconds of all attempts, with the one that runs.")
    held_gpus: float | None = Field(description="GPUs of the attempt that runs now; null: none runs.")
    at_s: float = Field(description="The time at which these sums are true.")
    progress: dict[str, float | str | None] | None = Field(
        description="What a running job reports through `skep.train`: `step`, `steps`, `loss`, `samples_per_s`, "
        "`checkpoint_step`, `at_s`, and its own keys."
    )
    eta: EtaSchema | None = Field(description="When it is likely to start and end; null: no forecast has it.")


class CompletionSchema(Answer):
    min_failed: int | None
    min_succeeded: int | None


class TaskRoleSchema(Answer):
    count: int
    gpus: int
    gpu_type: str
    gpu_milli: int
    gpu_mem_gib: float
    node_tags: list[str]
    extras: dict[str, int]
    cpu: float
    memory_gib: float
    ports: dict[str, int]
    command: str
    argv: list[str]
    env: dict[str, str]
    completion: CompletionSchema
    retries: int
    image: str


class ElasticSchema(Answer):
    role: str
    min: int
    max: int


class SearchRule(Answer):
    metric: str
    mode: Literal["min", "max"]
    rule: Literal["none", "median", "asha", "hypersched"]
    first: float = Field(description="Steps before trials are compared for the first time.")
    eta: float
    deadline_s: float | None
    gpu_hours: float | None


class OfGroupSchema(Answer):
    """The kind of its group, its role there, and the rule that ends the group."""

    kind: str
    role: str
    index: int
    weight: float
    ends_when: str
    search: SearchRule | None = Field(description="Of a trial: how the search compares it with others.")


class OfShareSchema(Answer):
    """How the job wants to share its GPUs."""

    mode: str
    limit: float
    weight: int
    affinity: str
    anti_affinity: str
    exclusion: str
    persistent_gib: float
    ephemeral_gib: float
    claim: str
    promise: float
    tier: str


class OfKubeSchema(Answer):
    """What its pods need on Kubernetes."""

    volumes: dict[str, str]
    pull_secrets: list[str]
    service_account: str
    node_selector: dict[str, str]
    tolerations: list[str]
    shm_gib: float


class JobRequest(Answer):
    """The request with defaults filled in. Values of secrets are `******`."""

    name: str
    tasks: dict[str, TaskRoleSchema]
    vc: str
    pinned: str
    user: str
    priority: int
    gang: bool
    elastic: ElasticSchema | None
    locality: str
    model: str
    checkpoint: str
    preemptible: bool
    spans_types: bool
    grace_s: float
    expect_s: float | None
    time_limit_s: float | None
    deadline_s: float | None
    retries: int
    workdir: str
    group: str
    of_group: OfGroupSchema
    needs: list[str]
    tags: list[str]
    hold: bool
    secrets: dict[str, str]
    share: OfShareSchema | None
    weight: float
    kubernetes: OfKubeSchema
    parameters: dict[str, str] = Field(description="What distinguishes it from others of its group, as in a sweep.")


class TaskSchema(Answer):
    name: str
    state: Literal["launching", "running", "succeeded", "failed", "stopped", "unknown"]
    node: str
    gpus: list[int]
    exit_code: int | None


class HeldGpus(Answer):
    node: str
    gpus: list[int]
    milli: int = Field(description="Thousandths of each of these GPUs.")


class AttemptSchema(Answer):
    job: int
    task: str = Field(description="The task, if tasks start one by one; otherwise empty.")
    launch: int
    start_s: Seconds
    end_s: Seconds
    nodes: list[str]
    gpus: float
    outcome: str
    code: int | None
    phrase: str
    advice: str
    held: list[HeldGpus] = Field(description="Empty for attempts of older versions, which did not store it.")


class SharedTerms(Answer):
    """The terms under which a job shares its GPUs, and what it gets."""

    mode: str = Field(description="The share mode; empty for exclusive GPUs with a limit.")
    guaranteed_milli: int
    limit_milli: int
    weight: int = Field(description="Its weight against other members of its share group.")
    group: str
    share: float | None = Field(description="The part of the time that it got recently, 0 to 1; null: not measured.")
    cpu: float | None = Field(description="CPUs that it used recently.")
    duty: float | None = Field(description="Mode `lend`: the part of the time in which an opportunistic job may run.")
    idle_s: float | None = Field(description="Seconds since it last used any CPU: it may hang.")


class JobDetail(JobSchema):
    request: JobRequest
    share: SharedTerms | None = Field(description="Only for a running job that shares its GPUs.")
    tasks: list[TaskSchema]
    history: list[AttemptSchema]


class Submitted(JobSchema):
    """The first job, and all of them if there are several."""

    jobs: list[JobSchema]
    warnings: list[str]


class StateCounts(Answer):
    pending: int
    launching: int
    running: int
    suspended: int
    stopping: int
    succeeded: int
    failed: int
    stopped: int


def all_states(counts: dict[str, int]) -> dict[str, int]:
    return {state: counts.get(state, 0) for state in STATES}


class JobPage(Answer):
    jobs: list[JobSchema]
    next: str | None = Field(description="`cursor` of the next page; null after the last.")
    counts: StateCounts | None = Field(
        description="With `counts=true`: jobs by state that match the filters other than `state` and `all`."
    )
    seq: int = Field(description="The last event that this page includes.")
    problems: list[str] = Field(
        description="Policies that failed and were replaced for now, solvers without an answer; in sentences."
    )


class Ids(Answer):
    ids: list[str]
    warnings: list[str]


class Event(Answer):
    seq: int
    at_s: float
    kind: str
    job_id: str | None
    name: str = Field(description="Of the job; empty if the job was deleted meanwhile.")
    who: str
    text: str


class Explanation(Answer):
    job: str
    state: State
    code: str
    cause: str
    reason: str
    remedy: str
    eta: EtaSchema | None = Field(description="As that of the job.")
    problems: list[str] = Field(
        description="Policies that failed and were replaced for now, solvers without an answer; in sentences."
    )


class Environment(Answer):
    env: dict[str, str]
    cwd: str
    task: str
    within: list[str] = Field([], description="Words before a command that take it into the task's container.")
    is_here: bool = Field(True, description="False: `POST /jobs/{id}/exec` runs commands, not the caller.")


class PolicySchema(Answer):
    policy: str = Field(description="The policy in charge.")
    problems: list[str] = Field(
        description="Policies that failed and were replaced for now, solvers without an answer; in sentences."
    )
    missing: list[str] = Field(description="Needs of the policy that are not met here, and what is lost; in sentences.")


class ChangesSchema(Answer):
    changes: list[str]


class HealthSchema(Answer):
    status: Literal["ok"]
    version: str
    problems: list[str] = Field(description="Problems that an admin should know, in sentences.")


class Stopping(Answer):
    running: int = Field(description="Jobs that run now.")
    pid: int = Field(description="The process that is about to end.")
    boot: str = Field(description="The boot id of its machine: a client on the same machine can watch the process.")


class TokenShown(Answer):
    id: str
    user: str
    vcs: list[str]
    role: Literal["admin", "owner", "user", "viewer"]
    created_s: float
    expires_s: Seconds


class Revoked(Answer):
    revoked: str


class TokenMade(TokenShown):
    token: str = Field(description="Shown once.")


class JobPatch(Strict):
    """At least one of these fields."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"minProperties": 1})
    priority: Whole = Field(default=0, ge=-1, le=1000)
    hold: bool = False
    tags: list[Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,255}$")]] = Field(default=[], max_length=64)
    gpus: Whole = Field(default=1, ge=1, le=100_000, description="Of all its tasks together, while it is pending.")
    gpu_type: str = Field(default="", max_length=255, pattern=LINE, description="Empty: any type.")
    vc: str = Field(default="default", min_length=1, max_length=255, pattern=LINE)


class StopBody(Strict):
    reason: str = Field(default="", max_length=500, pattern=LINE)


class NodePatch(Strict):
    state: Literal["up", "drained", "lost"]


class PolicyBody(Strict):
    policy: str = Field(min_length=1, max_length=1000)
    files: dict[str, str] = Field(
        default={},
        max_length=8,
        description="Texts of the files that the policy names, by path; else the server reads them.",
    )


class ShutdownBody(Strict):
    stop_jobs: bool = False
    within_s: Annotated[
        float,
        Field(
            gt=0, le=86400, description="With `stop_jobs`: if jobs have not ended after this time, the server stays."
        ),
    ] = 600.0


OWNER_HAS_VC: Json = {
    "if": {"properties": {"role": {"const": "owner"}}, "required": ["role"]},
    "then": {"properties": {"vcs": {"minItems": 1}}, "required": ["vcs"]},
}


class RotateBody(Strict):
    overlap_s: float = Field(default=0.0, ge=0, le=LIFE_MAX_S, description="How long the old token stays valid.")


class TokenBody(Strict):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra=OWNER_HAS_VC)
    user: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")
    role: Literal["admin", "owner", "user", "viewer"] = "user"
    vcs: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]] = Field(default=[], max_length=64)
    life_s: Annotated[float, Field(gt=0, le=LIFE_MAX_S)] | None = Field(
        default=None, description="Seconds until it expires; null: never."
    )


MEANINGS = {
    400: "the request is invalid",
    401: "the token is missing or invalid",
    403: "not allowed: the role or VCs of the token, a foreign Host or Origin",
    404: "not found",
    409: "not possible in the present state",
    413: "the body is too large",
    415: "the content type is not supported here",
    429: "a limit of the user or VC is reached, or too many such requests at once (`Retry-After`)",
    503: "the server is stopping or too busy; try again",
}


Responses = dict[int | str, Json]


def errors(*more: int) -> Responses:
    """Every route can refuse an invalid or unauthorised request; some refuse for more reasons."""
    return {status: {"model": Error, "description": MEANINGS[status]} for status in (400, 401, 403, *more)}


def write_errors(*more: int) -> Responses:
    return errors(413, 415, 503, *more)
