"""The stream of changes for browsers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from skep.server.context import context_of, reads_of
from skep.server.schemas import Absent, Responses, Seq, errors
from skep.server.shapes import Change
from skep.server.streams import Stream

router = APIRouter(prefix="/api/v1", tags=["events"])
MESSAGES: Responses = {
    200: {
        "model": Change,
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
        "description": "Server-sent events without a name (`onmessage`); the data of each is this as JSON.",
    }
}


@router.get("/changes", response_model=None, responses={**MESSAGES, **errors()})
async def changes(
    request: Request,
    after: Annotated[Seq | Absent, Query(description="Continue after this event.")] = None,
    last_event_id: Annotated[Seq | Absent, Header(description="As `after`, sent by browsers that reconnect.")] = None,
) -> Response:
    """Events together with the jobs they changed, collected four times a second. It begins with a message at once."""
    begin = last_event_id if last_event_id is not None else after
    stream = context_of(request).changes.stream(begin, reads_of(request))
    return Stream(stream, media_type="text/event-stream")
