"""Rules of searches: which trials go on at a rung, which pause and give their GPUs back, which are stopped.

A rule sees what trials have reported (`core/search.py`), no clock and no chance, and its verdicts are events: a release
(the trial goes on), a hold that pauses (it saves itself, and may go on later) or a stop. The same code judges trials of
a server and of a simulation, whatever policy gives them their GPUs.

* `asha` (Li et al., MLSys'20): of the results at a rung the best 1/η go on. The others pause, and go on later if more
  results make them one of these. When all of them pause, the best goes on unless one that came to its end was
  better.
* `hypersched` (Liaw et al., SoCC'19): the same, except that the first at a rung goes on; no new trial begins when it
  could not come far before the deadline.
* `median` (Golovin et al., KDD'17): a trial that is worse than the median of the others at the same step is stopped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from skep.core.events import Event, JobHeld, JobReleased, StopRequested, TimerDue
from skep.core.fold.searches import searched_by
from skep.core.group import Group
from skep.core.job import Job, JobState
from skep.core.search import SearchSpec, Trial
from skep.core.state import State

Verdict = JobReleased | JobHeld | StopRequested

PAUSED = "paused by its search"
"""The reason of a hold begins with it."""
OTHERS_MIN = 3
"""The median of fewer trials says nothing."""


class Open(NamedTuple):
    """A trial that has not ended."""

    job: Job
    trial: Trial

    @property
    def is_fresh(self) -> bool:
        """It has a result and no verdict."""
        return self.trial.passed < len(self.trial.results) and not self.trial.is_paused


def judge(state: State, events: Iterable[Event]) -> list[Verdict]:
    """The verdicts that follow from these events, which the state has applied."""
    found: list[Verdict] = []
    for group in searches_in(state, events):
        if group.outcome is None and group.spec.search is not None:
            found += VERDICTS[group.spec.search.rule](state, group, group.spec.search)
    return found


def searches_in(state: State, events: Iterable[Event]) -> list[Group]:
    """The searches that these events may concern."""
    found: dict[str, Group] = {}
    for event in events:
        if isinstance(event, TimerDue):
            found |= {group.id: group for group in state.groups.values() if group.spec.search is not None}
        job = state.jobs.get(getattr(event, "job_id", ""))
        group = searched_by(state, job) if job is not None else None
        if group is not None:
            found[group.id] = group
    return list(found.values())


def run_all(state: State, group: Group, search: SearchSpec) -> Iterator[Verdict]:
    return iter(())


def by_median(state: State, group: Group, search: SearchSpec) -> Iterator[Verdict]:
    for each in open_trials(state, group):
        if not each.is_fresh:
            continue
        rung, cost = len(each.trial.results) - 1, each.trial.results[-1]
        others = [trial.results[rung] for trial in group.trials.values() if len(trial.results) > rung]
        others.remove(cost)
        middle = statistics.median(others) if len(others) >= OTHERS_MIN else math.inf
        if cost == math.inf:
            yield diverged(each, search)
        elif cost > middle:
            why = f"{shown(search, rung, cost)} is worse than the median of {len(others)} others, "
            yield StopRequested(each.job.id, f"stopped by its search: {why}{search.value(middle):g}")
        else:
            yield JobReleased(each.job.id)


def by_rungs(state: State, group: Group, search: SearchSpec) -> Iterator[Verdict]:
    if search.rule == "hypersched":
        yield from explore_no_more(state, group, search)
    trials = list(open_trials(state, group))
    verdicts: list[Verdict] = []
    for rung in sorted({len(each.trial.results) - 1 for each in trials if each.trial.results}):
        ranked = ranked_at(group, rung)
        there = [each for each in trials if len(each.trial.results) == rung + 1]
        verdicts += at_rung(search, rung, ranked, there)
    paused = {event.job_id for event in verdicts if isinstance(event, JobHeld)}
    paused |= {each.job.id for each in trials if each.trial.is_paused}
    paused -= {event.job_id for event in verdicts if isinstance(event, JobReleased)}
    left = [name for name, ended in group.members.items() if ended is None and name not in paused]
    yield from verdicts
    if not left and paused:
        yield from at_the_end(group, search, [each for each in trials if each.job.id in paused])


def at_rung(search: SearchSpec, rung: int, ranked: Sequence[str], there: Iterable[Open]) -> Iterator[Verdict]:
    """Verdicts about the trials whose last result is at this rung."""
    few = len(ranked) / search.eta
    best = ranked[: math.ceil(few) if search.rule == "hypersched" else math.floor(few)]
    for each in there:
        cost = each.trial.results[-1]
        if cost == math.inf:
            yield diverged(each, search)
        elif each.job.id in best:
            if each.is_fresh or each.job.hold.startswith(PAUSED):
                yield JobReleased(each.job.id)
        elif each.is_fresh:
            place = f"is {ranked.index(each.job.id) + 1} of {len(ranked)}"
            go_on = f"the best {len(best)} go on" if len(best) > 1 else "the best goes on" if best else "none goes on"
            why = f"{shown(search, rung, cost)} {place}, {go_on}"
            yield JobHeld(each.job.id, f"{PAUSED}: {why}", pauses=True)


def at_the_end(group: Group, search: SearchSpec, paused: list[Open]) -> Iterator[Verdict]:
    """All trials pause. The best of them goes on, unless one that came to its end was better at the same rung: then the
    search is over."""
    ended = [trial for name, trial in group.trials.items() if group.members.get(name) is JobState.SUCCEEDED]
    for each in sorted(paused, key=lambda each: (-len(each.trial.results), each.trial.results[-1], each.job.seq)):
        rung, cost = len(each.trial.results) - 1, each.trial.results[-1]
        if not any(len(trial.results) > rung and trial.results[rung] <= cost for trial in ended):
            yield JobReleased(each.job.id)
            return
    for each in paused:
        rung, cost = len(each.trial.results) - 1, each.trial.results[-1]
        ranked = ranked_at(group, rung)
        why = f"{shown(search, rung, cost)} was {ranked.index(each.job.id) + 1} of {len(ranked)}"
        yield StopRequested(each.job.id, f"stopped by its search: {why}, better ones went on")


def explore_no_more(state: State, group: Group, search: SearchSpec) -> Iterator[Verdict]:
    """Trials that have not begun, if they could not come far in the time that is left (HyperSched's admission)."""
    seen = [(state.jobs[name].run_at(state.now_s), trial) for name, trial in group.trials.items()]
    if not seen:
        return
    full_s = [ran_s * trial.steps / trial.step for ran_s, trial in seen if trial.steps and trial.step]
    needs_s = min(search.eta * (max(ran_s for ran_s, _ in seen) - group.start_up_s), max(full_s, default=math.inf))
    left_s = group.deadline_at_s - state.now_s
    if left_s >= needs_s:
        return
    for name, ended in group.members.items():
        if ended is None and (job := state.jobs[name]).start_s is None and job.held is None and not job.is_ending:
            why = f"{left_s:,.0f} s are left, and it would need {needs_s:,.0f} s"
            yield StopRequested(name, f"not begun by its search: {why}")


def open_trials(state: State, group: Group) -> Iterator[Open]:
    """Those that have reported, as they were submitted."""
    for name, ended in group.members.items():
        trial = group.trials.get(name)
        if ended is None and trial is not None and not state.jobs[name].is_ending:
            yield Open(state.jobs[name], trial)


def ranked_at(group: Group, rung: int) -> list[str]:
    """Trials with a result at this rung, the best first; equal ones as they were submitted."""
    there = [name for name in group.members if name in group.trials and len(group.trials[name].results) > rung]
    return sorted(there, key=lambda name: group.trials[name].results[rung])


def diverged(each: Open, search: SearchSpec) -> StopRequested:
    return StopRequested(each.job.id, f"stopped by its search: its {search.metric} is not a number")


def shown(search: SearchSpec, rung: int, cost: float) -> str:
    return f"{search.metric} {search.value(cost):.6g} at step {search.rung(rung):g}"


VERDICTS = {"none": run_all, "median": by_median, "asha": by_rungs, "hypersched": by_rungs}
