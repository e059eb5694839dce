"""What would let a waiting job start now or sooner, and what a submission would do: tried out, line by line."""

from __future__ import annotations

import threading
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.responses import Response

from skep.core.errors import InputError
from skep.jobs.core import groups_of
from skep.server.context import context_of, identity_of, in_turn, reads_of
from skep.server.gate import Crowded
from skep.server.identity import Forbidden, Identity
from skep.server.routes.submit import JOB_BODY, read_body
from skep.server.schemas import JobRef, Responses, errors, write_errors
from skep.server.streams import Stream
from skep.service.advice import Asker, FixQuestion, PlanQuestion, Question
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["jobs"])
AT_ONCE = threading.BoundedSemaphore(4)
"""Each occupies a thread of the server."""
WITHIN_MAX_S = 30.0
PRIORITY_MAX = 1000
KIND = "application/x-ndjson"
LINES: Responses = {
    200: {
        "content": {KIND: {"schema": {"type": "string"}}},
        "description": "Lines of JSON: a `fix` for each change that helps, those first that cost others least; first "
        "those that let the job start now, then those that let it start sooner; at the end one line `tried`.",
    }
}


PLAN_LINES: Responses = {
    200: {
        "content": {KIND: {"schema": {"type": "string"}}},
        "description": "Lines of JSON: one `plan`, a `fix` for each other request that would start now, and `tried`.",
    }
}
PLANNED_MAX = 20
"""Jobs of one plan."""


@router.get("/jobs/{id}/changes", response_model=None, response_class=Response, responses={**LINES, **errors(404, 429)})
async def changes(
    request: Request,
    id: JobRef,
    within: Annotated[
        float, Query(ge=0, le=WITHIN_MAX_S, description="Seconds for what lets it start sooner; 0: only now.")
    ] = 8.0,
) -> Response:
    """What would let a waiting job start now or sooner, of what the caller may do; each change was tried out."""
    job = await run_in_threadpool(reads_of(request).brief, id)
    context = context_of(request)
    asker = asker_of(
        identity_of(request), job, context.config.limits.of_task(identity_of(request).who, job["vc"]).priority
    )
    question = FixQuestion(job["id"], context.live.clock(), asker, within)
    return streamed(request, question)


@router.post(
    "/jobs:plan",
    response_model=None,
    response_class=Response,
    responses={**PLAN_LINES, **write_errors(404, 409, 429)},
    openapi_extra=JOB_BODY,
)
async def plan_jobs(
    request: Request,
    within: Annotated[float, Query(ge=0, le=WITHIN_MAX_S, description="Seconds for the simulations.")] = 8.0,
) -> Response:
    """What a submission would do, without making it: where and when its jobs would start and end, their GPU-hours, who
    would be preempted and delayed; for one job that would wait, other requests that would start now."""
    identity, live, limits = identity_of(request), context_of(request).live, context_of(request).config.limits
    body = await request.body()
    reading = await in_turn(request, context_of(request).submissions, lambda: read_body(body, identity.user))
    requests = identity.homed(reading, live.owned()).requests
    identity.must_submit(requests, limits)
    if len(requests) > PLANNED_MAX:
        raise InputError(f"{len(requests)} jobs, expected at most {PLANNED_MAX} in a plan")
    specs = await run_in_threadpool(reads_of(request).check, requests)
    of_first = {"user": requests[0].user or identity.user, "vc": requests[0].vc, "id": ""}
    asker = asker_of(identity, of_first, limits.of_task(identity.who, requests[0].vc).priority)
    groups = [
        group
        for each, own in zip(requests, specs, strict=True)
        for group in groups_of(each, own[0].id.partition("/")[0])
    ]
    hidden = [msgspec.structs.replace(each, secrets={}) for each in requests]
    return streamed(request, PlanQuestion(hidden, specs, groups, live.clock(), asker, within))


def streamed(request: Request, question: Question) -> Response:
    if not AT_ONCE.acquire(blocking=False):
        raise Crowded("too many questions at once")
    lines = context_of(request).advice.ask(question)
    return Stream(iterate_in_threadpool(lines), media_type=KIND, at_end=AT_ONCE.release)


def asker_of(identity: Identity, job: Json, priority: int | None) -> Asker:
    """`priority`: the highest that the limits allow; None: any."""
    try:
        identity.must_change(job)
        may_change = True
    except Forbidden:
        may_change = False
    is_bounded = priority is not None and not identity.leads(job["vc"])
    sees = identity.sight.vcs
    return Asker(
        user="" if identity.role == "viewer" else identity.user,
        may_change=may_change,
        is_admin=identity.is_admin,
        leads=tuple(vc for vc in identity.vcs if identity.leads(vc)),
        sees=None if sees is None else tuple(sorted(sees)),
        uses=None if identity.is_admin or not identity.vcs else identity.vcs,
        priority=priority if is_bounded and priority is not None else PRIORITY_MAX,
    )
