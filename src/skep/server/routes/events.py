"""Routes for past and new events."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.server.answers import answer
from skep.server.context import context_of, reads_of
from skep.server.schemas import REF, Absent, Event, Responses, Seq, errors
from skep.server.streams import Stream

router = APIRouter(prefix="/api/v1", tags=["events"])
EITHER: Responses = {
    200: {
        "model": list[Event],
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "With `follow` (default) server-sent events: `id` is the number, `event` the kind, `data` the "
        "event as JSON. With `follow=false` a list.",
    }
}


@router.get("/events", response_model=None, responses={**EITHER, **errors(404)})
async def events(
    request: Request,
    follow: bool = True,
    after: Annotated[Seq | Absent, Query(description="Only events after this number.")] = None,
    job: Annotated[str, Field(pattern=REF)] | Absent = None,
    last: Annotated[
        Annotated[int, Field(ge=0, le=10_000)] | Absent, Query(description="Begin with this many of the last events.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="With `follow=false`, and without `last`.")] = 1000,
    last_event_id: Annotated[Seq | Absent, Header(description="Continue after this number.")] = None,
) -> Response:
    """Without `after`, `last` and `Last-Event-ID` a stream begins now, and a list at the beginning."""
    context, reads = context_of(request), reads_of(request)
    job_id = (await run_in_threadpool(reads.brief, job))["id"] if job else None
    if last is not None:
        after = max(after or 0, await run_in_threadpool(reads.last_event, job_id, last))
        limit = last
    if not follow:
        return answer(await run_in_threadpool(reads.events, after or 0, job_id, limit))
    # A browser that reconnects sends its position, which is later than where it began.
    begin = last_event_id if last_event_id is not None else after
    return Stream(context.hub.stream(begin, job_id, reads), media_type="text/event-stream")
