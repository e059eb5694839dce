"""What a submission would do, in words: `skep submit --plan` and `skep run --plan`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from skep.cli.eta import SOURCES, short, span
from skep.cli.live import many, say
from skep.cli.plain import clean

if TYPE_CHECKING:
    from skep.client import Client

Command = TypeVar("Command", bound=Callable[..., Any])


def plan_options(command: Command) -> Command:
    skips = click.option("-y", "--yes", is_flag=True, help="With --plan: submit without asking.")
    return click.option("--plan", "is_planned", is_flag=True, help="First print what it would do, and ask.")(
        skips(command)
    )


def confirm(client: Client, jobs: list[Any], *, yes: bool) -> None:
    """Print what each submission would do and ask; ends the command if the answer is no."""
    for job in jobs:
        for line in plan_lines(client.plan(job), time.time()):
            say(line)
    if not yes:
        click.confirm("Submit?", abort=True, err=True)


def plan_lines(plan: dict[str, Any], now_s: float) -> Iterator[str]:
    for job in plan["jobs"]:
        yield f"{clean(job['name'])}: {placement(job)}{when(job, plan, now_s)}"
    yield from others(plan)
    if plan["alternatives"]:
        yield "Instead, at once:"
    for fix in plan["alternatives"]:
        yield f"  {clean(fix['text'])}: {clean(fix['effect'])}"
    yield f"From {many(plan['samples'], 'simulation')}, if no other job is submitted."


def placement(job: dict[str, Any]) -> str:
    gpus = f"{job['gpus']:g} GPU{'' if job['gpus'] == 1 else 's'}"
    return f"{gpus}, starts now on {', '.join(map(clean, job['nodes']))}" if job["nodes"] else f"{gpus}, waits"


def when(job: dict[str, Any], plan: dict[str, Any], now_s: float) -> str:
    """`, starts in 12m (5m-40m), ends in 2h (1h-5h), 16 GPU-hours, length as its owner expects`."""
    eta = {"until_s": plan["until_s"], "made_s": now_s}
    said = []
    if job["start"] and not job["nodes"]:
        said.append(f"starts {span(job['start'], eta, now_s)}")
    if job["end"]:
        said.append(f"ends {span(job['end'], eta, now_s)}")
    if job["gpu_hours"] is not None:
        said.append(f"{job['gpu_hours']:.3g} GPU-hours")
    return "".join(f", {each}" for each in [*said, f"length {SOURCES[job['lengths']]}"])


def others(plan: dict[str, Any]) -> Iterator[str]:
    """What it costs others."""
    hidden = plan["preempts_others"]
    named = [f"job {clean(job)}" for job in plan["preempts"]] + (
        [f"{many(hidden, 'job')} of other VCs"] if hidden else []
    )
    if named:
        yield f"It preempts {', '.join(named)}."
    if plan["delayed"]:
        named = [f"job {clean(each['job'])} by {short(each['delay_s'])}" for each in plan["delays"]]
        rest = plan["delayed"] - len(named)
        named += [f"{rest} more"] if rest else []
        yield f"It delays {', '.join(named)}; {short(plan['delay_s'])} all together."
    elif not named:
        yield "It delays no other job."
