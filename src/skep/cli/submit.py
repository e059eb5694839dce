"""`skep submit` and `skep wait`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import complete_jobs, connect, default_vc, duration, inherited, print_data, say, server_option
from skep.cli.plan import confirm, plan_options

if TYPE_CHECKING:
    from skep.client import Client
    from skep.jobs.request import TaskRole

STDIN = "-"
LARGEST = 1024 * 1024
TIMED_OUT = 124


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--name", default="", help="Another name than the file's; for one job.")
@click.option("--hold", is_flag=True, help="Do not start until `skep release`.")
@click.option("--clean-env", is_flag=True, help="Do not pass this shell's environment to jobs.")
@click.option("--key", default="", help="Idempotency key: submissions with the same key are one submission.")
@click.option("-o", "--output", type=click.Choice(["name", "json", "yaml"]), default="name", help="[default: name]")
@plan_options
@server_option
def submit(
    files: tuple[str, ...],
    name: str,
    hold: bool,
    clean_env: bool,
    key: str,
    output: str,
    is_planned: bool,
    yes: bool,
    url: str,
) -> None:
    """Submit job files (Skep's YAML or JSON, or OpenPAI's protocol v2), - for stdin, and print the ids.

    A file may hold one job, a list of jobs, or a sweep, which are submitted all or none. All files are checked before
    the first is submitted. Jobs that name no workdir run in this folder; tasks that set no PATH get this shell's, with
    its Python environment, as `skep run` does. --clean-env leaves it to the server's.

    --plan simulates first what the jobs of each file would do: where and when they would start and end, and whom they
    would preempt and delay.

    \b
    Examples:
      skep submit train.yaml
      skep submit a.yaml b.yaml --hold
      skep submit train.yaml --plan
      sed s/LR/0.1/ template.yaml | skep submit -
    """
    if name and len(files) > 1:
        raise click.UsageError("--name is for one file")
    env, vc = {} if clean_env else inherited(), default_vc(url)
    changes = {**({"name": name} if name else {}), **({"hold": True} if hold else {})}
    read = [(file, *to_submit(read_text(file), file, changes, env, vc)) for file in files]
    jobs: list[dict[str, Any]] = []
    with connect(url) as client:
        if is_planned:
            confirm(client, [text for _, text, _ in read], yes=yes)
        try:
            for at, each in enumerate(read):
                jobs += send(client, *each, f"{key}-{at}" if key else "")
        finally:
            # If the server refuses a later file, the jobs of earlier files are submitted all the same.
            if jobs:
                print_data(jobs, output)


def read_text(file: str) -> str:
    import sys

    from skep.core.errors import InputError

    if file == STDIN:
        data = sys.stdin.buffer.read(LARGEST + 1)
    else:
        try:
            with open(file, "rb") as opened:
                data = opened.read(LARGEST + 1)
        except OSError as error:
            raise InputError(f"{file}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > LARGEST:
        raise InputError(f"{file}: is larger than 1 MiB, the limit for job files")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file}: is not text in UTF-8") from None


def to_submit(text: str, file: str, changes: dict[str, Any], env: dict[str, str], vc: str) -> tuple[str, list[str]]:
    """The jobs of a file as they are submitted, and warnings about them.

    The server does not know this folder and this shell, nor the name of the file for error messages.
    """
    import os

    import msgspec

    from skep.core.errors import InputError
    from skep.core.model import DEFAULT_VC
    from skep.jobs.read import read_requests
    from skep.jobs.write import as_file

    reading = read_requests(text, file)
    if "name" in changes and len(reading.requests) > 1:
        raise InputError(f"{file}: --name is for one job, and there are {len(reading.requests)}")
    jobs = []
    for job in reading.requests:
        home = vc if vc and job.vc == DEFAULT_VC else job.vc
        tasks = {name: with_env(role, env) for name, role in job.tasks.items()}
        here = job.workdir or os.getcwd()
        jobs.append(as_file(msgspec.structs.replace(job, workdir=here, vc=home, tasks=tasks, **changes)))
    return msgspec.json.encode(jobs[0] if len(jobs) == 1 else jobs).decode(), reading.warnings


def with_env(role: TaskRole, env: dict[str, str]) -> TaskRole:
    """With this shell's variables; a task that sets its own PATH gets none of them."""
    import msgspec

    return role if "PATH" in role.env or not env else msgspec.structs.replace(role, env=env | role.env)


def send(client: Client, file: str, text: str, warnings: list[str], key: str) -> list[dict[str, Any]]:
    found = client.submit(text, key=key) if len(text) <= LARGEST else send_many(client, text, key)
    for warning in dict.fromkeys([*warnings, *found["warnings"]]):
        say(f"warning: {file}: {warning}")
    return list(found["jobs"])


def send_many(client: Client, text: str, key: str) -> dict[str, Any]:
    """A sweep may be small as a file and large as jobs; for this many, the server answers with the ids alone."""
    import json

    jobs = json.loads(text)
    made = client.submit_batch(jobs, key=key)
    named = [{"id": job_id, "name": job["name"]} for job_id, job in zip(made["ids"], jobs, strict=True)]
    return {"jobs": named, "warnings": made["warnings"]}


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--group", default="", help="All jobs of this group (a sweep).")
@click.option("--timeout", type=duration, metavar="TIME", help=f"Give up after this time, with exit code {TIMED_OUT}.")
@server_option
def wait(jobs: tuple[str, ...], group: str, timeout: float | None, url: str) -> None:
    """Wait until jobs have ended; the exit code is that of the first that did not succeed.

    0: all succeeded; 130: it was stopped. Waits through a restart of the server.

    \b
    Examples:
      skep wait 17 && skep submit next.yaml
      skep wait 17 18 --timeout 2h
      skep wait --group sweep-lr
    """
    import time

    from skep.client import exit_code

    if not jobs and not group:
        raise click.UsageError("which jobs? Name some, or a --group")
    by_s = None if timeout is None else time.monotonic() + timeout
    with connect(url) as client:
        codes = []
        # All at once: a name means the latest job of that name now, and a wrong name is reported at once.
        for job in dict.fromkeys([*(client.job(job)["id"] for job in jobs), *members(client, group)]):
            try:
                ended = client.wait(job, None if by_s is None else max(0.0, by_s - time.monotonic()))
            except TimeoutError as error:
                say(f"error: {error}")
                click.get_current_context().exit(TIMED_OUT)
            say(f"job {ended['id']} {ended['state']}")
            codes.append(exit_code(ended))
    click.get_current_context().exit(next((code for code in codes if code), 0))


def members(client: Client, group: str) -> list[str]:
    """The jobs of a group that have not ended, and those that were submitted with them or since, in that order: the
    exit code of a trial that has failed already counts. If all have ended, those of the last submission."""
    from skep.client import ENDED
    from skep.core.errors import NotFound

    found = list(client.jobs(group=group, all="true")) if group else []
    if group and not found:
        raise NotFound(f"there is no job of group {group}", hint="`skep ps --all` lists jobs")
    times = [job["submit_s"] for job in found]
    since_s = min([job["submit_s"] for job in found if job["state"] not in ENDED], default=max(times, default=0.0))
    return [job["id"] for job in reversed(found) if job["submit_s"] >= since_s]
