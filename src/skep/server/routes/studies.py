"""Studies: several policies on one trace, run beside the server."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from skep.server.answers import coming
from skep.server.schemas import WORD, Responses, errors, write_errors
from skep.server.shapes import Removed, Study, StudyBody, Trace

router = APIRouter(prefix="/api/v1", tags=["studies"])
Id = Annotated[str, Path(pattern="^[0-9a-f]{8}$")]
TRACE_BODY = {
    "requestBody": {
        "required": True,
        "content": {"text/csv": {"schema": {"type": "string", "description": "A trace in any format Skep reads."}}},
    }
}
REPORT: Responses = {200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "The report."}}


@router.get("/traces", response_model=None, responses={200: {"model": list[Trace]}, **errors()})
def list_traces(request: Request) -> Response:
    return coming()


@router.post(
    "/traces",
    status_code=201,
    response_model=None,
    responses={201: {"model": Trace}, **write_errors(409)},
    openapi_extra=TRACE_BODY,
)
async def upload_trace(request: Request, name: Annotated[str, Query(pattern=WORD)] = "trace.csv") -> Response:
    """Up to 256 MiB."""
    return coming()


@router.delete("/traces/{id}", response_model=None, responses={200: {"model": Removed}, **write_errors(404, 409)})
def remove_trace(request: Request, id: Id) -> Response:
    return coming()


@router.get("/studies", response_model=None, responses={200: {"model": list[Study]}, **errors()})
def list_studies(request: Request) -> Response:
    """The newest first."""
    return coming()


@router.post(
    "/studies", status_code=201, response_model=None, responses={201: {"model": Study}, **write_errors(404, 409)}
)
def start_study(request: Request, body: StudyBody) -> Response:
    return coming()


@router.get("/studies/{id}", response_model=None, responses={200: {"model": Study}, **errors(404)})
def show_study(request: Request, id: Id) -> Response:
    return coming()


@router.post("/studies/{id}/cancel", response_model=None, responses={200: {"model": Study}, **write_errors(404, 409)})
def cancel_study(request: Request, id: Id) -> Response:
    return coming()


@router.delete("/studies/{id}", response_model=None, responses={200: {"model": Removed}, **write_errors(404)})
def remove_study(request: Request, id: Id) -> Response:
    """Cancelled first if it runs."""
    return coming()


@router.get(
    "/studies/{id}/report", response_model=None, response_class=Response, responses={**REPORT, **errors(404, 409)}
)
def study_report(request: Request, id: Id) -> Response:
    """The page that `skep compare` writes."""
    return coming()
