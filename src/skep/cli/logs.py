"""`skep logs` and `skep exec`: read the output of a job, run a command in its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import connect, job_argument, say, server_option
from skep.cli.plain import Plain, clean

if TYPE_CHECKING:
    from skep.client import Client

NOT_FOUND, NOT_EXECUTABLE = 127, 126


@click.command()
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has ended, also through further attempts.")
@click.option("--task", default="", metavar="ROLE-N", help="Only this task, such as worker-1.  [default: all]")
@click.option("--attempt", type=click.IntRange(min=1), help="This attempt.  [default: the last]")
@click.option("-n", "--tail", type=click.IntRange(min=1), help="Begin with the last lines, of each task.")
@click.option("--raw", is_flag=True, help="Keep escape sequences, such as colours, on a terminal too.")
@server_option
def logs(job: str, follow: bool, task: str, attempt: int | None, tail: int | None, raw: bool, url: str) -> None:
    """Print what a job has written; where it has several tasks, each line after the name of its task.

    \b
    Examples:
      skep logs 17
      skep logs -f -n 20 train
      skep logs 17 --task worker-1 --attempt 1 --tail 50
    """
    with connect(url) as client:
        if follow:
            follow_log(client, job, task, attempt or 0, tail, is_raw=raw)
        else:
            print_log(client, job, task, attempt or 0, tail, is_raw=raw)


def shown_by(is_raw: bool) -> Callable[[str], str]:
    """What is printed of a log: for a terminal escape sequences are removed; a file or a pipe gets everything."""
    return str if is_raw or not sys.stdout.isatty() else Plain().cleaned


def print_log(client: Client, job: str, task: str, attempt: int, tail: int | None, *, is_raw: bool) -> None:
    is_empty, shown = True, shown_by(is_raw)
    for text in client.logs(job, task=task, attempt=attempt, tail=tail):
        sys.stdout.write(shown(text))
        is_empty = is_empty and not text
    if is_empty and not (found := client.job(job))["attempts"]:
        why = clean(str(found.get("reason") or ""))
        say(f"skep: job {found['id']} has not started{': ' if why else ''}{why}")


def follow_log(client: Client, job: str, task: str, attempt: int, tail: int | None, *, is_raw: bool) -> None:
    """Begins with the present attempt. Ctrl-C stops the command, not the job."""
    from skep.cli.follow import Follower, attempts_of

    found = client.job(job)
    check_task(found, task)
    follower = Follower(client, found["id"], task, attempt or attempts_of(found), shown_by(is_raw))
    try:
        if tail:
            follower.skip_all_but(tail, found)
        follower.until_end()
    except KeyboardInterrupt:
        click.get_current_context().exit(130)


def check_task(job: dict[str, Any], task: str) -> None:
    """Checked here, because a log that does not exist yet is waited for."""
    from skep.core.errors import NotFound, did_you_mean
    from skep.jobs.request import task_names

    tasks = task_names(job["request"])
    if task and task not in tasks:
        hint = did_you_mean(task, tasks) or f"it has {', '.join(tasks[:10])}"
        raise NotFound(f"job {job['id']} has no task {task}", hint=hint)


@click.command("exec")
@click.option("--task", default="", metavar="ROLE-N", help="In the environment of this task.  [default: the first]")
@server_option
@job_argument
@click.argument("argv", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def exec_(job: str, argv: tuple[str, ...], task: str, url: str) -> None:
    """Run COMMAND with the environment and in the folder of a job's task, to debug it.

    It is not part of the job: it holds no resources, and is not stopped with the job. It runs here if the job runs on
    the server's machine, and on Kubernetes in the task's container, without input.

    \b
    Examples:
      skep exec 17 -- nvidia-smi
      skep exec 17 --task worker-1 -- bash
    """
    with connect(url) as client:
        found = client.environment(job, task)
        if not found.get("is_here", True):
            click.get_current_context().exit(run_there(client, job, argv, task))
    become(argv, found)


def run_there(client: Client, job: str, argv: tuple[str, ...], task: str) -> int:
    """The exit code of a command that runs elsewhere."""
    code = NOT_EXECUTABLE
    for channel, content in client.exec(job, argv, task):
        if channel == 0:
            code = int(content)
        else:
            stream = sys.stdout if channel == 1 else sys.stderr
            stream.buffer.write(content)
            stream.flush()
    return code


def within(found: dict[str, Any]) -> list[str]:
    """The words that take a command into the task's container, with the terminal if there is one."""
    has_terminal = sys.stdin.isatty()
    return [
        word
        for each in found.get("within", [])
        for word in ([each, "--tty"] if each == "exec" and has_terminal else [each])
    ]


def become(argv: tuple[str, ...], found: dict[str, Any]) -> None:
    """This process becomes the command, with its own signals, terminal and exit code."""
    from skep.core.errors import InputError

    if found.get("cwd"):
        try:
            os.chdir(found["cwd"])
        except OSError as error:
            hint = "`skep exec` works on the machine where the job runs"
            raise InputError(f"{found['cwd']}: {(error.strerror or str(error)).lower()}", hint=hint) from None
    sys.stdout.flush()
    argv = (*within(found), *argv)
    try:
        os.execvpe(argv[0], argv, {**os.environ, **found["env"]})
    except OSError as error:
        print(f"error: {argv[0]}: {(error.strerror or str(error)).lower()}", file=sys.stderr)
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE
        click.get_current_context().exit(code)
