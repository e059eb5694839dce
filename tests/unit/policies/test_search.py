"""Rules of searches, in simulations whose trials report made curves: who goes on, who pauses, who is stopped."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.support.invariants import check
from tests.support.snapshot import snapshot

from skep.core.cluster import Cluster, NodeSpec
from skep.core.events import Event, GroupFormed, JobHeld, JobReleased, JobSubmitted, StopRequested
from skep.core.group import GroupKind, GroupSpec
from skep.core.job import JobState
from skep.core.model import GroupRef, JobSpec, gpu_shape
from skep.core.search import SearchSpec, Trial
from skep.core.snapshot import dump, load
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.policies.adjust.grow import part_after_restart
from skep.policies.registry import Setting, build_planner
from skep.policies.search import judge
from skep.service.loop import run
from skep.traces.trace import LossCurve, TraceJob

STEPS, SECONDS_A_STEP = 81, 100.0
SUCCEEDED, STOPPED = JobState.SUCCEEDED, JobState.STOPPED


def curves(seed: int, count: int = 27) -> list[LossCurve]:
    """Trials differ in where their loss ends and in how fast it falls, so that the order changes on the way."""
    draw = random.Random(seed)
    return [LossCurve(draw.uniform(0.1, 1.0), draw.uniform(1, 3), draw.uniform(0.3, 1.2)) for _ in range(count)]


class Searched:
    """A simulated search to its end."""

    def __init__(self, trials: list[LossCurve], gpus: int = 4, policy: str = "fifo", **search: object) -> None:
        self.curves = trials
        self.cluster = Cluster([NodeSpec("n0", gpus)])
        self.state = State(self.cluster)
        self.ends: dict[str, float] = {}
        self.verdicts: list[tuple[float, Event]] = []
        jobs = [
            TraceJob(
                0.0,
                STEPS * SECONDS_A_STEP,
                JobSpec(str(at), (gpu_shape(1),), steps=STEPS, group=GroupRef("s", index=at)),
                curve,
            )
            for at, curve in enumerate(trials)
        ]
        spec = msgspec.convert({"metric": "loss", "first": 9.0, **search}, SearchSpec)
        group = GroupSpec("s", GroupKind.SWEEP, search=spec)
        planner = build_planner(policy, Setting(self.cluster))
        self.simulator = Simulator(jobs, self.cluster, groups=(group,))
        run(Scheduler(self.state, planner), self.simulator, self.see)

    def see(self, at_s: float, events: list[Event]) -> None:
        check(self.state)
        self.verdicts += [(at_s, event) for event in events if isinstance(event, JobHeld | JobReleased | StopRequested)]
        for job in self.state.jobs.values():
            if job.state.is_final:
                self.ends.setdefault(job.id, at_s)

    @property
    def best(self) -> str:
        """Of all trials, had each run to its end."""
        return str(min(range(len(self.curves)), key=lambda at: self.curves[at].at(STEPS)))

    def count(self, state: JobState) -> int:
        return sum(job.state is state for job in self.state.jobs.values())

    def reaches(self, target: float) -> float:
        """When the first trial that came to its end had a loss of at most this."""
        ended = [name for name in self.ends if self.state.jobs[name].state is SUCCEEDED]
        return min(self.ends[name] for name in ended if self.curves[int(name)].at(STEPS) <= target)


def test_asha_stops_most_trials_early_and_keeps_the_best_of_the_grid() -> None:
    found = [Searched(curves(seed), rule="asha") for seed in range(10)]
    assert all(each.count(STOPPED) >= 18 for each in found)
    assert sum(each.state.jobs[each.best].state is SUCCEEDED for each in found) >= 9


@pytest.mark.parametrize("rule", ["asha", "hypersched", "median"])
def test_a_target_is_reached_sooner_than_by_running_every_trial_to_its_end(rule: str) -> None:
    """The target is what the best trial that a rule kept came to: all of them find it when everybody runs."""
    sooner = 0
    for seed in range(5):
        deadline_s = 60_000.0 if rule == "hypersched" else None
        some = Searched(curves(seed), rule=rule, deadline_s=deadline_s)
        target = min(
            each.at(STEPS) for at, each in enumerate(some.curves) if some.state.jobs[str(at)].state is SUCCEEDED
        )
        everyone = Searched(curves(seed), rule="none")
        assert everyone.count(SUCCEEDED) == 27
        sooner += some.reaches(target) < everyone.reaches(target)
        assert some.state.now_s < everyone.state.now_s / 1.5
    assert sooner >= 4


def test_a_paused_trial_gives_its_gpu_back_and_continues_from_where_it_was() -> None:
    found = Searched(curves(1), rule="asha")
    paused = [(at_s, event.job_id) for at_s, event in found.verdicts if isinstance(event, JobHeld)]
    released = {event.job_id for at_s, event in found.verdicts if isinstance(event, JobReleased)}
    again = next((name for _, name in paused if name in released and found.state.jobs[name].state is SUCCEEDED), None)
    assert again is not None
    job = found.state.jobs[again]
    assert job.preemptions + job.launches >= 2
    # Work is done once: the restarts are all that it held its GPU for beyond that.
    assert job.service_gpu_s == pytest.approx(STEPS * SECONDS_A_STEP + 30.0 * (job.launches - 1))


def test_reasons_name_the_value_the_step_and_the_place() -> None:
    found = Searched(curves(0), rule="asha")
    reasons = [job.reason for job in found.state.jobs.values() if job.state is STOPPED]
    assert all("stopped by its search: loss " in reason and " at step " in reason for reason in reasons)
    assert any("27, better ones went on" in reason for reason in reasons)
    assert found.state.groups["s"].outcome is SUCCEEDED


def test_one_trial_goes_to_its_end_even_if_there_are_fewer_than_eta() -> None:
    found = Searched(curves(3, count=2), rule="asha")
    assert (found.count(SUCCEEDED), found.count(STOPPED)) == (1, 1)


def test_the_median_rule_stops_what_is_worse_than_the_median() -> None:
    trials = [LossCurve(floor, 1.0, 1.0) for floor in (0.1, 0.2, 0.3, 0.4, 0.5)]
    found = Searched(trials, gpus=5, rule="median")
    assert [str(job.state) for job in found.state.jobs.values()] == [*["succeeded"] * 3, *["stopped"] * 2]
    assert "is worse than the median of 4 others" in found.state.jobs["4"].reason


@pytest.mark.parametrize("rule", ["asha", "median"])
def test_a_metric_that_is_not_a_number_is_worse_than_all(rule: str) -> None:
    trials = [*curves(5, count=5), LossCurve(float("inf"), 1.0, 1.0)]
    state = Searched(trials, gpus=6, rule=rule).state
    assert state.jobs["5"].state is STOPPED


def test_max_turns_the_order_round() -> None:
    trials = [LossCurve(floor, 1.0, 1.0) for floor in (0.1, 0.2, 0.9)]
    found = Searched(trials, gpus=3, rule="asha", mode="max")
    assert [name for name, job in found.state.jobs.items() if job.state is SUCCEEDED] == ["2"]


def test_a_deadline_ends_the_search_and_hypersched_begins_no_trial_that_cannot_come_far() -> None:
    found = Searched(curves(2), gpus=2, rule="hypersched", eta=4.0, deadline_s=12_000.0)
    reasons = [job.reason for job in found.state.jobs.values()]
    assert found.state.now_s <= 12_000.0
    assert any("not begun by its search: " in reason for reason in reasons)
    all_trials = Searched(curves(2), gpus=2, rule="asha", deadline_s=12_000.0)
    assert all_trials.state.now_s == 12_000.0
    assert any("the deadline of the search came after 12000 s" in job.reason for job in all_trials.state.jobs.values())


def test_a_budget_ends_the_search_when_it_is_spent() -> None:
    found = Searched(curves(2), rule="none", gpu_hours=10.0)
    assert sum(job.service_gpu_s for job in found.state.jobs.values()) == pytest.approx(36_000.0)
    assert "the budget of the search is spent: 10 GPU-hours" in found.state.jobs["26"].reason
    assert not found.state.timers


@pytest.mark.parametrize("policy", ["tiresias-l", "srtf", "afs-l", "themis"])
def test_searches_run_under_any_policy(policy: str) -> None:
    found = Searched(curves(4), policy=policy, rule="asha")
    assert found.count(STOPPED) >= 18
    assert found.count(SUCCEEDED) >= 1


def test_verdicts_are_the_same_again_and_judging_twice_changes_nothing() -> None:
    one, two = (Searched(curves(6), rule="asha") for _ in range(2))
    assert one.verdicts == two.verdicts
    everything = [event for _, event in one.verdicts]
    assert judge(one.state, everything) == []


def test_a_snapshot_keeps_results_and_timers() -> None:
    found = Searched(curves(7), rule="asha", deadline_s=1e6)
    again = load(dump(found.state), Cluster([NodeSpec("n0", 4)]))
    assert snapshot(again) == snapshot(found.state)
    assert again.groups["s"].trials == found.state.groups["s"].trials


@pytest.mark.parametrize(("left_s", "begun_s", "part"), [(1000.0, 100.0, 0.9), (100.0, 100.0, 0.0), (0.0, 1.0, 0.0)])
def test_near_the_deadline_a_restart_costs_more_than_growing_brings(left_s: float, begun_s: float, part: float) -> None:
    """HyperSched's test: twice as fast with 55 % of the time is a gain of 1.1."""
    state = State(Cluster([NodeSpec("n0", 4)]))
    spec = JobSpec("a", (gpu_shape(1),), min_gpus=1, max_gpus=4, group=GroupRef("s"))
    search = SearchSpec("loss", rule="hypersched", deadline_s=left_s)
    state.advance(0.0, [GroupFormed(GroupSpec("s", search=search)), JobSubmitted(spec)])
    state.groups["s"].trials["a"] = Trial(begun_s=begun_s)
    assert part_after_restart(state, state.jobs["a"]) == pytest.approx(part)
    free = JobSpec("b", (gpu_shape(1),))
    state.advance(0.0, [JobSubmitted(free)])
    assert part_after_restart(state, state.jobs["b"]) == 1.0


def test_an_elastic_trial_grows_while_there_is_time() -> None:
    cluster = Cluster([NodeSpec("n0", 4)])
    spec = JobSpec("a", (gpu_shape(1),), steps=81, min_gpus=1, max_gpus=4, group=GroupRef("s"))
    search = SearchSpec("loss", rule="hypersched", first=9.0, eta=4.0, deadline_s=1e6)
    simulator = Simulator([TraceJob(0.0, 8100.0, spec)], cluster, groups=(GroupSpec("s", search=search),))
    state = State(cluster)
    run(Scheduler(state, build_planner("fifo:adjust=grow", Setting(cluster))), simulator)
    assert (state.jobs["a"].resizes, state.jobs["a"].state) == (1, SUCCEEDED)
