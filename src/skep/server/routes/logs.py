"""The log of a job, complete or while it grows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.core.errors import NotFound
from skep.core.ports import LogReader
from skep.jobs.request import FOLLOWED_MAX, task_names
from skep.server.context import context_of, reads_of
from skep.server.logs import LabelledLog, LineRange, PlainLog, Text, log_stream, log_text
from skep.server.schemas import ENDED, Absent, JobRef, Responses, TaskName, errors
from skep.server.streams import Stream
from skep.service.reads import Reads
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["jobs"])
Lines = Annotated[int, Field(ge=0, le=10**9)]
TEXT: Responses = {
    200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The output of the tasks."}
}


@router.get("/jobs/{id}/logs", response_model=None, response_class=Response, responses={**TEXT, **errors(404)})
async def job_logs(
    request: Request,
    id: JobRef,
    task: TaskName = "",
    attempt: Annotated[int, Query(ge=0, le=10**9, description="0: the last attempt.")] = 0,
    tail: Annotated[Lines | Absent, Query(description="Only the last lines, of each task.")] = None,
    follow: Annotated[
        bool, Query(description="Continue until the attempt, or with attempt 0 the job, has ended.")
    ] = False,
    numbers: Annotated[bool, Query(description="Each line after its number in the output of its task.")] = False,
    first: Annotated[int, Query(ge=1, le=10**12, description="With `numbers`: begin with this line.")] = 1,
    lines: Annotated[Lines | Absent, Query(description="With `numbers`: at most this many lines of each task.")] = None,
) -> Response:
    """Without `task`, for a job with several tasks: the logs of all (`follow`: of the first 64), each line after the
    name of its task."""
    context, reads = context_of(request), reads_of(request)
    job_id, asked = await run_in_threadpool(reads.request, id)
    log = Log(reads, job_id, chosen_tasks(job_id, asked, task), attempt, LineRange(first, lines) if numbers else None)
    await run_in_threadpool(log.check)
    makers = log.readers()[:FOLLOWED_MAX] if follow else log.readers()
    budget, count = context.log_files, len(makers) if follow else 1
    budget.take(count)
    try:
        if follow:
            readers = await run_in_threadpool(lambda: [make(tail) for make in makers])
            pieces = log_stream(readers, log.is_over, context.hub)
        else:
            pieces = log_text(make(tail) for make in makers)
        return Stream(pieces, media_type="text/plain; charset=utf-8", at_end=lambda: budget.give(count))
    except BaseException:
        budget.give(count)
        raise


def chosen_tasks(job_id: str, request: Json, task: str) -> list[str]:
    names = task_names(request)
    if task and task not in names:
        raise NotFound(f"job {job_id} has no task {task}", hint=f"it has {', '.join(names[:20])}")
    return [task] if task else names


class Log(msgspec.Struct):
    """Selects the log."""

    live: Reads
    job_id: str
    tasks: list[str]
    attempt: int
    lines: LineRange | None = None

    def check(self) -> None:
        """An unknown attempt is an error and not a broken stream; an attempt that has not begun has an empty log."""
        if not self.live.brief(self.job_id)["attempts"] and self.attempt <= 1:
            return
        for task in self.tasks:
            try:
                self.live.check_log(self.job_id, task, self.attempt)
            except NotFound:
                if task == self.tasks[-1]:  # an elastic job has them in some attempts, others start one by one
                    raise
            else:
                return

    def readers(self) -> list[Callable[[int | None], Text]]:
        """Functions that open the logs when needed."""
        if len(self.tasks) == 1:
            only = self.tasks[0]
            return [lambda tail: PlainLog(self.open(only, tail))] if self.lines is None else [self._labelled(only, "")]
        width = max(map(len, self.tasks))
        return [self._labelled(task, f"{task:<{width}} | ") for task in self.tasks]

    def _labelled(self, task: str, label: str) -> Callable[[int | None], Text]:
        return lambda tail: LabelledLog(self.open(task, tail), label, self.lines)

    def open(self, task: str, tail: int | None = None) -> LogReader:
        return self.live.open_log(self.job_id, task, self.attempt, tail)

    def is_over(self) -> bool:
        try:
            job = self.live.brief(self.job_id)
        except NotFound:  # deleted by retention while it was read
            return True
        return job["state"] in ENDED or 0 < self.attempt < job["attempts"]
