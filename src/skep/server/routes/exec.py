"""Commands beside a task that runs elsewhere: `skep exec` on Kubernetes."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
from starlette.responses import Response

from skep.server.context import context_of, identity_of, reads_of
from skep.server.gate import Crowded
from skep.server.schemas import JobRef, Responses, Strict, write_errors
from skep.server.streams import Stream

router = APIRouter(prefix="/api/v1", tags=["jobs"])
AT_ONCE = threading.BoundedSemaphore(8)
"""Each occupies a thread of the server."""
OUTPUT: Responses = {
    200: {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "description": "Frames: a byte (1 stdout, 2 stderr, 0 the exit code as text), four with the size, the content.",
    }
}


class ExecBody(Strict):
    argv: list[str] = Field(min_length=1, max_length=1000, description="The command, not read by a shell.")
    task: str = Field(default="", max_length=200, description="Empty: the first task.")


@router.post(
    "/jobs/{id}/exec", response_model=None, response_class=Response, responses={**OUTPUT, **write_errors(404, 409)}
)
async def exec_beside(request: Request, id: JobRef, body: ExecBody) -> Response:
    """Run a command in the container of a task, for the owner of the job. There is no input."""
    job = await run_in_threadpool(reads_of(request).brief, id)
    identity_of(request).must_own(job)
    if not AT_ONCE.acquire(blocking=False):
        raise Crowded("too many commands at once")
    try:
        live = context_of(request).live
        pieces = await run_in_threadpool(live.run_beside, job["id"], body.task, body.argv)
        return Stream(
            iterate_in_threadpool(frames(pieces)), media_type="application/octet-stream", at_end=AT_ONCE.release
        )
    except BaseException:
        AT_ONCE.release()
        raise


def frames(pieces: Iterator[tuple[int, bytes]]) -> Iterator[bytes]:
    for channel, content in pieces:
        yield struct.pack("!BI", channel, len(content)) + content
