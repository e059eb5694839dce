"""The application: routes, security, metrics."""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp

from skep import __version__
from skep.server.advice import Advice
from skep.server.answers import Compress, Measure, add_error_answers
from skep.server.config import Config
from skep.server.context import Context
from skep.server.edge import Refusals
from skep.server.foresight import setup_of
from skep.server.hub import ChangeStream, Hub
from skep.server.logs import FileBudget
from skep.server.metrics import ServerMetrics
from skep.server.pages import Pages
from skep.server.routes import (
    admin,
    advice,
    changes,
    cluster,
    compare,
    events,
    exec,
    forecast,
    inspect,
    jobs,
    logs,
    overview,
    policies,
    searches,
    session,
    studies,
    submit,
)
from skep.server.security import Guard
from skep.server.studies.studies import Studies
from skep.server.token_events import record_changes
from skep.server.tokens import Tokens
from skep.service.history import Samples
from skep.service.live import Live
from skep.service.values import Json

DAY_S = 86400.0
ROUTERS = (
    *(
        submit.router,
        jobs.router,
        inspect.router,
        advice.router,
        compare.router,
        searches.router,
        logs.router,
        exec.router,
        cluster.router,
        forecast.router,
        events.router,
        changes.router,
    ),
    *(overview.router, policies.router, studies.router, session.router, admin.router, admin.root),
)


def make_app(context: Context) -> ASGIApp:
    api = make_api(context)
    guard = Guard(Pages(Compress(api)), context.config, context.tokens, Refusals(context.live.note))
    return Measure(guard, context.metrics)


def make_context(
    live: Live, config: Config, tokens: Tokens, shut_down: Callable[[float | None], None], log_files: int
) -> Context:
    history = Samples(config.data / "history.db", live.sample, live.clock, config.keep_days * DAY_S)
    studies = Studies(config.data, live.clock)
    hub = Hub(live)
    known = tokens if config.needs_token else None
    changes, budget = ChangeStream(live, hub), FileBudget(log_files)
    return Context(
        live,
        config,
        hub,
        changes,
        history,
        studies,
        Advice(setup_of(live, config)),
        ServerMetrics(live),
        known,
        shut_down,
        budget,
        submit.FileChecks(),
    )


def make_api(context: Context) -> FastAPI:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        context.hub.start()
        context.changes.start()
        context.history.start()
        await run_in_threadpool(context.studies.start)
        recording = asyncio.create_task(record_changes(context.tokens, context.live))
        yield
        recording.cancel()
        context.hub.close()
        context.changes.close()
        await run_in_threadpool(context.studies.close)
        await run_in_threadpool(context.advice.close)
        await run_in_threadpool(context.history.close)

    # FastAPI's own pages load scripts from other sites, and its own /openapi.json would block other requests.
    api = FastAPI(title="Skep", version=__version__, lifespan=lifespan, openapi_url=None, redirect_slashes=False)
    api.state.context = context
    for router in ROUTERS:
        api.include_router(router)
    add_error_answers(api)
    # Computed on the first request: it takes longer than everything else at the start of a server. As FastAPI documents
    # it.
    api.openapi = functools.cache(lambda: published(FastAPI.openapi(api)))  # type: ignore[method-assign]
    return api


def published(schema: Json) -> Json:
    """The schema as clients read it: the class `JobSchema` is published as `Job`."""
    named: Json = json.loads(re.sub(r'(["/]\w+)Schema"', r'\1"', json.dumps(without_422(schema))))
    named["components"]["schemas"] = dict(sorted(named["components"]["schemas"].items()))
    return named


def without_422(schema: Json) -> Json:
    """FastAPI declares its own answer to an invalid request; this server answers 400 in its own format."""
    for operations in schema["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema.get("components", {}).get("schemas", {}).pop(name, None)
    return schema
