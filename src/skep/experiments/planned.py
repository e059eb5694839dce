"""What a submission would do, before it is made: where and when its jobs would start and end, and what that would cost
others. Once decided by the policy in charge, then simulated with the submission and without it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

import msgspec

from skep.core.events import Event, GroupFormed, JobSubmitted
from skep.core.job import amount_of
from skep.experiments.adviser_now import NOW_CPU_S, NowTrials, TriedNow, try_now
from skep.experiments.estimates import Experience, weakest
from skep.experiments.fixes import candidates, case_of
from skep.experiments.lengths import draw_all
from skep.experiments.paired import SAMPLES, Sampler, later
from skep.experiments.samples import LEAST, in_fork, likely
from skep.experiments.trial import NOTHING, Making, StateTrial, TrialCourse, TrialOutcome
from skep.service.advice import DelayedJob, Fix, Planned, PlannedJob, PlanQuestion
from skep.service.book import owner_of
from skep.service.copy import KeptCopy

DELAYS_MAX = 10
LATER_S = 1.0
HOUR_S = 3600.0
HELD = "held until it is released"


class PlanSamples(msgspec.Struct):
    """Pairs with the same drawn lengths: without the submission, and with it."""

    without: list[TrialCourse] = []
    changed: list[TrialCourse] = []


def submitting(question: PlanQuestion) -> Making:
    events: list[Event] = [GroupFormed(group) for group in question.groups]
    for request, specs in zip(question.requests, question.specs, strict=True):
        events += [JobSubmitted(spec, HELD if request.hold else "") for spec in specs]
    return Making(tuple(events))


def plan(
    kept: KeptCopy,
    question: PlanQuestion,
    past: Experience,
    names: Mapping[str, str],
    reach_s: float,
    by_s: float,
) -> tuple[Planned, list[Fix]]:
    """In a fork. `reach_s`: so far is simulated; `by_s`: then it ends with the samples that there are."""
    making, first = submitting(question), question.specs[0][0].id
    trials = NowTrials(kept, question.now_s, first)
    outcome = trials.of(making)
    stopped = [name for name in outcome.stopped if name not in trials.before.stopped]
    fixes = [] if outcome.starts or len(question.requests) > 1 else alternatives(kept, question, making)
    until_s = trials.trial.at_s + reach_s
    samples = sample(Sampler(kept, question.now_s, "", past, names), making, until_s, by_s)
    return summed_up(
        kept, question, samples, outcome, stopped, sources(kept, question, making, past, names), until_s
    ), fixes


def alternatives(kept: KeptCopy, question: PlanQuestion, making: Making) -> list[Fix]:
    """Of a job that would wait: other requests that would start now."""

    def work() -> bytes:
        trial = StateTrial(kept, question.now_s)
        trial.make(making)
        case = case_of(
            kept, owner_of(kept.state, question.specs[0][0].id), question.requests[0], question.asker, trial.at_s
        )
        asked = [] if case is None else [each for each in candidates(case) if each.kind in ("alter", "priority")]
        return msgspec.msgpack.encode(TriedNow() if case is None else try_now(case, asked, NOW_CPU_S))

    found = msgspec.msgpack.decode(in_fork(work), type=TriedNow).fixes
    return [msgspec.structs.replace(fix, command="") for fix in found]


def sample(sampler: Sampler, making: Making, until_s: float, by_s: float) -> PlanSamples:
    found = PlanSamples()
    for seed in range(SAMPLES):
        if seed and time.monotonic() > by_s:
            break
        found.without.append(sampler.course(NOTHING, seed, until_s))
        found.changed.append(sampler.course(making, seed, until_s))
    return found


def sources(
    kept: KeptCopy, question: PlanQuestion, making: Making, past: Experience, names: Mapping[str, str]
) -> list[str]:
    """From where the length of each job is known."""

    def work() -> bytes:
        trial = StateTrial(kept, question.now_s)
        trial.make(making)
        drawn = draw_all(trial.state, past, names, 0)
        return msgspec.msgpack.encode([weakest(drawn[spec.id].source for spec in specs) for specs in question.specs])

    return msgspec.msgpack.decode(in_fork(work), type=list[str])


def summed_up(
    kept: KeptCopy,
    question: PlanQuestion,
    samples: PlanSamples,
    outcome: TrialOutcome,
    stopped: list[str],
    lengths: list[str],
    until_s: float,
) -> Planned:
    mine = {spec.id for specs in question.specs for spec in specs}
    delays, total_s = delays_of(samples, mine, until_s)
    by_owner: dict[str, float] = {}
    for name, delay_s in delays.items():
        owner = owner_of(kept.state, name)
        by_owner[owner] = max(by_owner.get(owner, 0.0), delay_s)
    sees = {job_id for job_id, row in kept.rows.items() if question.asker.may_see(row.vc)}
    shown = sorted((each for each in by_owner.items() if each[0] in sees), key=lambda each: (-each[1], int(each[0])))
    preempts = list(dict.fromkeys(owner_of(kept.state, name) for name in stopped))
    each_job = range(len(question.requests))
    return Planned(
        jobs=[planned_job(question, number, samples, outcome, lengths[number], until_s) for number in each_job],
        preempts=[owner for owner in preempts if owner in sees],
        preempts_others=sum(owner not in sees for owner in preempts),
        delays=[DelayedJob(owner, round(delay_s, 1)) for owner, delay_s in shown[:DELAYS_MAX]],
        delayed=len(by_owner),
        delay_s=round(total_s, 1),
        samples=len(samples.changed),
        until_s=until_s,
    )


def delays_of(samples: PlanSamples, mine: set[str], until_s: float) -> tuple[dict[str, float], float]:
    """Medians: of each job that would start later, and of their sum."""
    pairs = [
        later(without, changed, until_s, mine)
        for without, changed in zip(samples.without, samples.changed, strict=True)
    ]
    names = {name for pair in pairs for name in pair}
    middles = {name: median(pair.get(name, 0.0) for pair in pairs) for name in names}
    return {name: each for name, each in middles.items() if each >= LATER_S}, median(
        sum(pair.values()) for pair in pairs
    )


def planned_job(
    question: PlanQuestion, number: int, samples: PlanSamples, outcome: TrialOutcome, lengths: str, until_s: float
) -> PlannedJob:
    request, specs = question.requests[number], question.specs[number]
    runs = [run_of(each, [spec.id for spec in specs]) for each in samples.changed]
    gpus = sum(amount_of(spec.shapes[0]) for spec in specs)
    held = [end_s - start_s for start_s, end_s in runs if start_s is not None and end_s is not None]
    is_known = len(runs) >= LEAST and not request.hold
    return PlannedJob(
        name=request.name,
        gpus=gpus,
        nodes=outcome.nodes if number == 0 and outcome.starts else (),
        start=likely([start_s for start_s, _ in runs], until_s) if is_known else None,
        end=likely([end_s for _, end_s in runs], until_s) if is_known else None,
        gpu_hours=round(gpus * median(held) / HOUR_S, 3) if len(held) * 2 > len(runs) else None,
        lengths=lengths,
    )


def run_of(course: TrialCourse, ids: list[str]) -> tuple[float | None, float | None]:
    """From the first start of a task to the last end."""
    start_s = min((course.starts[name] for name in ids if name in course.starts), default=None)
    is_over = all(name in course.ends for name in ids)
    return start_s, max(course.ends[name] for name in ids) if is_over else None
