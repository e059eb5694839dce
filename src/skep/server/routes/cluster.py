"""Routes about the cluster: nodes, VCs, the policy, usage."""

from __future__ import annotations

import csv
import io
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.core.errors import InputError
from skep.server.answers import answer
from skep.server.context import context_of, done, identity_of, in_turn, reads_of
from skep.server.routes.submit import text_of
from skep.server.schemas import (
    LINE,
    NODE,
    WORD,
    ChangesSchema,
    Moment,
    NodePatch,
    PolicyBody,
    PolicySchema,
    Responses,
    errors,
    write_errors,
)
from skep.server.shapes import ClusterSchema, DrainPreview, LimitSchema, NodeSchema, Usage, VcSchema
from skep.service.present import drain_preview
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["cluster"])
CLUSTER_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string", "description": "A cluster file or a short spec."}},
            "application/json": {"schema": {"type": "object"}},
        },
    }
}


@router.get("/nodes", response_model=None, responses={200: {"model": list[NodeSchema]}, **errors()})
def list_nodes(request: Request) -> Response:
    return answer(reads_of(request).nodes())


@router.patch("/nodes/{name}", response_model=None, responses={200: {"model": NodeSchema}, **write_errors(404, 409)})
async def change_node(request: Request, name: Annotated[str, Path(pattern=NODE)], change: NodePatch) -> Response:
    """`drained`: nothing new starts there. `lost`: what runs there is killed. `up`: in use again."""
    identity_of(request).must_be_admin("changing a node")
    live = context_of(request).live
    await done(live.set_node(name, change.state, identity_of(request).who))
    nodes: list[Json] = await run_in_threadpool(live.nodes)
    return answer(next((node for node in nodes if node["name"] == name), {}))


@router.get("/vcs", response_model=None, responses={200: {"model": list[VcSchema]}, **errors()})
def list_vcs(request: Request) -> Response:
    return answer(reads_of(request).vcs())


@router.get("/cluster", response_model=None, responses={200: {"model": ClusterSchema}, **errors()})
def show_cluster(request: Request) -> Response:
    return answer(reads_of(request).cluster())


@router.put(
    "/cluster",
    response_model=None,
    responses={200: {"model": ChangesSchema}, **write_errors(409, 429)},
    openapi_extra=CLUSTER_BODY,
)
async def apply_cluster(
    request: Request,
    dry_run: Annotated[bool, Query(description="Only return what would change.")] = False,
    name: Annotated[str, Query(pattern=WORD)] = "cluster.yaml",
) -> Response:
    """Reconfigure nodes, cells and VCs while jobs run."""
    identity_of(request).must_be_admin("changing the cluster")
    live, text = context_of(request).live, text_of(await request.body())
    if not text.strip():
        raise InputError("the body is empty, expected a cluster file")
    changes = await in_turn(request, context_of(request).previews, lambda: live.preview_cluster(text, name))
    if not dry_run:
        await done(live.apply_cluster(text, name, identity_of(request).who))
    return answer({"changes": changes})


@router.get("/policy", response_model=None, responses={200: {"model": PolicySchema}, **errors()})
def show_policy(request: Request) -> Response:
    return answer(context_of(request).live.policy())


@router.put("/policy", response_model=None, responses={200: {"model": PolicySchema}, **write_errors(409, 429)})
async def use_policy(
    request: Request,
    body: PolicyBody,
    dry_run: Annotated[bool, Query(description="Only return what would be missing; nothing is changed.")] = False,
) -> Response:
    """`missing` has the needs of the policy that are not met here; the policy decides without them."""
    identity_of(request).must_be_admin("changing the policy")
    live = context_of(request).live
    missing = await in_turn(request, context_of(request).previews, lambda: live.missing(body.policy, body.files))
    if dry_run:
        return answer({"policy": body.policy, "problems": [], "missing": missing})
    await done(live.use_policy(body.policy, identity_of(request).who, body.files))
    return answer(await run_in_threadpool(live.policy))


@router.get("/nodes/{name}/drain", response_model=None, responses={200: {"model": DrainPreview}, **errors(404, 429)})
async def preview_drain(request: Request, name: Annotated[str, Path(pattern=NODE)]) -> Response:
    """What draining this node would affect. Changes nothing."""
    reads = reads_of(request)
    return await in_turn(request, context_of(request).long_reads, lambda: answer(drain_preview(reads, name)))


@router.get("/limits", response_model=None, responses={200: {"model": list[LimitSchema]}, **errors()})
def show_limits(request: Request) -> Response:
    """Limits and their use: of the caller (of all users, if the caller sees every VC), and of VCs."""
    identity = identity_of(request)
    sees_all = identity.sight.is_whole and identity.role != "user"
    return answer(reads_of(request).limits(None if sees_all else identity.user))


FORMULA = tuple("=+-@\t\r")
USAGE: Responses = {
    200: {
        "model": list[Usage],
        "content": {"text/csv": {"schema": {"type": "string"}}},
        "description": "With `format=csv` a table with a header line.",
    }
}


@router.get("/usage", response_model=None, responses={**USAGE, **errors(429)})
async def show_usage(
    request: Request,
    by: Literal["user", "vc", "job"] = "user",
    since: Moment = None,
    until: Moment = None,
    vc: Annotated[str, Query(max_length=128, pattern=LINE, description="Only jobs of this VC.")] = "",
    format: Literal["json", "csv"] = "json",
) -> Response:
    """GPU-hours."""
    reads = reads_of(request)
    rows = await in_turn(request, context_of(request).long_reads, lambda: reads.usage(by, since, until, vc))
    if format == "csv":
        name = f'attachment; filename="usage-by-{by}.csv"'
        return Response(csv_text(by, rows), media_type="text/csv", headers={"content-disposition": name})
    return answer(rows)


def csv_text(by: str, rows: list[Json]) -> str:
    """With a header line. A spreadsheet must not interpret a name as a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((by, "jobs", "gpu_hours"))
    for row in rows:
        name = f"'{row[by]}" if row[by][:1] in FORMULA else row[by]
        writer.writerow((name, row["jobs"], row["gpu_hours"]))
    return text.getvalue()
