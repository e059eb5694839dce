"""Submission: the one write that comes by the thousand, so bodies are decoded and answers encoded without intermediate
objects."""

from __future__ import annotations

import functools
import os
import queue
import re
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC
from skep.jobs.problems import read_all
from skep.jobs.read import Reading, from_mapping, read_requests
from skep.jobs.request import Request as JobRequest
from skep.jobs.request import TaskRole, in_full, masked
from skep.server.answers import answer, one_line
from skep.server.context import context_of, done, identity_of, in_turn, reads_of
from skep.server.identity import Forbidden
from skep.server.job_schema import BATCH, JOBS
from skep.server.schemas import Ids, Submitted, errors, write_errors
from skep.server.shapes import DryRun, Example
from skep.service.live import Live
from skep.service.values import Json

router = APIRouter(prefix="/api/v1", tags=["jobs"])
INLINE_MAX = 8192
"""A longer body is read in a thread, so that other requests need not wait."""
EXAMPLES = Path(__file__).parent.parent / "examples"
SHOWN_MAX = 100
"""The most jobs of a sweep that a dry run shows."""
KEY = re.compile(r"[!-~]{1,200}")
KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": f"^{KEY.pattern}$"},
    "description": "Requests of one user with the same key are one submission.",
}
JOB_BODY: Json = {
    "parameters": [KEY_HEADER],
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": JOBS} for kind in ("application/json", "application/yaml")},
    },
}
BATCH_BODY: Json = {
    "parameters": [KEY_HEADER],
    "requestBody": {"required": True, "content": {"application/json": {"schema": BATCH}}},
}


class SubmittedBatch(msgspec.Struct, forbid_unknown_fields=True):
    jobs: Annotated[list[Json], msgspec.Meta(min_length=1)]


_batch = msgspec.json.Decoder(SubmittedBatch)


@router.post(
    "/jobs",
    status_code=201,
    response_model=None,
    responses={
        200: {"model": DryRun, "description": "With `dry_run`."},
        201: {"model": Submitted},
        **write_errors(404, 409, 429),
    },
    openapi_extra=JOB_BODY,
)
async def submit(
    request: Request,
    dry_run: Annotated[
        bool, Query(description="Submit nothing: return what would be submitted, or what is wrong.")
    ] = False,
) -> Response:
    """Submit a job (or several, all or none). It is durable when this answers."""
    live, identity = context_of(request).live, identity_of(request)
    body = await request.body()
    key_of(request)  # an invalid key is refused, dry run or not
    if dry_run:
        if not body:
            raise InputError("the body is empty, expected a job file")
        return answer(await in_turn(request, context_of(request).submissions, lambda: try_out(request, body)))
    if len(body) > INLINE_MAX or b"sweep" in body:  # a few bytes may describe ten thousand jobs
        reading = await in_turn(request, context_of(request).submissions, lambda: read_body(body, identity.user))
    else:
        reading = read_body(body, identity.user)
    reading = await file_checked(request, identity.homed(reading, live.owned()))
    identity.must_submit(reading.requests, context_of(request).config.limits)
    ids = await submitted(request, reading)
    if len(ids) == 1:
        return submitted_answer(live, ids, reading.warnings)
    return await run_in_threadpool(submitted_answer, live, ids, reading.warnings)  # a sweep may have ten thousand jobs


async def submitted(request: Request, reading: Reading) -> list[str]:
    """Their ids, when they are durable."""
    live, identity = context_of(request).live, identity_of(request)

    def ask() -> Future[list[str]]:
        asked: Future[list[str]] = live.submit(reading.requests, identity.who, key_of(request), identity.sight)
        return asked

    ids: list[str] = await done(ask() if len(reading.requests) == 1 else await run_in_threadpool(ask))
    return ids


def submitted_answer(live: Live, ids: list[str], warnings: list[str]) -> Response:
    jobs = [live.brief(ids[0])] if len(ids) == 1 else live.rows(ids)
    places = {job_id: place for place, job_id in enumerate(ids)}
    jobs.sort(key=lambda job: places[job["id"]])
    return answer({**jobs[0], "jobs": jobs, "warnings": warnings}, 201)


