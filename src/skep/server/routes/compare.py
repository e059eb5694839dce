"""Jobs side by side: what was asked for, and what they reported last."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from skep.jobs.request import without_values
from skep.server.answers import answer
from skep.server.context import identity_of, reads_of
from skep.server.schemas import REF, Answer, JobRequest, JobSchema, Word, errors
from skep.service.store import JobFilter

router = APIRouter(prefix="/api/v1", tags=["jobs"])


class Compared(JobSchema):
    request: JobRequest
    values: dict[str, float | str | None] = Field(description="What it last reported through `skep.train`, by key.")


class ComparedPage(Answer):
    jobs: list[Compared]
    next: str | None = Field(description="`cursor` of the next page; null after the last.")


@router.get("/compare", response_model=None, responses={200: {"model": ComparedPage}, **errors(404)})
def compare_jobs(
    request: Request,
    group: Word = "",
    job: Annotated[
        list[Annotated[str, Field(pattern=REF)]],
        Query(max_length=1000, description="Ids or names, instead of a group."),
    ] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=1, le=500)] = 200,
    cursor: Annotated[str, Query(pattern=r"^[A-Za-z0-9_-]{0,600}$")] = "",
) -> Response:
    """All jobs of a group, such as a sweep, or the named ones; in the order of their submission."""
    reads, identity = reads_of(request), identity_of(request)
    if not group and not job:
        return answer({"jobs": [], "next": None})
    where = JobFilter(group=group, ids=tuple(reads.brief(each)["id"] for each in job), all=True)
    found, following = reads.compared(where, limit, cursor or None)
    for each in found:
        if not identity.owns(each):
            each["request"] = without_values(each["request"])
    return answer({"jobs": found, "next": following})
