"""The log of a job, as it is or as it grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.core.errors import NotFound
from skep.server.context import context_of
from skep.server.logs import Reader, log_stream
from skep.server.schemas import ENDED, Absent, JobRef, Responses, TaskName, errors
from skep.server.streams import Stream

router = APIRouter(prefix="/api/v1", tags=["jobs"])
Lines = Annotated[int, Field(ge=0, le=10**9)]
TEXT: Responses = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "What the task wrote."}
}


@router.get("/jobs/{id}/logs", response_model=None, response_class=Response, responses={**TEXT, **errors(404)})
async def job_logs(
    request: Request,
    id: JobRef,
    task: TaskName = "",
    attempt: Annotated[int, Query(ge=0, le=10**9, description="0: the last one.")] = 0,
    tail: Annotated[Lines | Absent, Query(description="Only the last lines.")] = None,
    follow: Annotated[
        bool, Query(description="Go on until the attempt, or with attempt 0 the job, has ended.")
    ] = False,
) -> Response:
    context = context_of(request)
    log = Log(context.live, (await run_in_threadpool(context.live.brief, id))["id"], task, attempt)
    await run_in_threadpool(log.check)
    reader = await run_in_threadpool(Reader, log.files, tail)
    pieces = log_stream(reader, log.is_over, context.hub, follow=follow)
    return Stream(pieces, media_type="text/plain; charset=utf-8")


class Log(msgspec.Struct):
    """Which log is meant."""

    live: Any
    job_id: str
    task: str
    attempt: int

    def check(self) -> None:
        """An unknown task is an answer, not a broken stream; what is not there yet is an empty log."""
        try:
            self.live.log_files(self.job_id, self.task, self.attempt)
        except NotFound:
            if self.live.brief(self.job_id)["attempts"] or self.attempt > 1:
                raise

    def files(self) -> list[Path]:
        try:
            found: list[Path] = self.live.log_files(self.job_id, self.task, self.attempt)
        except NotFound:
            return []
        return found

    def is_over(self) -> bool:
        try:
            job = self.live.brief(self.job_id)
        except NotFound:  # forgotten while somebody was reading
            return True
        return job["state"] in ENDED or 0 < self.attempt < job["attempts"]
