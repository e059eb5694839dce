"""`skep stop`, `hold`, `release`, `priority` and `tag`: changes to jobs that are there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from skep.cli.live import complete_jobs, connect, job_argument, jobs_argument, priority_number, say, server_option
from skep.cli.plain import clean
from skep.core.errors import NotFound


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=complete_jobs)
@click.option("--group", default="", help="All jobs of this group (a sweep) that have not ended.")
@click.option("--reason", default="", help="Kept in the job's history.")
@server_option
def stop(jobs: tuple[str, ...], group: str, reason: str, url: str) -> None:
    """Stop jobs: what runs gets SIGTERM, its grace period, then SIGKILL. A stopped job never restarts by itself.

    \b
    Examples:
      skep stop 17
      skep stop 17 18 --reason "wrong data"
      skep stop --group sweep-lr
    """
    if not jobs and not group:
        raise click.UsageError("which jobs? Name some, or a --group")
    with connect(url) as client:
        found = [job["id"] for job in client.jobs(group=group)] if group else []
        if group and not found:
            raise NotFound(f"no job of group {group} is open", hint="`skep ps --all --group` lists those that ended")
        for_each((*jobs, *found), lambda job: client.stop(job, reason), "asked to stop")


@click.command()
@jobs_argument
@server_option
def hold(jobs: tuple[str, ...], url: str) -> None:
    """Keep pending jobs from starting, until they are released.

    \b
    Example:
      skep hold 17
    """
    with connect(url) as client:
        for_each(jobs, client.hold, "held")


@click.command()
@jobs_argument
@server_option
def release(jobs: tuple[str, ...], url: str) -> None:
    """Let held jobs start again.

    \b
    Example:
      skep release 17
    """
    with connect(url) as client:
        for_each(jobs, client.release, "released")


@click.command(context_settings={"ignore_unknown_options": True})
@job_argument
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
@job_argument
@click.argument("tags", nargs=-1)
@click.option("--remove", "-r", multiple=True, metavar="TAG", help="Take this tag away; may be repeated.")
@server_option
def tag(job: str, tags: tuple[str, ...], remove: tuple[str, ...], url: str) -> None:
    """Add tags to a job, or take some away; without any, print those it has.

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
    """Every job gets its answer: one that cannot be changed does not keep the others from it."""
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
