"""`skep run -- COMMAND`: like the command itself, but on GPUs that are reserved for it while it runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from skep.cli.live import (
    complete_vcs,
    connect,
    default_vc,
    duration,
    inherited,
    last_words,
    priority_number,
    say,
    server_option,
)
from skep.cli.plan import confirm, plan_options

if TYPE_CHECKING:
    from skep.client import Client

ROLE = "main"


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="-- COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("-g", "--gpus", type=click.IntRange(min=0), default=0, help="GPUs of each task.  [default: 0]")
@click.option("--gpu-type", default="", metavar="TYPE", help="Only GPUs of this type.")
@click.option("--gpu-milli", type=click.IntRange(1, 1000), help="Thousandths of the GPU, to share it with others.")
@click.option("--cpu", type=click.FloatRange(min=0), help="CPUs of each task.")
@click.option("--memory-gib", type=click.FloatRange(min=0), help="Memory of each task.")
@click.option("--count", type=click.IntRange(min=1), help="Tasks, all started together.  [default: 1]")
@click.option(
    "--elastic", metavar="MIN:MAX", help="Run with MIN to MAX tasks, as many as fit; the job is resized later."
)
@click.option("--name", default="", help="[default: from the command]")
@click.option(
    "--vc",
    default="",
    help="Virtual cluster.  [default: that of the login or token, else the largest]",
    shell_complete=complete_vcs,
)
@click.option(
    "-p", "--priority", type=priority_number, metavar="P", help="oppo, test, prod or a number.  [default: test]"
)
@click.option(
    "-e", "--env", "env", multiple=True, metavar="K=V", help="Variable of the job; K alone: its value in this shell."
)
@click.option("--workdir", default="", metavar="DIR", help="Working folder.  [default: this folder]")
@click.option("--time-limit", type=duration, metavar="TIME", help="Stopped after this time (90s, 15m, 2h).")
@click.option("--expect", type=duration, metavar="TIME", help="Expected run time, which some policies use.")
@click.option("--grace", type=duration, metavar="TIME", help="Between SIGTERM and SIGKILL.  [default: 30s]")
@click.option("--checkpoint", type=click.Choice(["signal", "criu"]), help="How it saves itself.  [default: signal]")
@click.option("--retries", type=click.IntRange(min=-1), help="Retries after a failure.  [default: 0]")
@click.option("--needs", multiple=True, metavar="JOB", help="Starts when this job has succeeded; may be repeated.")
@click.option("--group", default="", help="Job group.")
@click.option("--tag", "tags", multiple=True, help="May be repeated.")
@click.option("-d", "--detach", is_flag=True, help="Print the id and do not wait.")
@plan_options
@server_option
def run(argv: tuple[str, ...], detach: bool, is_planned: bool, yes: bool, url: str, **asked: Any) -> None:
    """Run COMMAND as a job: wait for its GPUs, show its output, exit with its code.

    It runs in this folder, with this shell's PATH and Python environment; PYTHONUNBUFFERED=1 unless --env sets it. It
    has no stdin: piped input is refused. With several tasks, each line begins with the name of its task. Ctrl-C asks it
    to stop and waits; a second Ctrl-C exits immediately. A job that was stopped gives 130, one that failed before it
    ran 1. If the server restarts meanwhile, the job and this command continue. --plan first simulates where and when it
    would start and end, and whom it would preempt and delay, and asks.

    \b
    Examples:
      skep run -- python train.py
      skep run --gpus 4 --vc research --time-limit 2h -- python train.py --lr 0.1
      skep run --gpus 1 --elastic 1:8 -- python ddp.py
      skep run --gpus 8 --plan -- python train.py
      skep run --detach --needs 17 -- bash -c 'python eval.py > out.txt'
    """
    if not detach:
        refuse_input()
    asked["vc"] = asked["vc"] or default_vc(url)
    job = describe(argv, asked)
    with connect(url) as client:
        if is_planned:
            confirm(client, [job], yes=yes)
        found = client.submit(job)
        for warning in found["warnings"]:
            say(f"warning: {warning}")
        job_id = found["jobs"][0]["id"]
        if detach:
            click.echo(job_id)
            return
        code = attend(client, job_id)
    if has_input(0):  # it came too late to be refused
        say("skep: stdin is not passed to jobs: the input was not read")
    click.get_current_context().exit(code)


def refuse_input() -> None:
    """What is piped in would be lost without a word: a job is a process of the server and has no input."""
    from skep.core.errors import InputError

    if has_input(0):
        raise InputError(
            "stdin is not passed to jobs, and there is input",
            hint="read a file in the job: -- bash -c 'COMMAND < FILE'; without input: skep run … < /dev/null",
        )


def has_input(fd: int) -> bool:
    """True if something can be read now from a file or a pipe. A terminal has input only when a person types."""
    import select
    import stat

    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            return os.lseek(fd, 0, os.SEEK_CUR) < found.st_size
        is_piped = stat.S_ISFIFO(found.st_mode) or stat.S_ISSOCK(found.st_mode)
        return is_piped and bool(select.select([fd], [], [], 0)[0]) and bytes_waiting(fd) > 0
    except OSError:  # closed
        return False


def bytes_waiting(fd: int) -> int:
    """0 at the end of a pipe, which is readable too."""
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


def describe(argv: tuple[str, ...], asked: dict[str, Any]) -> dict[str, Any]:
    """The equivalent job file."""
    from skep.client import name_of

    least, most = elastic_range(asked["elastic"])
    role = {key: asked[key] for key in ("gpus", "gpu_type", "gpu_milli", "cpu", "memory_gib")}
    role |= {"count": asked["count"] or most, "argv": list(argv), "env": environment(asked["env"])}
    times = {"time_limit_s": asked["time_limit"], "expect_s": asked["expect"], "grace_s": asked["grace"]}
    same = {key: asked[key] for key in ("vc", "priority", "checkpoint", "retries", "group", "needs", "tags")}
    return {
        "name": asked["name"] or name_of(argv),
        "workdir": os.path.abspath(asked["workdir"] or os.getcwd()),
        "tasks": {ROLE: said(role)},
        **({"elastic": {"role": ROLE, "min": least, "max": most}} if most else {}),
        **said(times | same),
    }


def said(values: dict[str, Any]) -> dict[str, Any]:
    """The rest is left to the server's defaults."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if is_said(value)}


