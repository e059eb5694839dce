"""Routes for jobs: submit, read, change."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.core.errors import Conflict, InputError
from skep.jobs.alter import Alteration
from skep.jobs.request import without_values
from skep.server.answers import answer, one_line
from skep.server.context import context_of, done, identity_of, in_turn, reads_of
from skep.server.identity import Forbidden
from skep.server.schemas import (
    Environment,
    Event,
    Explanation,
    JobDetail,
    JobPage,
    JobPatch,
    JobRef,
    Seq,
    State,
    StopBody,
    TaskName,
    Word,
    all_states,
    errors,
    write_errors,
)
from skep.server.shapes import Bulk, BulkBody
from skep.service.order import COLUMNS
from skep.service.store import JobFilter, is_id
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["jobs"])
JobNumber = Annotated[str, Field(pattern=r"^[0-9]{1,15}$")]
SORT = rf"^-?({'|'.join(COLUMNS)})$"
WORDS_MAX = 10
ALTERED = frozenset(Alteration.__struct_fields__)


@router.get("/jobs", response_model=None, responses={200: {"model": JobPage}, **errors(429)})
async def list_jobs(
    request: Request,
    state: Annotated[list[State], Query(description="Jobs in any of these states.")] = [],  # noqa: B006 (FastAPI copies it)
    vc: Word = "",
    user: Word = "",
    group: Word = "",
    tag: Word = "",
    name: Word = "",
    id: Annotated[list[JobNumber], Query(max_length=1000, description="Only these jobs.")] = [],  # noqa: B006
    mine: Annotated[bool, Query(description="Only jobs of the caller.")] = False,
    all: Annotated[bool, Query(description="Include ended jobs.")] = False,
    q: Annotated[str, Query(max_length=200, description="Words of id, name, user, VC, group or tags.")] = "",
    sort: Annotated[str, Query(pattern=SORT, description="With a leading `-` the largest first.")] = "-id",
    counts: Annotated[bool, Query(description="Also count jobs by state.")] = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{0,600}$")] = "",
) -> Response:
    """Newest first, unless sorted otherwise. Without `state` and `all` only jobs that have not ended."""
    if mine:
        user = own_name(request, user)
    words = tuple(q.split()[:WORDS_MAX])
    where = JobFilter(tuple(state), vc, user, group, tag, name, all, words=words, ids=tuple(id))
    reads = reads_of(request)

    def page() -> Response:
        seq = reads.last_seq()  # read first: later changes are sent again, not lost
        found, following = reads.jobs(where, limit, cursor or None, sort)
        counted = all_states(reads.counts(where)) if counts else None
        shown = {"jobs": found, "next": following, "counts": counted, "seq": seq, "problems": reads.policy_problems()}
        return answer(shown)

    return await in_turn(request, context_of(request).lists, page)


@router.post("/jobs:bulk", response_model=None, responses={200: {"model": Bulk}, **write_errors()})
async def change_jobs(request: Request, body: BulkBody) -> Response:
    """The same change for many jobs, each by itself: a job that cannot be changed does not affect the others."""
    # All are submitted to the writer before the first is awaited, so that the writer does them in one turn.
    numbers = [job_id for job_id in body.ids if is_id(job_id)]
    known = {row["id"]: row for row in await run_in_threadpool(reads_of(request).rows, numbers)}
    asked = [await ask_one(request, job_id, known, body) for job_id in dict.fromkeys(body.ids)]
    results = [await bulk_result(job_id, each) for job_id, each in asked]
    return answer({"results": results, "done": sum(each["ok"] for each in results)})


async def ask_one(
    request: Request, job_id: str, known: dict[str, Json], body: BulkBody
) -> tuple[str, Future[None] | Exception]:
    live, who = context_of(request).live, identity_of(request).who
    try:
        job = known.get(job_id) or await found_job(request, job_id)
        identity_of(request).must_change(job)
        job_id = job["id"]
        if body.action == "priority":
            check_priority(request, job, body.value)
    except (InputError, Forbidden) as error:
        return job_id, error
    if body.action == "stop":
        return job_id, live.stop(job_id, who, body.reason)
    if body.action == "priority":
        return job_id, live.change(job_id, who, priority=body.value)
    return job_id, live.change(job_id, who, is_held=body.action == "hold")


async def bulk_result(job_id: str, asked: Future[None] | Exception) -> Json:
    error: Exception | None = asked if isinstance(asked, Exception) else None
    if not isinstance(asked, Exception):
        try:
            await done(asked)
        except InputError as refused:
            error = refused
    return {
        "id": job_id,
        "ok": error is None,
        "error": one_line(str(error)) if error is not None else "",
        "hint": getattr(error, "hint", ""),
    }


@router.get("/jobs/{id}", response_model=None, responses={200: {"model": JobDetail}, **errors(404)})
def show_job(request: Request, id: JobRef) -> Response:
    """Values of variables are shown only to users who may change the job."""
    return answer(detail(request, id))


@router.patch("/jobs/{id}", response_model=None, responses={200: {"model": JobDetail}, **write_errors(404, 409)})
async def change_job(request: Request, id: JobRef, change: JobPatch) -> Response:
    """Change its priority, hold or tags; or, of a pending job, `gpus`, `gpu_type` or `vc`, and it keeps its place."""
    given = change.model_fields_set
    if not given:
        raise InputError("nothing to change", hint="expected priority, hold, tags, gpus, gpu_type or vc")
    live, who = context_of(request).live, identity_of(request).who
    job = await job_to_change(request, id)
    job_id = job["id"]
    if given & ALTERED:
        await done(live.alter(job_id, alteration(request, job, change), who))
        return answer(await run_in_threadpool(detail, request, job_id))
    if "priority" in given:
        check_priority(request, job, change.priority)
    wanted = live.change(
        job_id,
        who,
        priority=change.priority if "priority" in given else None,
        is_held=change.hold if "hold" in given else None,
        tags=tuple(change.tags) if "tags" in given else None,
    )
    await done(wanted)
    return answer(await run_in_threadpool(detail, request, job_id))


@router.post("/jobs/{id}/stop", response_model=None, responses={200: {"model": JobDetail}, **write_errors(404, 409)})
async def stop_job(request: Request, id: JobRef, body: StopBody = StopBody()) -> Response:  # noqa: B008 (frozen use)
    live = context_of(request).live
    job_id = (await job_to_change(request, id))["id"]
    await done(live.stop(job_id, identity_of(request).who, body.reason))
    return answer(await run_in_threadpool(detail, request, job_id))


@router.get("/jobs/{id}/events", response_model=None, responses={200: {"model": list[Event]}, **errors(404)})
def job_events(
    request: Request,
    id: JobRef,
    after: Seq = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    reads = reads_of(request)
    return answer(reads.events(after, reads.brief(id)["id"], limit))


@router.get("/jobs/{id}/explain", response_model=None, responses={200: {"model": Explanation}, **errors(404)})
def explain_job(request: Request, id: JobRef) -> Response:
    """Why it does not run now, and what would change that."""
    return answer(reads_of(request).explain(id))


@router.get("/jobs/{id}/environment", response_model=None, responses={200: {"model": Environment}, **errors(404, 409)})
async def job_environment(request: Request, id: JobRef, task: TaskName = "") -> Response:
    """For `skep exec`: it contains secrets, so only for the owner of the job."""
    job = await found_job(request, id)
    identity_of(request).must_own(job)
    return answer(await run_in_threadpool(context_of(request).live.environment, job["id"], task))


def own_name(request: Request, user: str) -> str:
    name = identity_of(request).user
    if user or not name:
        problem = "mine and user exclude each other" if user else "mine: the request names no user"
        raise InputError(problem, hint="" if user else "send X-Skep-User, or use user=NAME")
    return name


def detail(request: Request, ref: str) -> Json:
    job: Json = reads_of(request).job(ref)
    if not identity_of(request).owns(job):
        job["request"] = without_values(job["request"])
    return job


def check_priority(request: Request, job: Json, priority: int) -> None:
    """Raising the priority beyond a limit needs a role; any user who may change the job may lower it."""
    if priority > job["priority"]:
        identity_of(request).must_prioritise(priority, job["vc"], context_of(request).config.limits)


def alteration(request: Request, job: Json, change: JobPatch) -> Alteration:
    given = change.model_fields_set
    if given - ALTERED:
        together = f"{', '.join(sorted(given & ALTERED))} and {', '.join(sorted(given - ALTERED))}"
        raise Conflict(f"{together} cannot be changed at once", hint="send two requests")
    if "vc" in given:
        identity_of(request).must_use(change.vc)
        identity_of(request).must_prioritise(job["priority"], change.vc, context_of(request).config.limits)
    return Alteration(**{name: getattr(change, name) for name in given})


async def found_job(request: Request, ref: str) -> Json:
    job: Json = await run_in_threadpool(reads_of(request).brief, ref)
    return job


async def job_to_change(request: Request, ref: str) -> Json:
    """The job, if the caller may change it."""
    job = await found_job(request, ref)
    identity_of(request).must_change(job)
    return job
