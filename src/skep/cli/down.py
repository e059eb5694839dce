"""`skep down`: stop the server, and with `--stop-jobs` its jobs too."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from skep.cli.live import connect, say

WAIT_S = 60.0
STOP_JOBS_S = 600
SAY_EVERY_S = 5.0
NAMED = 10
"""The most jobs that are named while waiting for them."""


@click.command()
@click.option("--data", metavar="DIR", help="The data of the server.  [default: ~/.local/share/skep]")
@click.option("--url", metavar="URL", help="Its address, instead of its data.  [default: SKEP_URL]")
@click.option("--config", "file", metavar="FILE", help="The config file it was started with, which names its data.")
@click.option("--stop-jobs", is_flag=True, help="Stop every job first, and wait until the last one has ended.")
@click.option(
    "--timeout",
    type=click.IntRange(1, 86400),
    default=STOP_JOBS_S,
    metavar="SECONDS",
    help=f"With --stop-jobs: how long jobs may take; if one takes longer the server stays.  [default: {STOP_JOBS_S}]",
)
def down(data: str | None, url: str | None, file: str | None, stop_jobs: bool, timeout: int) -> None:
    """Stop the server, and wait until its process has ended. Jobs run on; the next `skep up` adopts them.

    \b
    Examples:
      skep down
      skep down --data ./data --stop-jobs --timeout 120
    """
    within_s = timeout if stop_jobs else None
    if file is not None and data is None:
        from skep.server.config import make_config

        data = str(make_config(file, {}).data)
    address = url or ("" if data else os.environ.get("SKEP_URL", ""))
    if address:
        answer = ask(address, within_s)
        wait_while(lambda: does_run(answer) or does_answer(address), address, within_s)
    else:
        from skep.files.running import is_locked

        folder = Path(data).expanduser().absolute() if data else only_folder()
        if not is_locked(folder):
            if not data:
                refuse_other(folder)
            say(f"no server runs on {folder}")
            return
        address, answer = stop_here(folder, within_s)
        wait_while(lambda: is_locked(folder), address, within_s)
    running = answer.get("running", 0)
    goes_on = running and not stop_jobs
    after = f"; jobs that run on ({running}) are adopted by the next `skep up`" if goes_on else ""
    say(f"skep is down ({address}){after}")


def only_folder() -> Path:
    """The default data folder, or that of the only server of this machine."""
    from skep.core.errors import InputError
    from skep.files.running import default_data, servers_here

    servers = servers_here()
    if len(servers) < 2 or default_data() in servers:
        return next(iter(servers), default_data())
    listed = "; ".join(f"skep down --data {folder} ({running.url})" for folder, running in servers.items())
    raise InputError(f"{len(servers)} servers run on this machine", hint=f"name one: {listed}")


def does_run(answer: dict[str, Any]) -> bool:
    """True if the process that answered is still running; one on another machine cannot be observed."""
    from skep.service.clock import boot_id

    if not answer.get("boot") or answer["boot"] != boot_id():
        return False
    try:
        about = Path(f"/proc/{answer['pid']}/stat").read_text()
    except OSError:
        return False
    return about.rpartition(")")[2].split()[0] not in "ZX"


def refuse_other(folder: Path) -> None:
    """Other commands use the default address, where a server with other data may be; it is not stopped by mistake."""
    from skep.core.errors import InputError, SkepError
    from skep.server.config import PORT

    address = f"http://127.0.0.1:{PORT}"
    try:
        is_there = does_answer(address)
    except SkepError:  # something else is
        return
    if is_there:
        hint = f"`skep down --url {address}` stops it, or --data with its folder"
        raise InputError(f"no server runs on {folder}, but one answers at {address}", hint=hint)


def stop_here(folder: Path, within_s: int | None) -> tuple[str, dict[str, Any]]:
    """By the API, or by a signal if that does not answer or requires a token: the owner of a process needs none."""
    from skep.core.errors import InputError, SkepError
    from skep.files.running import read_running

    server = read_running(folder)
    if server is None:
        raise InputError(f"the server on {folder} is just starting or stopping", hint="try again in a moment")
    try:
        return server.url, ask(server.url, within_s)
    except SkepError:
        if within_s is not None:
            raise
    try:
        os.kill(server.pid, signal.SIGTERM)
    except PermissionError:
        raise InputError(f"the server belongs to another user (pid {server.pid})", hint="set SKEP_TOKEN") from None
    except ProcessLookupError:
        pass
    return server.url, {}


def ask(url: str, within_s: int | None) -> dict[str, Any]:
    """The server's answer: how many jobs run, and which process is about to end."""
    with connect(url) as client:
        return client.shut_down(within_s)


def does_answer(url: str) -> bool:
    with connect(url) as client:
        return client.is_there()


def wait_while(is_up: Callable[[], bool], url: str, within_s: int | None) -> None:
    from skep.core.errors import InputError

    now_s = time.monotonic()
    by_s, say_s = now_s + WAIT_S + (within_s or 0), now_s + SAY_EVERY_S
    jobs_by_s = now_s + (within_s or 0) + 1.0
    while is_up():
        now_s = time.monotonic()
        if within_s is not None and now_s > min(say_s, jobs_by_s):
            say_s = now_s + SAY_EVERY_S
            left = left_over(url)
            if left and now_s > jobs_by_s:
                raise InputError(
                    f"after {within_s} s these have not ended: {left}; the server stays",
                    hint="`skep down` stops it and lets them run on; --timeout waits longer",
                )
            if left:
                say(f"waiting for {left}")
        if now_s > by_s:
            raise InputError(
                "the server was asked to stop and still runs", hint="server.log in its data folder has the details"
            )
        time.sleep(0.05)


def left_over(url: str) -> str:
    """The jobs that have not ended, as text; empty if there are none, or the server does not answer."""
    from skep.core.errors import SkepError

    try:
        with connect(url) as client:
            jobs, _ = client.page(limit=NAMED + 1)
    except SkepError:
        return ""
    named = ", ".join(f"job {job['id']} ({job['state']})" for job in jobs[:NAMED])
    return f"{named} and others" if len(jobs) > NAMED else named
