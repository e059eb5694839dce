"""Searches of a running Skep: verdicts about trials, how far each search is, and its end on request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from skep.core.errors import Conflict, NotFound
from skep.core.events import Event, GroupEnded, JobReleased
from skep.core.fold.searches import spent_gpu_s
from skep.core.group import Group
from skep.core.job import FINAL, JobState
from skep.core.search import SearchSpec, Trial
from skep.jobs.core import named_ref
from skep.jobs.request import Request
from skep.policies.search import PAUSED, judge
from skep.service.store import JobFilter
from skep.service.turn import Turn, notify_verdict
from skep.service.values import Json

if TYPE_CHECKING:
    from skep.service.commands import Prepare
    from skep.service.reads import Reads
    from skep.service.writer import Writer

PAGE = 500


def judged(writer: Writer, turn: Turn, events: list[Event]) -> list[Event]:
    """What the rules of searches say. A trial that goes on again may have to wait for a limit first."""
    found: list[Event] = []
    for event in judge(writer.state, events):
        record, job = writer.book.of(event.job_id), writer.state.jobs[event.job_id]
        if record is not None:
            notify_verdict(turn, record, event)
        found.append(writer.limits.release(job) if isinstance(event, JobReleased) and job.hold else event)
    return found


def refuse_running(writer: Writer, turn: Turn, requests: Iterable[Request]) -> None:
    """Trials of two searches are not compared with each other."""
    for group_id in {ref.id: None for each in requests if each.of_group.search and (ref := named_ref(each))}:
        group = writer.state.groups.get(group_id)
        if group_id in turn.formed or (group is not None and group.left):
            name = group_id.rpartition("/")[2]
            raise Conflict(f"a search {name} is running", hint=f"`skep search stop {name}`, or give it another name")


def stop(group_id: str, who: str) -> Prepare:
    def prepare(writer: Writer, turn: Turn) -> None:
        turn.alone()
        group = writer.state.groups.get(group_id)
        if group is None or group.outcome is not None:
            raise Conflict(f"search {group_id.rpartition('/')[2]} has already ended")
        why = f"its search was stopped by {who}" if who else "its search was stopped"
        turn.events.append(GroupEnded(group_id, JobState.STOPPED, why))

    return prepare


# Reading -----------------------------------------------------------------------------------------------------------


def searches(reads: Reads) -> list[Json]:
    """Searches that the state has, the latest first; the trials of older ones are in the list of jobs."""
    with reads.lock:
        state = reads.writer.state
        groups = [group for group in state.groups.values() if group.spec.search is not None and group.members]
        found = [group for group in groups if reads.sight.sees(group.id.partition("/")[0])]
        order = {group.id: state.jobs[next(iter(group.members))].seq for group in found}
        found.sort(key=lambda group: -order[group.id])
        shown = [(summary(group, spent_gpu_s(state, group)), group.spec.search, list(group.members)) for group in found]
    return [{**head, **best_of(search, metrics(reads, search, trials))} for head, search, trials in shown if search]


def metrics(reads: Reads, search: SearchSpec, trials: Iterable[str]) -> dict[str, float | None]:
    return {job_id: number(reads.engine.progress(job_id).get(search.metric)) for job_id in trials}


def number(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def best_of(search: SearchSpec, values: Mapping[str, float | None]) -> Json:
    """The trial whose last value is the best, and that value."""
    known = {job_id: value for job_id, value in values.items() if value is not None}
    best = min(known, key=lambda job_id: search.cost(known[job_id]), default=None)
    return {"best": best, "best_value": None if best is None else known[best]}


def summary(group: Group, spent: float) -> Json:
    vc, user, name = group.id.split("/", 2)
    search = group.spec.search
    assert search is not None
    return {
        **{"name": name, "vc": vc, "user": user, **shown_rule(search)},
        "state": "running" if group.left else "ended",
        "trials": len(group.members),
        "ended": len(group.members) - group.left,
        "paused": sum(trial.is_paused for name, trial in group.trials.items() if group.members.get(name) is None),
        "spent_gpu_hours": spent / 3600,
    }


def search_of(reads: Reads, ref: str) -> Json:
    """One search with its trials, as they were submitted: by its name, the latest of that name."""
    rows = trials_named(reads, ref)
    first = rows[0]["request"]
    search = msgspec.convert(first["of_group"]["search"], SearchSpec)
    group_id = f"{first['vc']}/{first['user']}/{first['group']}"
    with reads.lock:
        group = reads.writer.state.groups.get(group_id)
        if group is not None and rows[0]["id"] not in group.members:
            group = None  # of that name, and another search
        noted = group.trials if group is not None else {}
        trials = [shown_trial(row, search, noted.get(row["id"])) for row in rows]
        spent = None if group is None else spent_gpu_s(reads.writer.state, group)
        why = "" if group is None else group.reason
    best = best_of(search, {each["id"]: each["value"] for each in trials})
    for each in trials:
        each["is_best"] = each["id"] == best["best"]
    is_open = any(row["state"] not in FINAL for row in rows)
    return {
        **{"name": first["group"], "vc": first["vc"], "user": first["user"], **shown_rule(search)},
        "state": "running" if is_open else "ended",
        "reason": why,
        "spent_gpu_hours": sum(row["service_gpu_s"] for row in rows) / 3600 if spent is None else spent / 3600,
        **best,
        "trials": trials,
    }


def trials_named(reads: Reads, ref: str) -> list[Json]:
    """Those of the latest search of that name; its first trial has the index 0."""
    found, cursor = reads.compared(JobFilter(group=ref, all=True), PAGE, None)
    while cursor is not None:
        more, cursor = reads.compared(JobFilter(group=ref, all=True), PAGE, cursor)
        found += more
    rows = [row for row in found if row["request"]["of_group"]["search"] is not None]
    starts = [at for at, row in enumerate(rows) if row["request"]["of_group"]["index"] == 0]
    if not starts:
        raise NotFound(f"there is no search {ref}", hint="`skep search ls` lists them")
    last = rows[starts[-1]]
    return [row for row in rows[starts[-1] :] if (row["user"], row["vc"]) == (last["user"], last["vc"])]


def shown_rule(search: SearchSpec) -> Json:
    return {name: getattr(search, name) for name in search.__struct_fields__}


def shown_trial(row: Json, search: SearchSpec, trial: Trial | None) -> Json:
    """`value`: what it reported last, if that is a number."""
    is_paused = row["state"] == "pending" and row["reason"].removeprefix("held: ").startswith(PAUSED)
    results = [] if trial is None else trial.results
    return {
        **{"id": row["id"], "name": row["name"], "parameters": row["request"]["parameters"]},
        "state": "paused" if is_paused else row["state"],
        "why": row["reason"],
        "step": number(row["values"].get("step")),
        "value": number(row["values"].get(search.metric)),
        "rungs": [{"step": search.rung(at), "value": finite(search.value(cost))} for at, cost in enumerate(results)],
        "is_best": False,
    }


def finite(value: float) -> float | None:
    return value if abs(value) < 1e300 else None


def group_of(reads: Reads, ref: str) -> tuple[str, Json]:
    """The group of a search, and its first trial."""
    row = trials_named(reads, ref)[0]
    asked = row["request"]
    return f"{asked['vc']}/{asked['user']}/{asked['group']}", row
