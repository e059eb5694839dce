"""The objects that the routes use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

import msgspec
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from skep.server.advice import Advice
from skep.server.config import Config
from skep.server.gate import Gate
from skep.server.hub import ChangeStream, Hub
from skep.server.identity import Identity
from skep.server.logs import FileBudget
from skep.server.metrics import ServerMetrics
from skep.server.studies.studies import UPLOADS_MAX, Studies
from skep.server.together import Together
from skep.server.tokens import Tokens
from skep.service.history import Samples
from skep.service.live import Live
from skep.service.reads import Reads
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.server.routes.submit import FileChecks

T = TypeVar("T")


class Context(msgspec.Struct):
    live: Live
    config: Config
    hub: Hub
    changes: ChangeStream
    history: Samples
    studies: Studies
    advice: Advice
    metrics: ServerMetrics
    tokens: Tokens | None
    """None if no login is required."""
    shut_down: Callable[[float | None], None]
    """Begin to stop the server; with a number all jobs first, and the server stays if that takes more seconds."""
    log_files: FileBudget
    files: FileChecks
    overviews: Together[Json] = msgspec.field(default_factory=Together)
    """By what the reader may see."""
    lists: Gate = msgspec.field(default_factory=lambda: Gate("lists", 2, 1000, share=1.0))
    """SQLite releases the interpreter lock at every row, so that many readers wait for each other at every row, and all
    take longer than one after the other."""
    long_reads: Gate = msgspec.field(default_factory=lambda: Gate("long requests", 4, 100))
    submissions: Gate = msgspec.field(default_factory=lambda: Gate("submissions of many jobs", 2, 200))
    file_checks: Gate = msgspec.field(default_factory=lambda: Gate("submissions", 8, 1000))
    previews: Gate = msgspec.field(default_factory=lambda: Gate("changes of the cluster or policy", 1, 20, share=1.0))
    """Each holds the lock of the writer while it reads a cluster or builds a policy."""
    uploads: Gate = msgspec.field(default_factory=lambda: Gate("uploads", UPLOADS_MAX, 0, share=0.25))


def context_of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope["identity"]
    return identity


def reads_of(request: Request) -> Reads:
    """The service restricted to what the user may see. Routes that read jobs, logs, events or numbers use it."""
    return context_of(request).live.seen_by(identity_of(request).sight)


async def in_turn(request: Request, gate: Gate, work: Callable[[], T]) -> T:
    """What `work` returns, in a thread, when it is its turn."""
    async with gate.turn(identity_of(request).user):
        return await run_in_threadpool(work)


async def done(future: Future[T]) -> T:
    """Wait until the writer has made it durable. A client that disconnects must not cancel what the writer holds."""
    return await asyncio.shield(asyncio.wrap_future(future))
