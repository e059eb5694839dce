"""Routes for studies: several policies on one trace, run beside the server."""

from __future__ import annotations

import contextlib
import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.clusters.read import read_text
from skep.clusters.spec import looks_like_spec
from skep.core.errors import InputError, NotFound
from skep.policies.registry import parse_policy
from skep.server.answers import answer
from skep.server.context import context_of, identity_of, reads_of
from skep.server.identity import Forbidden
from skep.server.schemas import WORD, Responses, errors, write_errors
from skep.server.shapes import Removed, StudyBody, StudySchema, TraceSchema
from skep.server.studies.past import past_trace
from skep.server.studies.records import HISTORY, StudyRecord, TraceRecord, shown

router = APIRouter(prefix="/api/v1", tags=["studies"])
Id = Annotated[str, Path(pattern="^[0-9a-f]{8}$")]
TRACE_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "description": "A trace in any format Skep reads."}}
            for kind in ("text/csv", "application/octet-stream")
        },
    }
}
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""The report is one page with an inline script: it is isolated from the dashboard and cannot load anything."""
REPORT: Responses = {200: {"content": {"text/html": {"schema": {"type": "string"}}}, "description": "The report."}}


@router.get("/traces", response_model=None, responses={200: {"model": list[TraceSchema]}, **errors()})
def list_traces(request: Request) -> Response:
    """The newest first."""
    found = context_of(request).studies.list_traces()
    return answer([trace for trace in found if may_see(request, trace)])


@router.post(
    "/traces",
    status_code=201,
    response_model=None,
    responses={201: {"model": TraceSchema}, **write_errors(409)},
    openapi_extra=TRACE_BODY,
)
async def upload_trace(request: Request, name: Annotated[str, Query(pattern=WORD)] = "trace.csv") -> Response:
    """Up to 256 MiB."""
    identity = identity_of(request)
    identity.must_write()
    studies = context_of(request).studies
    trace_id, upload = await run_in_threadpool(studies.new_upload)
    try:
        with upload.open("wb") as file:
            async for piece in request.stream():
                await run_in_threadpool(file.write, piece)
        made = await run_in_threadpool(studies.add_trace, trace_id, upload, name, identity.user)
    finally:
        with contextlib.suppress(OSError):
            upload.unlink(missing_ok=True)
    return answer(made, 201)


@router.delete("/traces/{id}", response_model=None, responses={200: {"model": Removed}, **write_errors(404, 409)})
def remove_trace(request: Request, id: Id) -> Response:
    studies = context_of(request).studies
    must_change(request, studies.get_trace(id))
    studies.remove_trace(id)
    return answer({"removed": id})


@router.get("/studies", response_model=None, responses={200: {"model": list[StudySchema]}, **errors()})
def list_studies(request: Request) -> Response:
    """The newest first."""
    return answer([shown(study) for study in context_of(request).studies.all() if may_see(request, study)])


@router.post(
    "/studies", status_code=201, response_model=None, responses={201: {"model": StudySchema}, **write_errors(404, 409)}
)
def start_study(request: Request, body: StudyBody) -> Response:
    """The study is queued; one runs at a time, in a process of low priority."""
    identity, studies = identity_of(request), context_of(request).studies
    identity.must_write()
    check_policies(body.policies)
    reads = reads_of(request)
    name, text = chosen_cluster(request, body.cluster)
    if body.trace == HISTORY:
        history, trace_name = past_trace(reads, body.since_s, body.until_s), "history"
    else:
        history, trace_name = None, seen_trace(request, body.trace).name
    study = StudyRecord(
        id=secrets.token_hex(4),
        name=body.name or f"{trace_name} on {name}",
        user=identity.user,
        trace=body.trace,
        trace_name=trace_name,
        cluster=name,
        cluster_text=text,
        policies=list(dict.fromkeys(body.policies)),
        seed=body.seed,
        estimate_error=body.estimate_error,
        created_s=reads.clock(),
    )
    return answer(shown(studies.add(study, history)), 201)


@router.get("/studies/{id}", response_model=None, responses={200: {"model": StudySchema}, **errors(404)})
def show_study(request: Request, id: Id) -> Response:
    return answer(shown(seen_study(request, id)))


@router.post(
    "/studies/{id}/cancel", response_model=None, responses={200: {"model": StudySchema}, **write_errors(404, 409)}
)
def cancel_study(request: Request, id: Id) -> Response:
    must_change(request, seen_study(request, id))
    return answer(shown(context_of(request).studies.cancel(id)))


@router.delete("/studies/{id}", response_model=None, responses={200: {"model": Removed}, **write_errors(404)})
def remove_study(request: Request, id: Id) -> Response:
    """A running study is cancelled first."""
    must_change(request, seen_study(request, id))
    context_of(request).studies.remove(id)
    return answer({"removed": id})


@router.get(
    "/studies/{id}/report", response_model=None, response_class=Response, responses={**REPORT, **errors(404, 409)}
)
def study_report(request: Request, id: Id) -> Response:
    """The page that `skep compare` writes."""
    seen_study(request, id)
    text = context_of(request).studies.report(id).read_bytes()
    headers = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def check_policies(specs: list[str]) -> None:
    """Only policies by name: a request must not name files of this machine."""
    for spec in specs:
        if ".py" in spec or "/" in spec:
            raise InputError(f"policy '{spec[:100]}' names a file", hint="studies run the policies of GET /policies")
        parse_policy(spec)


def chosen_cluster(request: Request, spec: str) -> tuple[str, str]:
    """Name and text: a spec, or the cluster of this server."""
    if spec:
        if not looks_like_spec(spec):
            raise InputError(
                f"cluster '{spec[:100]}' is not a valid spec", hint="for example 16x8 or 8x8:v100+4x4:p100"
            )
        read_text(spec, spec)
        return spec, spec
    identity_of(request).must_see_everything("a study on the cluster of this server")
    ground = context_of(request).live.cluster()
    return ground["name"], ground["text"]


def may_see(request: Request, made: StudyRecord | TraceRecord) -> bool:
    """The user's own studies; users who see every VC see those of others too."""
    identity = identity_of(request)
    return identity.sight.is_whole or made.user == identity.user


def seen_study(request: Request, study_id: str) -> StudyRecord:
    study = context_of(request).studies.get(study_id)
    if not may_see(request, study):
        raise NotFound(f"there is no study {study_id}")
    return study


def seen_trace(request: Request, trace_id: str) -> TraceRecord:
    trace = context_of(request).studies.get_trace(trace_id)
    if not may_see(request, trace):
        raise NotFound(f"there is no trace {trace_id}")
    return trace


def must_change(request: Request, made: StudyRecord | TraceRecord) -> None:
    identity = identity_of(request)
    identity.must_write()
    if not may_see(request, made):
        raise NotFound("there is no such thing")
    if identity.role != "admin" and made.user != identity.user:
        raise Forbidden(403, f"{made.name} belongs to {made.user or 'an unnamed user'}, not to {identity.who}")
