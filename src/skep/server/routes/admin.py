"""Routes about the server itself: health, metrics, tokens, backup, shutdown."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep import __version__
from skep.core.errors import Conflict, NotFound
from skep.server.answers import answer
from skep.server.context import Context, context_of, identity_of
from skep.server.schemas import (
    ACTIVE,
    HealthSchema,
    Responses,
    Revoked,
    RotateBody,
    ShutdownBody,
    Stopping,
    TokenBody,
    TokenMade,
    TokenShown,
    errors,
    write_errors,
)
from skep.server.streams import Stream
from skep.server.tokens import Token, Tokens
from skep.service.clock import boot_id

router = APIRouter(prefix="/api/v1", tags=["server"])
root = APIRouter(tags=["server"])
CHUNK = 1024 * 1024
TokenId = Annotated[str, Path(pattern="^[0-9a-f]{8}$")]


def file_of(kind: str, what: str) -> Responses:
    return {200: {"content": {kind: {"schema": {"type": "string"}}}, "description": what}}


@router.get("/health", response_model=None, responses={200: {"model": HealthSchema}, **errors()})
async def health(request: Request) -> Response:
    """Whether the server is alive. It needs no token; only callers with a token see the problems in full."""
    problems = context_of(request).live.problems()
    if problems and "identity" not in request.scope:
        problems = [f"there {'is a problem' if len(problems) == 1 else f'are {len(problems)} problems'}"]
    return answer({"status": "ok", "version": __version__, "problems": problems})


@root.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> Response:
    """Computed in a thread on the first request."""
    return answer(request.app.openapi())


@root.get(
    "/metrics",
    response_model=None,
    response_class=Response,
    responses={**file_of("text/plain", "For Prometheus."), **errors()},
)
def metrics(request: Request) -> Response:
    identity_of(request).must_see_everything("reading metrics of the whole cluster")
    return Response(context_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/shutdown", status_code=202, response_model=None, responses={202: {"model": Stopping}, **write_errors()})
async def shutdown(request: Request, body: ShutdownBody = ShutdownBody()) -> Response:  # noqa: B008 (never changed)
    """Stop the server. Jobs run on and are adopted by the next one, unless `stop_jobs`."""
    identity_of(request).must_be_admin("stopping the server")
    context = context_of(request)
    counts: dict[str, int] = (await run_in_threadpool(context.live.stats))["jobs"]
    context.shut_down(body.within_s if body.stop_jobs else None)
    running = sum(counts.get(state, 0) for state in ACTIVE)
    return answer({"running": running, "pid": os.getpid(), "boot": boot_id()}, 202)


@router.post(
    "/backup",
    response_model=None,
    response_class=Response,
    responses={**file_of("application/vnd.sqlite3", "The store as one SQLite file."), **write_errors()},
)
async def backup(request: Request) -> Response:
    identity_of(request).must_be_admin("a backup")
    path = await run_in_threadpool(make_backup, context_of(request))
    return Stream(pieces_of(path), media_type="application/vnd.sqlite3")


def make_backup(context: Context) -> FilePath:
    handle, name = tempfile.mkstemp(dir=context.config.data, prefix=".backup-", suffix=".part")
    os.close(handle)
    try:
        context.live.backup(FilePath(name))
    except BaseException:
        FilePath(name).unlink(missing_ok=True)
        raise
    return FilePath(name)


def pieces_of(path: FilePath) -> Iterator[bytes]:
    with path.open("rb") as file:
        path.unlink()  # the open file is enough, and is removed however this ends
        while piece := file.read(CHUNK):
            yield piece


@router.get("/tokens", response_model=None, responses={200: {"model": list[TokenShown]}, **errors(409)})
def list_tokens(request: Request) -> Response:
    return answer(tokens_of(request).list())


@router.post(
    "/tokens", status_code=201, response_model=None, responses={201: {"model": TokenMade}, **write_errors(409)}
)
def make_token(request: Request, body: TokenBody) -> Response:
    return made_token(tokens_of(request).create(body.user, body.role, tuple(body.vcs), body.life_s, by=by(request)))


@router.post(
    "/tokens/{id}/rotate",
    status_code=201,
    response_model=None,
    responses={201: {"model": TokenMade}, **write_errors(404, 409)},
)
def rotate_token(request: Request, id: TokenId, body: RotateBody = RotateBody()) -> Response:  # noqa: B008 (never changed)
    """Create another token of the same user, role, VCs and life; the old one ends at once, or after `overlap_s`."""
    made = tokens_of(request).rotate(id, body.overlap_s, by=by(request))
    if made is None:
        raise NotFound(f"there is no token {id}")
    return made_token(made)


def made_token(made: tuple[Token, str]) -> Response:
    return answer({**msgspec.structs.asdict(made[0]), "token": made[1]}, 201)


@router.delete("/tokens/{id}", response_model=None, responses={200: {"model": Revoked}, **write_errors(404, 409)})
def revoke_token(request: Request, id: TokenId) -> Response:
    if not tokens_of(request).revoke(id, by=by(request)):
        raise NotFound(f"there is no token {id}")
    return answer({"revoked": id})


def by(request: Request) -> str:
    return identity_of(request).who


def tokens_of(request: Request) -> Tokens:
    """Without login any client could create a token that stays valid when login is required later."""
    identity_of(request).must_be_admin("managing tokens")
    tokens = context_of(request).tokens
    if tokens is None:
        raise Conflict("this server needs no token", hint="`skep token` works on the data folder itself")
    return tokens
