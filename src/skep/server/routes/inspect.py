"""Details of one job: its curves, a search in its logs, its file."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from skep.server.answers import answer
from skep.server.context import context_of, identity_of, in_turn, reads_of
from skep.server.routes.logs import Log, chosen_tasks
from skep.server.schemas import Answer, JobRef, TaskName, errors
from skep.server.search import search
from skep.server.shapes import Curve, JobFile
from skep.service.curves import as_series, read_curves, thinned

router = APIRouter(prefix="/api/v1", tags=["jobs"])
Key = Annotated[str, Field(min_length=1, max_length=128)]


class Match(Answer):
    task: str
    attempt: int
    line: int = Field(description="Among all lines that the task has written, from 1.")
    text: str


class Matches(Answer):
    matches: list[Match] = Field(description="The newest first; of several tasks in turn.")
    is_cut: bool = Field(description="There are more in what was searched.")
    searched_bytes: int = Field(description="How much was searched: the latest.")
    bytes: int = Field(description="How much of the logs is kept.")


@router.get("/jobs/{id}/curve", response_model=None, responses={200: {"model": Curve}, **errors(404, 429)})
async def job_curve(
    request: Request,
    id: JobRef,
    key: Annotated[list[Key], Query(max_length=50, description="Only these keys; all if none is given.")] = [],  # noqa: B006
    task: TaskName = "",
    points: Annotated[int, Query(ge=10, le=5000, description="The most points of each key.")] = 500,
) -> Response:
    """What the job reported through `skep.train`, in all attempts. Steps that were repeated after a restart are
    included once, as last reported."""
    reads = reads_of(request)

    def found() -> Response:
        job_id, asked = reads.request(id)
        tasks = chosen_tasks(job_id, asked, task)
        curves = read_curves(reads.metrics(job_id, tasks[0]))
        wanted = key or list(curves.points)
        series = [as_series(name, thinned(curves.points.get(name, []), points)) for name in wanted]
        return answer(
            {"job": job_id, "task": tasks[0], "keys": list(curves.points), "series": series, "is_cut": curves.is_cut}
        )

    return await in_turn(request, context_of(request).long_reads, found)


@router.get("/jobs/{id}/logs:search", response_model=None, responses={200: {"model": Matches}, **errors(404, 429)})
async def search_logs(
    request: Request,
    id: JobRef,
    q: Annotated[str, Query(min_length=1, max_length=500, description="Text; case is ignored.")],
    task: TaskName = "",
    attempt: Annotated[int, Query(ge=0, le=10**9, description="0: the last attempt.")] = 0,
    limit: Annotated[int, Query(ge=1, le=5000)] = 200,
) -> Response:
    """Lines of the logs of all tasks that contain a text, the newest first."""
    reads = reads_of(request)

    def found() -> Response:
        job_id, asked = reads.request(id)
        log = Log(reads, job_id, chosen_tasks(job_id, asked, task), attempt)
        log.check()
        number = attempt or reads.brief(job_id)["attempts"]
        return answer(search(((name, number, log.open(name)) for name in log.tasks), len(log.tasks), q, limit))

    return await in_turn(request, context_of(request).long_reads, found)


@router.get("/jobs/{id}/file", response_model=None, responses={200: {"model": JobFile}, **errors(404)})
def job_file(request: Request, id: JobRef) -> Response:
    """The job as a file, to edit and submit again. Secrets are hidden; from callers other than the owner, variables
    too."""
    reads = reads_of(request)
    job = reads.brief(id)
    return answer(reads.job_file(job["id"], hide_values=not identity_of(request).owns(job)))
