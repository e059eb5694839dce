"""What would let a waiting job start now or sooner: changes that were tried out, as they are found."""

from __future__ import annotations

import threading
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.responses import Response

from skep.server.context import context_of, identity_of, reads_of
from skep.server.gate import Crowded
from skep.server.identity import Forbidden, Identity
from skep.server.schemas import JobRef, Responses, errors
from skep.server.streams import Stream
from skep.service.advice import Asker, FixQuestion
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
    if not AT_ONCE.acquire(blocking=False):
        raise Crowded("too many questions at once")
    return Stream(iterate_in_threadpool(context.advice.ask(question)), media_type=KIND, at_end=AT_ONCE.release)


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
