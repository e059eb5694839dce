"""`skep down`: stop the server, and with `--stop-jobs` its jobs too."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

WAIT_S = 60.0
STOP_JOBS_S = 3600.0
"""Jobs have their own grace periods; whoever waits may press Ctrl-C."""


@click.command()
@click.option("--data", metavar="DIR", help="The data of the server.  [default: ~/.local/share/skep]")
@click.option("--url", metavar="URL", help="Its address, instead of its data.  [default: SKEP_URL]")
@click.option("--stop-jobs", is_flag=True, help="Stop every job first, and wait until the last one has ended.")
def down(data: str | None, url: str | None, stop_jobs: bool) -> None:
    """Stop the server. Its jobs run on, and the next `skep up` takes them over.

    \b
    Examples:
      skep down
      skep down --data ./data --stop-jobs
    """
    url = url or ("" if data else os.environ.get("SKEP_URL", ""))
    if url:
        running = ask(url, stop_jobs)
        wait_while(lambda: does_answer(url), stop_jobs)
    else:
        from skep.server.config import default_data
        from skep.server.datadir import is_locked

        folder = Path(data).expanduser().absolute() if data else default_data()
        if not is_locked(folder):
            if not data:
                refuse_other(folder)
            say(f"no server runs on {folder}")
            return
        running = stop_here(folder, stop_jobs)
        wait_while(lambda: is_locked(folder), stop_jobs)
    goes_on = running and not stop_jobs
    say(f"skep is down; jobs that run on ({running}) are adopted by the next `skep up`" if goes_on else "skep is down")


def refuse_other(folder: Path) -> None:
    """Other commands go to the usual address, where a server with other data may be; it is not stopped by mistake."""
    from skep.core.errors import InputError
    from skep.server.config import PORT

    address = f"http://127.0.0.1:{PORT}"
    try:
        is_there = does_answer(address)
    except InputError:  # something else is
        return
    if is_there:
        hint = f"`skep down --url {address}` stops it, or --data with its folder"
        raise InputError(f"no server runs on {folder}, but one answers at {address}", hint=hint)


def stop_here(folder: Path, stop_jobs: bool) -> int:
    """By the API, or by a signal where that does not answer or wants a token: the owner of a process needs none."""
    from skep.core.errors import InputError
    from skep.server.datadir import read_running

    server = read_running(folder)
    if server is None:
        raise InputError(f"the server on {folder} is just starting or stopping", hint="try again in a moment")
    try:
        return ask(server.url, stop_jobs)
    except InputError:
        if stop_jobs:
            raise
    try:
        os.kill(server.pid, signal.SIGTERM)
    except PermissionError:
        raise InputError(f"the server belongs to another user (pid {server.pid})", hint="set SKEP_TOKEN") from None
    except ProcessLookupError:
        pass
    return 0


def ask(url: str, stop_jobs: bool) -> int:
    """How many jobs were running."""
    import json

    from skep.cli.ask import call

    with call(url, "/shutdown", {"stop_jobs": stop_jobs}) as answer:
        return int(json.load(answer)["running"])


def does_answer(url: str) -> bool:
    from skep.cli.ask import NoAnswer, call

    try:
        call(url, "/health").close()
    except NoAnswer:
        return False
    return True


def wait_while(is_up: Callable[[], bool], stop_jobs: bool) -> None:
    from skep.core.errors import InputError

    by_s = time.monotonic() + (STOP_JOBS_S if stop_jobs else WAIT_S)
    while is_up():
        if time.monotonic() > by_s:
            raise InputError("the server was asked to stop and has not yet", hint="server.log in its data says more")
        time.sleep(0.05)


def say(text: str) -> None:
    print(text, file=sys.stderr)