def is_said(value: object) -> bool:
    return value is not None and value != "" and value != ()


def elastic_range(text: str | None) -> tuple[int | None, int | None]:
    if text is None:
        return None, None
    least, colon, most = text.partition(":")
    if not (colon and least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise click.BadParameter(f"'{text}' is not a range; expected MIN:MAX such as 1:8", param_hint="--elastic")
    return int(least), int(most)


def environment(pairs: tuple[str, ...]) -> dict[str, str]:
    found = inherited() | {"PYTHONUNBUFFERED": "1"}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or (not equals and name not in os.environ):
            raise click.BadParameter(
                f"'{pair}': expected K=V, or the name of a variable of this shell", param_hint="--env"
            )
        found[name] = value if equals else os.environ[name]
    return found


def attend(client: Client, job_id: str) -> int:
    """Follow the job to its end, or until the user leaves."""
    from skep.cli.follow import Follower
    from skep.client import STOPPED_CODE

    follower = Follower(client, job_id)
    try:
        return tell_end(follower.until_end())
    except KeyboardInterrupt:
        say(f"\nskep: asking job {job_id} to stop; Ctrl-C again leaves at once")
    try:
        client.patiently(lambda: stop_unless_ended(client, job_id))
        return tell_end(follower.until_end())
    except KeyboardInterrupt:
        state = "it was asked to stop and may run until its grace period is over"
        say(f"\nskep: left job {job_id}: {state}; `skep show {job_id}` has the details")
        return STOPPED_CODE


def stop_unless_ended(client: Client, job_id: str) -> None:
    import contextlib

    from skep.core.errors import Conflict

    with contextlib.suppress(Conflict):
        client.stop(job_id, "Ctrl-C")


def tell_end(job: dict[str, Any]) -> int:
    from skep.client import exit_code

    if job["state"] != "succeeded":
        why = last_words(job)
        say(f"skep: job {job['id']} {job['state']}{': ' if why else ''}{why}")
    return exit_code(job)
