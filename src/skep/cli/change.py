"""`skep stop`, `hold`, `release`, `priority`, `alter` and `tag`: changes to existing jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.live import complete_open_jobs, complete_vcs, connect, job_argument, priority_number, say, server_option
from skep.cli.plain import clean
from skep.core.errors import NotFound

if TYPE_CHECKING:
    from skep.client import Client

OPEN = ("pending", "launching", "running", "suspended", "stopping")


def chosen_jobs(command: Callable[..., None]) -> Callable[..., None]:
    """Jobs by name, or all that match some filters."""
    for option in reversed(
        [
            click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_open_jobs),
            click.option("--group", default="", help="All jobs of this group (a sweep) that have not ended."),
            click.option(
                "--vc", default="", help="All jobs of this virtual cluster; asks first.", shell_complete=complete_vcs
            ),
            click.option("-u", "--user", default="", help="All jobs of this user; asks first."),
            click.option("--tag", default="", help="All jobs with this tag; asks first."),
            click.option("--state", type=click.Choice(OPEN), help="With the others: only those in this state."),
            click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        ]
    ):
        command = option(command)
    return command


@click.command()
@chosen_jobs
@click.option("--reason", default="", help="Kept in the job's history.")
@server_option
def stop(jobs: tuple[str, ...], reason: str, yes: bool, url: str, **where: str) -> None:
    """Stop jobs: what runs gets SIGTERM, its grace period, then SIGKILL. A stopped job never restarts by itself.

    \b
    Examples:
      skep stop 17
      skep stop 17 18 --reason "wrong data"
      skep stop --group sweep-lr
      skep stop --vc research --state pending --yes
    """
    with connect(url) as client:
        found = filtered(client, jobs, where, yes, "Stop")
        for_each(jobs, lambda job: client.stop(job, reason), "asked to stop")
        in_bulk(client, found, "stop", "asked to stop", reason)


@click.command()
@chosen_jobs
@server_option
def hold(jobs: tuple[str, ...], yes: bool, url: str, **where: str) -> None:
    """Keep pending jobs from starting, until they are released.

    \b
    Examples:
      skep hold 17
      skep hold --user ann --state pending
    """
    with connect(url) as client:
        found = filtered(client, jobs, where, yes, "Hold")
        for_each(jobs, client.hold, "held")
        in_bulk(client, found, "hold", "held")


@click.command()
@chosen_jobs
@server_option
def release(jobs: tuple[str, ...], yes: bool, url: str, **where: str) -> None:
    """Let held jobs start again.

    \b
    Examples:
      skep release 17
      skep release --tag later --yes
    """
    with connect(url) as client:
        found = filtered(client, jobs, where, yes, "Release")
        for_each(jobs, client.release, "released")
        in_bulk(client, found, "release", "released")


def filtered(client: Client, jobs: Sequence[str], where: dict[str, str], yes: bool, doing: str) -> list[str]:
    """Ids of the jobs that match the filters. A group alone needs no confirmation; the other filters ask first."""
    given = {name: value for name, value in where.items() if value}
    if not given:
        if not jobs:
            raise click.UsageError("which jobs? Name some, or a --group")
        return []
    if set(given) == {"state"}:
        raise click.UsageError("--state needs --group, --vc, --user or --tag")
    found = [job["id"] for job in client.jobs(**given) if job["id"] not in jobs]
    if not found:
        said = ", ".join(f"{name} {value}" for name, value in given.items())
        raise NotFound(f"no job of {said} is open", hint="`skep ps --all` with the same filters lists those that ended")
    if not yes and set(given) - {"group", "state"}:
        click.confirm(f"{doing} {len(found):,} job{'s' if len(found) > 1 else ''}?", abort=True, err=True)
    return found


def in_bulk(client: Client, jobs: list[str], action: str, done: str, reason: str = "") -> None:
    refused = 0
    for each in client.bulk(jobs, action, reason=reason) if jobs else []:
        if each["ok"]:
            click.echo(f"{each['id']} {done}")
        else:
            refused += 1
            say(f"error: {each['error']}" + (f" ({each['hint']})" if each["hint"] else ""))
    if refused:
        click.get_current_context().exit(2)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("job", metavar="JOB", shell_complete=complete_open_jobs)
@click.argument("priority", type=priority_number)
@server_option
def priority(job: str, priority: int, url: str) -> None:
    """Change the priority of a pending job: 0 … 1000, or -1 for opportunistic work.

    Names: oppo (-1), test (10), prod (100).

    \b
    Example:
      skep priority 17 prod
    """
    with connect(url) as client:
        for_each([job], lambda job: client.set_priority(job, priority), f"has priority {priority}")


@click.command()
@click.argument("job", metavar="JOB", shell_complete=complete_open_jobs)
@click.option("--gpus", type=click.IntRange(1), help="GPUs of all its tasks together.")
@click.option("--gpu-type", help="Only this type, or several joined by `|`; `any`: all types.")
@click.option("--vc", help="Another virtual cluster.", shell_complete=complete_vcs)
@server_option
def alter(job: str, gpus: int | None, gpu_type: str | None, vc: str | None, url: str) -> None:
    """Let a pending job ask for something else. It keeps its place in the queue.

    With another number of GPUs it has as many tasks as that takes; a job of one task has them in that task. What it
    runs must cope with that.

    \b
    Examples:
      skep alter 17 --gpus 4
      skep alter 17 --gpu-type any --vc research
    """
    if gpus is None and gpu_type is None and vc is None:
        raise click.UsageError("nothing to alter: --gpus, --gpu-type or --vc")
    wanted = "" if gpu_type == "any" else gpu_type
    with connect(url) as client:
        for_each([job], lambda job: client.alter(job, gpus=gpus, gpu_type=wanted, vc=vc), "altered")


@click.command()
@job_argument
@click.argument("tags", nargs=-1)
@click.option("--remove", "-r", multiple=True, metavar="TAG", help="Remove this tag; may be repeated.")
@server_option
def tag(job: str, tags: tuple[str, ...], remove: tuple[str, ...], url: str) -> None:
    """Add or remove tags of a job; without any, print those it has.

    \b
    Examples:
      skep tag 17 baseline keep
      skep tag 17 --remove keep
    """
    with connect(url) as client:
        has = client.job(job).get("tags") or []
        wanted = [name for name in dict.fromkeys([*has, *tags]) if name not in remove]
        if wanted != list(has):
            client.set_tags(job, wanted)
    if not tags and not remove:
        for name in wanted:
            click.echo(clean(name))


def for_each(jobs: Sequence[str], change: Callable[[str], None], done: str) -> None:
    """Change each job separately: a job that cannot be changed does not affect the others."""
    from skep.client import Denied
    from skep.core.errors import Conflict, NotFound

    refused = 0
    for job in jobs:
        try:
            change(job)
        except (Conflict, Denied, NotFound) as error:
            refused += 1
            say(f"error: {error}" + (f" ({error.hint})" if error.hint else ""))
        else:
            click.echo(f"{job} {done}")
    if refused:
        click.get_current_context().exit(2)
