"""A forecast: a live state simulated onwards, to predict when each job starts and ends if no other job is submitted."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from skep.core.errors import SkepError
from skep.core.events import Event, TasksStarted
from skep.core.job import Job
from skep.core.state import State
from skep.core.step import PlannerChange, Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.estimates import NONE, Estimate, estimate_all, weakest
from skep.experiments.output import cell, write_folder
from skep.experiments.seen import Seen
from skep.experiments.simulate import own_fault
from skep.experiments.trial import BoundedWorld
from skep.policies.idle import Idle
from skep.service.book import owner_of, shown_reason
from skep.service.commands import make_policy
from skep.service.copy import KeptCopy
from skep.service.loop import run
from skep.service.store import StoredJob


class Expected(msgspec.Struct):
    """The forecast for one job. Without `start_s` or `end_s` it is not in this forecast; `note` says why."""

    id: str
    name: str
    user: str
    vc: str
    gpus: float
    state: str
    """When the forecast was made."""
    start_s: float | None
    """When it started, or will; for a preempted job, when it will start again."""
    end_s: float | None
    estimate: str
    """The source of its estimated length: `progress`, `owner`, `history` or `none`."""
    note: str = ""


class ForkMember(NamedTuple):
    """A job of the core: a whole job, or a task of it that starts by itself."""

    source: str
    start_s: float | None
    end_s: float | None
    note: str


class Forecast(msgspec.Struct):
    at_s: float
    policy: str
    until_s: float | None
    """The end of the forecast."""
    jobs: list[Expected]

    @property
    def unknown(self) -> int:
        return sum(job.estimate == NONE for job in self.jobs)


class Starts:
    """An observer that notes the first starts from now on."""

    def __init__(self, before: dict[str, float]) -> None:
        self.by_job = before
        """The first starts of running jobs are known already."""

    def __call__(self, at_s: float, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, TasksStarted):
                self.by_job.setdefault(event.job_id, at_s)


Lengths = Callable[[State], Mapping[str, Estimate]]
"""The total work of open jobs, by id, with the source of each."""


def forecast(
    kept: KeptCopy,
    *,
    policy: str = "",
    now_s: float = 0.0,
    within_s: float = math.inf,
    restart_s: float = 30.0,
    lengths: Lengths = estimate_all,
) -> Forecast:
    """Forecast from the last entry of the store, or from `now_s` if that is later. `policy`: instead of the one in
    use. The state goes on, so it is used up."""
    state = kept.state
    at_s = max(now_s, state.now_s)
    until_s = at_s + within_s
    open_jobs = [job for job in state.jobs.values() if not job.state.is_final]
    starts = Starts({job.id: job.start_s for job in state.held_jobs.values() if job.start_s is not None})
    try:
        scheduler = take_over(kept, policy, at_s)
        estimates = lengths(state)
        work = {job_id: each.work_s for job_id, each in estimates.items()}
        engine = Simulator.adopt(state, work, restart_s=restart_s, speed=Seen(state))
        run(scheduler, BoundedWorld(engine, until_s), starts)
    except SkepError:
        raise
    except Exception as error:
        raise own_fault(kept.ground.policy, error) from error
    members: dict[str, list[ForkMember]] = {}
    for job in open_jobs:
        source = estimates[job.id].source if job.id in estimates else NONE
        member = ForkMember(
            source, starts.by_job.get(job.id), job.finish_s, note_on(job, source, is_cut=until_s < math.inf)
        )
        members.setdefault(owner_of(state, job.id), []).append(member)
    jobs = [expect(row, members[job_id]) for job_id, row in kept.rows.items() if job_id in members]
    return Forecast(at_s, kept.ground.policy, until_s if until_s < math.inf else None, jobs)


def take_over(kept: KeptCopy, policy: str, at_s: float) -> Scheduler:
    """Nothing has happened since the last entry. Decisions made now are in flight when the simulator adopts the
    state."""
    state, ground = kept.state, kept.ground
    if not policy:
        scheduler = Scheduler(state, ground.planner(state.cluster))
        scheduler.step(at_s, [])
        return scheduler
    changed = make_policy(policy, state.cluster)
    ground.follow([changed])
    scheduler = Scheduler(state, Idle())
    scheduler.step(at_s, [changed], PlannerChange(ground.planner))
    return scheduler


def note_on(job: Job, source: str, *, is_cut: bool) -> str:
    """Why the forecast has no end for the job, or why it ends as it does."""
    if job.reason or job.hold:
        return shown_reason(job)
    if job.state.is_final:
        return ""
    if job.held is None:
        return "still waits at the end of the forecast" if is_cut else "waits for resources that never become free"
    return "assumed to run forever" if source == NONE else "still runs at the end of the forecast"


def expect(row: StoredJob, members: list[ForkMember]) -> Expected:
    """For the whole job: from the first start of a member to the last end."""
    starts = [each.start_s for each in members if each.start_s is not None]
    ends = [each.end_s for each in members if each.end_s is not None]
    return Expected(
        id=str(row.seq),
        name=row.name,
        user=row.user,
        vc=row.vc,
        gpus=row.gpus,
        state=row.state,
        start_s=min(starts, default=None),
        end_s=max(ends) if len(ends) == len(members) else None,
        estimate=weakest(each.source for each in members),
        note=next((each.note for each in members if each.note), ""),
    )


def write_forecast(found: Forecast, out: Path) -> None:
    """`OUT/jobs.csv` and `OUT/summary.json`."""

    def fill(folder: Path) -> None:
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(Expected.__struct_fields__)
        rows.writerows([cell(value) for value in msgspec.structs.astuple(job)] for job in found.jobs)
        (folder / "jobs.csv").write_text(text.getvalue(), encoding="utf-8")
        (folder / "summary.json").write_text(json.dumps(summary(found), indent=2) + "\n", encoding="utf-8")

    write_folder(out, fill, force=None)


def summary(found: Forecast) -> dict[str, object]:
    counts = {"jobs": len(found.jobs), "without_estimate": found.unknown}
    ends = {"ended": sum(job.end_s is not None for job in found.jobs)}
    return {"at_s": found.at_s, "policy": found.policy, "until_s": found.until_s, **counts, **ends}