@router.post(
    "/jobs:batch",
    status_code=201,
    response_model=None,
    responses={201: {"model": Ids}, **write_errors(404, 409, 429)},
    openapi_extra=BATCH_BODY,
)
async def submit_batch(request: Request) -> Response:
    """Submit many jobs, all or none."""
    identity, body = identity_of(request), await request.body()
    reading = await in_turn(request, context_of(request).submissions, lambda: read_batch(body, identity.user))
    reading = await file_checked(request, identity.homed(reading, context_of(request).live.owned()))
    identity.must_submit(reading.requests, context_of(request).config.limits)
    ids = await submitted(request, reading)
    return answer({"ids": ids, "warnings": reading.warnings}, 201)


@router.get("/examples", response_model=None, responses={200: {"model": list[Example]}, **errors()})
def list_examples(request: Request) -> Response:
    """Example job files."""
    return answer(examples())


@functools.cache
def examples() -> list[dict[str, str]]:
    """Each begins with a comment that is its title."""
    found = []
    for path in sorted(EXAMPLES.glob("*.yaml")):
        title, _, text = path.read_text("utf-8").partition("\n")
        found.append({"name": path.stem.partition("-")[2], "title": title.removeprefix("# "), "text": text})
    return found


def try_out(request: Request, body: bytes) -> Json:
    """What would be submitted, or everything that is wrong with it."""
    identity = identity_of(request)
    reading, faults = read_all(text_of(body), "job", identity.user)
    if reading is not None:
        try:
            reading = identity.homed(reading, context_of(request).live.owned())
            context_of(request).files.check(reading.requests)
            reading = Reading(reading.requests, [*reading.warnings, *remarks(reading.requests, vcs_of(request))])
            identity.must_submit(reading.requests, context_of(request).config.limits)
            reads_of(request).check(reading.requests)
        except Forbidden as refused:
            faults = [InputError(str(refused), hint=refused.hint)]
        except InputError as fault:
            faults = [fault]
    return {
        "requests": [in_full(masked(each)) for each in reading.requests[:SHOWN_MAX]] if reading and not faults else [],
        "errors": [shown_fault(fault) for fault in faults],
        "warnings": reading.warnings if reading is not None else [],
    }


async def file_checked(request: Request, reading: Reading) -> Reading:
    """The answer with warnings, after the check that files named by the jobs exist."""
    files, requests = context_of(request).files, reading.requests
    if not files.are_known(requests):
        await in_turn(request, context_of(request).file_checks, lambda: files.check(requests))
    if len(requests) == 1 and requests[0].vc == DEFAULT_VC:
        return reading
    said = await run_in_threadpool(remarks, requests, vcs_of(request))
    return Reading(requests, [*reading.warnings, *said])


def vcs_of(request: Request) -> Callable[[], set[str]]:
    return lambda: {vc["name"] for vc in context_of(request).live.vcs()}


def shown_fault(fault: InputError) -> Json:
    return {
        "path": fault.path,
        "line": fault.line,
        "text": one_line(fault.problem or str(fault)),
        "hint": one_line(fault.hint),
    }


def read_body(body: bytes, user: str) -> Reading:
    return read_requests(text_of(body), "job", user)


def read_batch(body: bytes, user: str) -> Reading:
    try:
        batch = _batch.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a batch: {error}", hint='expected {"jobs": [job, …]}') from None
    requests: list[JobRequest] = []
    warnings: dict[str, None] = {}
    for at, job in enumerate(batch.jobs):
        reading = from_mapping(job, f"jobs[{at}]", user)
        requests += reading.requests
        warnings |= dict.fromkeys(reading.warnings)
    return Reading(requests, list(warnings))


def text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the body is not text in UTF-8") from None


