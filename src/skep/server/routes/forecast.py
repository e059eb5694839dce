"""The last forecast: how it was made, and how often earlier ones held."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from skep.core.errors import NotFound
from skep.server.answers import answer
from skep.server.context import context_of, reads_of
from skep.server.schemas import Answer, errors

router = APIRouter(prefix="/api/v1", tags=["jobs"])


class JudgedSchema(Answer):
    """Earlier forecasts whose time has come."""

    what: Literal["start", "end"]
    lengths: Literal["progress", "owner", "history", "none"]
    count: int
    held: int = Field(description="In how many of them it happened between `p10_s` and `p90_s`.")
    error: float | None = Field(
        description="The median of how far it was from `p50_s`, in parts of the time from the forecast until then."
    )


class ForecastSchema(Answer):
    made_s: float
    until_s: float
    samples: int
    cpu_s: float = Field(description="CPU time that it took.")
    policy: str
    judged: list[JudgedSchema] = Field(description="Empty for readers who do not see all jobs.")


@router.get("/forecast", response_model=None, responses={200: {"model": ForecastSchema}, **errors(404)})
def show_forecast(request: Request) -> Response:
    """The forecasts of single jobs are in the jobs, as `eta`."""
    found = reads_of(request).forecast()
    if found is None:
        rules = context_of(request).config.forecast
        why = "they are switched off (`forecast: off`)" if rules is None else "none has been made yet"
        raise NotFound(f"there is no forecast: {why}", hint="the first one comes within a minute or two of the start")
    return answer(found)
