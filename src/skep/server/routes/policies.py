"""The policies there are, and what the one in charge decided."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from skep.server.answers import coming
from skep.server.schemas import REF, Absent, Seq, errors
from skep.server.shapes import Decisions, PolicyInfo

router = APIRouter(prefix="/api/v1", tags=["policies"])


@router.get("/policies", response_model=None, responses={200: {"model": list[PolicyInfo]}, **errors()})
def list_policies(request: Request) -> Response:
    return coming()


@router.get("/decisions", response_model=None, responses={200: {"model": Decisions}, **errors(404)})
def list_decisions(
    request: Request,
    last: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[Seq | Absent, Query(description="Only from log entries before this number.")] = None,
    job: Annotated[str, Field(pattern=REF)] | Absent = None,
) -> Response:
    """Starts, preemptions, moves, resizes and rejections with their reasons, the newest first. They come from the
    log, so a restart does not lose them."""
    return coming()
