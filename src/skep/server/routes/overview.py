"""Routes for the overview: the present cluster, and its history."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from skep import __version__
from skep.server.answers import answer
from skep.server.context import context_of, identity_of, in_turn, reads_of
from skep.server.schemas import Moment, Word, all_states, errors
from skep.server.shapes import HistorySchema, Map, Overview, Timeline
from skep.service import present, queries

router = APIRouter(prefix="/api/v1", tags=["overview"])


@router.get("/overview", response_model=None, responses={200: {"model": Overview}, **errors()})
async def overview(request: Request) -> Response:
    reads = reads_of(request)
    found = await context_of(request).overviews.get(reads.sight, lambda: present.overview(reads))
    return answer({**found, "jobs": all_states(found["jobs"]), "version": __version__})


@router.get("/map", response_model=None, responses={200: {"model": Map}, **errors()})
def cluster_map(request: Request) -> Response:
    """The tenants of every GPU."""
    return answer(present.cluster_map(reads_of(request)))


@router.get("/history", response_model=None, responses={200: {"model": HistorySchema}, **errors()})
def history(
    request: Request,
    since: Moment = None,
    until: Moment = None,
    step: Annotated[float, Query(ge=0, le=1e9, description="Seconds; 0: about 300 steps.")] = 0.0,
    vc: Annotated[bool, Query(description="Also by VC.")] = False,
) -> Response:
    """GPUs and the queue over time; without `since` the last 24 hours."""
    sight = identity_of(request).sight
    return answer(context_of(request).history.read(since, until, step, by_vc=vc, sight=sight))


@router.get("/timeline", response_model=None, responses={200: {"model": Timeline}, **errors(429)})
async def timeline(
    request: Request,
    since: Moment = None,
    until: Moment = None,
    vc: Word = "",
    user: Word = "",
    node: Word = "",
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Which jobs held which GPUs; without `since` the last 24 hours."""
    reads = reads_of(request)

    def found() -> Response:
        return answer(queries.timeline(reads, since, until, limit, vc=vc, user=user, node=node))

    return await in_turn(request, context_of(request).long_reads, found)
