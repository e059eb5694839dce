"""Searches: how far each is, which trial is the best so far, and why each was paused or stopped."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.server.answers import answer
from skep.server.context import context_of, done, identity_of, reads_of
from skep.server.schemas import Answer, SearchRule, errors, write_errors
from skep.service.searches import group_of, search_of, searches

router = APIRouter(prefix="/api/v1", tags=["searches"])

SearchName = Annotated[str, Path(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$", description="The name of the search.")]


class SearchHead(SearchRule):
    name: str
    vc: str
    user: str
    state: Literal["running", "ended"]
    spent_gpu_hours: float
    best: str | None = Field(description="The trial with the best last value, by the id of its job.")
    best_value: float | None


class SearchBrief(SearchHead):
    trials: int
    ended: int
    paused: int


class RungResult(Answer):
    step: float
    value: float | None = Field(description="Null if it was not a number.")


class TrialSchema(Answer):
    id: str
    name: str
    parameters: dict[str, str]
    state: str = Field(description="`paused`, or the state of its job.")
    why: str = Field(description="Why it waits, was paused or was stopped.")
    step: float | None
    value: float | None = Field(description="What it reported last of the metric.")
    rungs: list[RungResult]
    is_best: bool


class SearchDetail(SearchHead):
    reason: str = Field(description="Why the search ended before all of its trials had.")
    trials: list[TrialSchema]


@router.get("/searches", response_model=None, responses={200: {"model": list[SearchBrief]}, **errors()})
def list_searches(request: Request) -> Response:
    """The latest first."""
    return answer(searches(reads_of(request)))


@router.get("/searches/{name}", response_model=None, responses={200: {"model": SearchDetail}, **errors(404)})
def show_search(request: Request, name: SearchName) -> Response:
    """The latest search of that name, with its trials as they were submitted."""
    return answer(search_of(reads_of(request), name))


@router.post(
    "/searches/{name}/stop", response_model=None, responses={200: {"model": SearchDetail}, **write_errors(404, 409)}
)
async def stop_search(request: Request, name: SearchName) -> Response:
    """End it: trials that have not ended are stopped."""
    live, identity, reads = context_of(request).live, identity_of(request), reads_of(request)
    group_id, first = await run_in_threadpool(group_of, reads, name)
    identity.must_change(first)
    await done(live.stop_search(group_id, identity.who))
    return answer(await run_in_threadpool(search_of, reads, name))
