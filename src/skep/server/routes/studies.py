"""Routes for studies: several policies on one trace, run beside the server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from skep.clusters.spec import looks_like_spec, parse_groups
from skep.core.errors import InputError, NotFound
from skep.policies.registry import files_of, needs_of
from skep.server.answers import answer
from skep.server.context import context_of, identity_of, in_turn, reads_of
from skep.server.identity import Forbidden
from skep.server.schemas import WORD, Responses, errors, write_errors
from skep.server.shapes import Removed, StudyBody, StudySchema, TraceSchema
from skep.server.studies.past import past_vcs
from skep.server.studies.records import HISTORY, PastJobs, StudyRecord, TraceRecord, shown
from skep.server.studies.studies import Studies

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
    found = context_of(request).studies.traces.all()
    return answer([trace for trace in found if may_see(request, trace)])


@router.post(
    "/traces",
    status_code=201,
    response_model=None,
    responses={201: {"model": TraceSchema}, **write_errors(409, 429)},
    openapi_extra=TRACE_BODY,
)
async def upload_trace(request: Request, name: Annotated[str, Query(pattern=WORD)] = "trace.csv") -> Response:
    """Up to 256 MiB. `name` is only shown."""
    context, identity = context_of(request), identity_of(request)
    identity.must_write()
    async with context.uploads.turn(identity.user):
        return answer(await received(request, context.studies, name), 201)


async def received(request: Request, studies: Studies, name: str) -> TraceRecord:
    """The upload in threads of its own: it waits for the client, for the disk and for the check."""
    run, traces = studies.threads.run, studies.traces
    upload = await run(traces.begin, identity_of(request).user)
    try:
        async for piece in request.stream():
            await run(upload.write, piece)
        return await asyncio.shield(run(traces.finish, upload, name))
    finally:
        await asyncio.shield(run(upload.discard))


@router.delete("/traces/{id}", response_model=None, responses={200: {"model": Removed}, **write_errors(404, 409)})
def remove_trace(request: Request, id: Id) -> Response:
    traces = context_of(request).studies.traces
    must_change(request, seen_trace(request, id))
    traces.remove(id)
    return answer({"removed": id})


@router.get("/studies", response_model=None, responses={200: {"model": list[StudySchema]}, **errors()})
def list_studies(request: Request) -> Response:
    """The newest first."""
    return answer([shown(study) for study in context_of(request).studies.all() if may_see(request, study)])


@router.post(
    "/studies",
    status_code=201,
    response_model=None,
    responses={201: {"model": StudySchema}, **write_errors(404, 409, 429)},
)
async def start_study(request: Request, body: StudyBody) -> Response:
    """The study is queued; one runs at a time, in a process of low priority. The server itself builds nothing."""
    identity_of(request).must_write()
    return await in_turn(request, context_of(request).long_reads, lambda: answer(shown(started(request, body)), 201))


def started(request: Request, body: StudyBody) -> StudyRecord:
    reads, trace, past = reads_of(request), None, None
    if body.files:
        identity_of(request).must_be_admin("policies of one's own, which are code,")
    if not body.policies and not body.repetitions:
        raise InputError("no policy is named", hint="with repetitions, all that the trace can serve are compared")
    check_policies(body.policies, body.files)
    name, text, files = chosen_cluster(request, body.cluster)
    if body.trace == HISTORY:
        past = PastJobs(body.since_s, body.until_s, reads.clock(), reads.sight)
        trace_name, vcs = HISTORY, past_vcs(reads.store.reader, past)
    else:
        trace = seen_trace(request, body.trace)
        trace_name, vcs = trace.name, trace.vcs
    if not body.cluster:
        check_named_vcs(vcs, reads.guaranteed(), trace_name)
    study = StudyRecord(
        id=secrets.token_hex(4),
        name=body.name or f"{trace_name} on {name}",
        user=identity_of(request).user,
        trace=body.trace,
        trace_name=trace_name,
        cluster=name,
        cluster_text=text,
        files=files | body.files,
        policies=list(dict.fromkeys(body.policies)),
        seed=body.seed,
        estimate_error=body.estimate_error,
        repetitions=body.repetitions,
        past=past,
        created_s=reads.clock(),
    )
    return context_of(request).studies.add(study, trace)


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
    "/studies/{id}/report", response_model=None, response_class=Response, responses={**REPORT, **errors(404, 409, 429)}
)
async def study_report(request: Request, id: Id) -> Response:
    """The page that `skep compare` writes."""

    def found() -> bytes:
        seen_study(request, id)
        return context_of(request).studies.report(id)

    text = await in_turn(request, context_of(request).long_reads, found)
    headers = {"content-security-policy": REPORT_POLICY, "x-frame-options": "SAMEORIGIN"}
    return Response(text, media_type="text/html; charset=utf-8", headers=headers)


def check_policies(specs: list[str], sent: Collection[str]) -> None:
    """A request must not name files of this machine: neither a policy of its own nor a knob. Files that it brings are
    code, which only the process of the study loads."""
    for spec in specs:
        if ".py:" in spec and files_of(spec)[0] in sent:
            continue
        if files_of(spec):
            raise InputError(f"policy '{spec[:100]}' names a file", hint="studies run the policies of GET /policies")
        needs_of(spec)  # raises for parts that do not exist


def check_named_vcs(named: list[str], known: Collection[str], trace: str) -> None:
    """Raises if a trace names VCs that the cluster, which has some, does not have: the study would fail later."""
    missing = [name for name in named if name not in known]
    if known and missing:
        these = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        hint = f"it has {', '.join(list(known)[:20])}; choose a cluster without VCs, such as 16x8"
        raise InputError(f"{trace} has jobs of VCs that this cluster does not have: {these}", hint=hint)


def chosen_cluster(request: Request, spec: str) -> tuple[str, str, dict[str, str]]:
    """Name, text and files of its policies: of a spec, or of the cluster of this server."""
    if spec:
        if not looks_like_spec(spec):
            raise InputError(
                f"cluster '{spec[:100]}' is not a valid spec", hint="for example 16x8 or 8x8:v100+4x4:p100"
            )
        parse_groups(spec)
        return spec, spec, {}
    identity_of(request).must_see_everything("a study on the cluster of this server")
    ground = context_of(request).live.writer.ground
    return ground.name, ground.text, ground.files.get("cluster", {})


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
    trace = context_of(request).studies.traces.get(trace_id)
    if not may_see(request, trace):
        raise NotFound(f"there is no trace {trace_id}")
    return trace


def must_change(request: Request, made: StudyRecord | TraceRecord) -> None:
    identity = identity_of(request)
    identity.must_write()
    if identity.role != "admin" and made.user != identity.user:
        raise Forbidden(403, f"{made.name} belongs to {made.user or 'an unnamed user'}, not to {identity.who}")
