"""`skep show`: one job."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

import click

from skep.cli.eta import eta_sentence
from skep.cli.live import (
    cell,
    check_watch,
    clock,
    connect,
    console,
    date,
    job_argument,
    last_words,
    many,
    output_option,
    print_data,
    progress_of,
    server_option,
    table_of,
    watch,
    watch_option,
)
from skep.cli.plain import clean

if TYPE_CHECKING:
    from rich.console import RenderableType

    from skep.client import Client, Job

TASKS_SHOWN = 32
EVENTS = 8
LABEL = 11
IDLE_S = 30.0
"""Seconds without any CPU time after which a job that shares a GPU is shown as idle."""


@click.command()
@job_argument
@output_option
@watch_option
@server_option
def show(job: str, output: str, watch: bool, url: str) -> None:
    """Show everything about a job: its state and why, tasks, attempts, progress, what happened last.

    JOB is an id, or a name: the latest job of that name.

    \b
    Examples:
      skep show 17
      skep show train -o json
    """
    check_watch(watch, output)
    with connect(url) as client:
        if watch:
            keep_showing(client, job)
        elif output == "table":
            console().print(draw(*ask(client, job)))
        else:
            print_data(client.job(job), output)


def keep_showing(client: Client, job: str) -> None:
    watch(lambda: ask(client, job), lambda found: draw(*found), client)


def ask(client: Client, job: str) -> tuple[Job, list[dict[str, Any]]]:
    found = client.job(job)
    return found, client.last_events(EVENTS, found["id"])


def draw(job: Job, events: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    parts: list[Any] = [title(job), *(Text(line, overflow="fold") for line in facts(job, time.time()))]
    for heading, table in (
        ("tasks", task_table(job)),
        ("attempts", attempt_table(job)),
        ("events", event_table(events)),
    ):
        if table is not None:
            parts += [Text(f"\n{heading}", style="bold"), table]
    return Group(*parts)


def title(job: Job) -> Any:
    from rich.text import Text

    return Text.assemble((f"job {job['id']}  {clean(job['name'])}  ", "bold"), cell(job["state"]))


def facts(job: Job, now_s: float) -> list[str]:
    """Lines of a label and a value; missing values are left out."""
    from skep.client import ENDED

    request = job.get("request") or {}
    roles = request.get("tasks") or {}
    found = {
        "because": last_words(job) if job["state"] in ENDED else clean(str(job.get("reason") or "")),
        "belongs to": owner(job),
        "times": times(job),
        "forecast": eta_sentence(job, now_s),
        "asks for": "; ".join(asks(name, role) for name, role in roles.items()),
        "command": "; ".join(dict.fromkeys(command(role) for role in roles.values())),
        "workdir": request.get("workdir"),
        "runs on": ", ".join(job.get("nodes") or []),
        "shares": share_of(job.get("share") or {}),
        "progress": progress_of(job.get("progress") or {}),
        "needs": ", ".join(request.get("needs") or []),
        "group": job.get("group"),
        "tags": ", ".join(job.get("tags") or []),
    }
    return [f"{label:<{LABEL}} {clean(str(value))}" for label, value in found.items() if value]


def share_of(share: dict[str, Any]) -> str:
    """`slice: got 49.8% of the time, 0.97 CPUs`, and further details."""
    if not share:
        return ""
    said = []
    if share.get("share") is not None:
        said.append(f"got {share['share']:.1%} of the time")
    if share.get("cpu") is not None:
        said.append(f"{share['cpu']:.2f} CPUs")
    if share.get("guaranteed_milli"):
        said.append(f"guaranteed {share['guaranteed_milli'] / 1000:g}")
    if (share.get("limit_milli") or 1000) < 1000:
        said.append(f"at most {share['limit_milli'] / 1000:g}")
    if share.get("duty") is not None:
        said.append(f"may run {share['duty']:.0%} of the time")
    if (share.get("idle_s") or 0) >= IDLE_S:
        said.append(f"has used no CPU for {clock(share['idle_s'])}")
    return f"{share.get('mode') or 'alone'}: {', '.join(said) or 'not measured yet'}"


def owner(job: Job) -> str:
    return f"user {job.get('user') or '?'}, VC {job['vc']}, priority {job['priority']}"


def times(job: Job) -> str:
    start_s, finish_s = job.get("start_s"), job.get("finish_s")
    said = [f"submitted {date(job['submit_s'])}"]
    if start_s is not None:
        said.append(f"started {date(start_s)}")
    if finish_s is not None:
        said.append(f"ended {date(finish_s)}")
    said.append(f"waited {clock(job['waited_s'])}")
    if start_s is not None:
        said += [f"ran {clock(job['ran_s'])}", f"{job['service_gpu_s'] / 3600:.2f} GPU-hours"]
    return ", ".join(said)


def asks(name: str, role: dict[str, Any]) -> str:
    gpus = role.get("gpus", 0)
    wants = [many(gpus, f"{role['gpu_type']} GPU" if role.get("gpu_type") else "GPU")] if gpus else ["no GPU"]
    which = "each" if gpus > 1 else "it"
    wants += [f"{role['gpu_milli']}/1000 of {which}"] if role.get("gpu_milli", 1000) != 1000 else []
    wants += [f"{role['cpu']:g} CPUs"] if role.get("cpu") else []
    wants += [f"{role['memory_gib']:g} GiB"] if role.get("memory_gib") else []
    return f"{name}: {role.get('count', 1)} × {', '.join(wants)}"


def command(role: dict[str, Any]) -> str:
    """Lines of a script are shown as one."""
    return "; ".join(str(role.get("command") or "").splitlines()) or shlex.join(role.get("argv") or ())


def task_table(job: Job) -> Any:
    """The first tasks of the last launch; those of a large job would fill the screen."""
    tasks = job.get("tasks") or []
    if not tasks:
        return None
    rows = [
        (task["name"], task["state"], task["node"], " ".join(str(gpu) for gpu in task["gpus"]), task["exit_code"])
        for task in tasks[:TASKS_SHOWN]
    ]
    if len(tasks) > TASKS_SHOWN:
        rows.append((f"and {len(tasks) - TASKS_SHOWN:,} more", "", "", "", None))
    return table_of(("TASK", "STATE", "NODE", "GPUS", "EXIT"), rows, right=("EXIT",))


def attempt_table(job: Job) -> Any:
    attempts = job.get("history") or []
    if not attempts:
        return None
    rows = [
        (
            f"{attempt['task']} {attempt['launch']}".strip(),
            date(attempt["start_s"]),
            clock(length(attempt)),
            ",".join(attempt["nodes"]),
            attempt["outcome"],
            attempt["code"],
            "; ".join(str(attempt[key]) for key in ("phrase", "advice") if attempt[key]),
        )
        for attempt in attempts
    ]
    return table_of(("N", "STARTED", "TIME", "NODES", "OUTCOME", "EXIT", "WHY"), rows, right=("N", "TIME", "EXIT"))


def length(attempt: dict[str, Any]) -> float | None:
    start_s, end_s = attempt["start_s"], attempt["end_s"]
    return None if start_s is None else (time.time() if end_s is None else end_s) - start_s


def event_table(events: list[dict[str, Any]]) -> Any:
    if not events:
        return None
    return table_of(
        ("TIME", "WHO", "WHAT"), [(date(event["at_s"]), event.get("who"), event["text"]) for event in events]
    )