def key_of(request: Request) -> str:
    key = request.headers.get("idempotency-key")
    if key is None:
        return ""
    if KEY.fullmatch(key) is None:
        raise InputError("Idempotency-Key is not valid", hint="up to 200 visible ASCII characters")
    return key


BELIEVED_S = 30.0
KEPT = 10_000
WAIT_S = 5.0
AT_ONCE = 16
"""Checks at the same time, those included that hang."""

NamedFile = tuple[str, ...]
"""A folder; or a program, the PATH in which it is searched, and the folder in which it is run."""


class FileChecks:
    """Checks at submission that files named by a job exist on the server's machine, so that jobs do not fail later.

    A job that needs others may use files that these create, so it is not checked. Files may be on a slow or hanging
    disk, so results are cached, and each check has a thread of its own that is left behind after a while: then the file
    is assumed to exist.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.found: dict[NamedFile, float] = {}
        self._free = threading.Semaphore(AT_ONCE)

    def are_known(self, requests: list[JobRequest]) -> bool:
        """True if all of this was checked recently enough."""
        now_s = self.clock()
        return all(self.found.get(named, 0.0) > now_s for named in files_named(requests))

    def check(self, requests: list[JobRequest]) -> None:
        """Raises for the first thing that does not exist. Returns in time, whatever the disk does."""
        said: queue.SimpleQueue[InputError | None] = queue.SimpleQueue()
        if not self._free.acquire(timeout=WAIT_S):
            return

        def check() -> None:
            try:
                self._check(requests)
                said.put(None)
            except InputError as error:
                said.put(error)
            finally:
                self._free.release()

        threading.Thread(target=check, name="file-check", daemon=True).start()
        try:
            error = said.get(timeout=WAIT_S)
        except queue.Empty:
            return
        if error is not None:
            raise error

    def _check(self, requests: list[JobRequest]) -> None:
        now_s = self.clock()
        if len(self.found) > KEPT:
            self.found = {}
        for named in files_named(requests):
            if self.found.get(named, 0.0) <= now_s:
                refuse_missing(named)
                self.found[named] = now_s + BELIEVED_S


def files_named(requests: list[JobRequest]) -> dict[NamedFile, None]:
    found: dict[NamedFile, None] = {}
    for request in requests:
        if request.needs:
            continue
        if request.workdir:
            found[(request.workdir,)] = None
        for role in request.tasks.values():
            if role.argv:
                found[(role.argv[0], path_of(role), request.workdir)] = None
    return found


def path_of(role: TaskRole) -> str:
    return role.env.get("PATH", "") or os.environ.get("PATH", os.defpath)


def refuse_missing(named: NamedFile) -> None:
    if len(named) == 1:
        (folder,) = named
        if not is_folder(folder):
            hint = "workdir is a folder on the machine where jobs run"
            raise InputError(f"workdir {folder} does not exist", hint=hint)
        return
    program, path, workdir = named
    if "/" in program:
        file = os.path.join(workdir, program)
        if os.path.isabs(file) and not os.path.lexists(file) and is_folder(os.path.dirname(file)):
            raise InputError(f"command {program} does not exist", hint=f"looked for it in {workdir or '/'}")
    elif shutil.which(program, path=path) is None and shutil.which(program) is None:
        raise InputError(f"command {program} was not found", hint=f"PATH of the task is {path}")


def is_folder(path: str) -> bool:
    """What this account may not see is assumed to exist: the job's account may see it."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True


def remarks(requests: list[JobRequest], vcs: Callable[[], set[str]]) -> list[str]:
    """What is valid, but probably a mistake."""
    said = []
    twice = [name for name, count in Counter(request.name for request in requests).items() if count > 1]
    if twice:
        more = f" (and {len(twice) - 1:,} more names)" if len(twice) > 1 else ""
        said.append(f"several jobs are called {twice[0]}{more}: a name means the latest of them")
    named = {request.vc for request in requests} - {DEFAULT_VC}
    if named and vcs() <= {DEFAULT_VC}:
        said.append(f"this cluster has no virtual clusters: vc {min(named)} is kept as a label only")
    return said
