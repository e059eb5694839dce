"""Short runs that measure the speed of a model on a GPU type."""

from __future__ import annotations

import pytest
from tests.support import cluster, job, trace

from skep.core.model import gpu_shape
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.simulate import Experiment
from skep.profiles.native import NOTHING, Factors, NativeProfile
from skep.service.loop import run
from skep.traces.trace import TraceJob

TWO = "1x1:fast+1x1:slow"
MEASURED = NativeProfile("fast", NOTHING, {"m": Factors({"fast": 1.0, "slow": 0.25}, {1: 1.0}, {}, {})})


class Course:
    """A run in which nobody but the simulator knows the speeds; jobs report their steps."""

    def __init__(self, policy: str, *jobs: TraceJob, on: str = TWO) -> None:
        where = cluster(on)
        self.state = State(where.blank())
        self.starts: list[tuple[str, float, str, float | None]] = []
        given = trace(*jobs)
        planner = Experiment(given, where).planner(policy)
        engine = Simulator(given.jobs, self.state.cluster, speed=MEASURED.speed(self.state.cluster), reports=True)
        scheduler = Scheduler(self.state, planner)
        run(scheduler, engine, lambda at_s, events: self.note(scheduler))

    def note(self, scheduler: Scheduler) -> None:
        nodes = self.state.cluster.nodes
        for each in (decision for plan in scheduler.plans for decision in plan.decisions if not decision.before):
            assert each.after is not None
            node = nodes[each.after.slices[0].node]
            length = None if each.until_s is None else each.until_s - self.state.now_s
            self.starts.append((each.job_id, self.state.now_s, node.pool.gpu_type, length))

    @property
    def probes(self) -> list[tuple[str, float, str]]:
        return [(name, at_s, where) for name, at_s, where, length in self.starts if length]


def learner(**more: object) -> TraceJob:
    return job(1, work=1000, model="m", steps=1000, **more)


@pytest.mark.parametrize("policy", ["allox", "themis", "gandiva-fair", "gavel-las"])
def test_a_speed_that_is_not_known_is_measured_once_on_each_type(policy: str) -> None:
    course = Course(f"{policy}:probe=20", learner(), learner(), learner())
    assert course.probes == [("j0", 0.0, "fast"), ("j1", 0.0, "slow")]
    rates = [course.state.known.rate(course.state.jobs["j0"].spec, gpu_shape(1), each) for each in ("fast", "slow")]
    assert rates == pytest.approx([1.0, 0.25])
    assert all(each.state.is_final for each in course.state.jobs.values())


def test_a_policy_that_does_not_ask_measures_nothing() -> None:
    assert not Course("allox", learner(), learner()).probes


def test_only_jobs_that_allow_it_measure() -> None:
    assert not Course("allox:probe=20", learner(preemptible=False), job(1, work=1000)).probes
    assert Course("allox:probe=20", learner(gpu_type="slow")).probes == [("j0", 0.0, "slow")]
    assert not Course("allox:probe=20", learner(), on="2x1:fast").probes  # nothing to compare


def test_a_job_that_reports_nothing_measures_once_on_each_type_and_goes_on() -> None:
    course = Course("allox:probe=20", job(1, work=1000, model="m"))
    assert course.probes == [("j0", 0.0, "fast"), ("j0", 20.0, "slow")]
    assert course.starts[2][:3] == ("j0", 40.0, "fast")
    assert course.state.jobs["j0"].state.is_final
