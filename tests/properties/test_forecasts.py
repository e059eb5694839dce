"""A forecast with true lengths, while no job is submitted, is what then happens."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import job
from worlds import examples

from skep.core.events import ClusterChanged, Event, PolicyChanged, TasksStarted
from skep.core.snapshot import fork
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.estimates import OWNER, Estimate
from skep.experiments.fork import Forecast, forecast
from skep.policies.registry import policies
from skep.service.copy import KeptCopy
from skep.service.loop import run
from skep.service.planning import Ground
from skep.service.store import StoredJob
from skep.traces.trace import TraceJob

CLUSTER = "2x4"
RESTART_S = 7.0


@st.composite
def submissions(draw: st.DrawFn) -> list[TraceJob]:
    """A few jobs, submitted within two minutes."""
    asked = draw(
        st.lists(
            st.tuples(st.integers(0, 120), st.sampled_from((1, 1, 2, 4, 8)), st.integers(1, 4000)),
            min_size=1,
            max_size=12,
        )
    )
    rows = [
        job(gpus, id=str(number), at=float(at), work=float(work), user=f"u{number % 3}")
        for number, (at, gpus, work) in enumerate(sorted(asked), 1)
    ]
    return rows


class Course:
    """A run that is looked at once, some instants after the last submission."""

    def __init__(self, policy: str, jobs: list[TraceJob], instants: int) -> None:
        self.ground = Ground()
        cluster = self.ground.follow([ClusterChanged("t", CLUSTER), PolicyChanged(policy)])
        assert cluster is not None
        self.jobs = jobs
        self.state = State(cluster)
        self.left = instants
        self.kept: KeptCopy | None = None
        self.starts: dict[str, float] = {}
        """Of jobs that then did not run: when they were started next."""
        scheduler = Scheduler(self.state, self.ground.planner(cluster))
        run(scheduler, Simulator(jobs, cluster, restart_s=RESTART_S), self.observe, self.settled)

    def observe(self, at_s: float, events: list[Event]) -> None:
        if self.kept is not None:
            for event in events:
                if isinstance(event, TasksStarted):
                    self.starts.setdefault(event.job_id, at_s)

    def settled(self, at_s: float) -> None:
        if at_s >= self.jobs[-1].submit_s and self.kept is None:
            self.left -= 1
            if self.left < 0:
                self.kept = KeptCopy(fork(self.state), msgspec.structs.replace(self.ground), self.rows())

    def rows(self) -> dict[str, StoredJob]:
        opened = [each for each in self.state.jobs.values() if not each.state.is_final]
        return {
            each.id: StoredJob(int(each.id), "", each.spec.user, "", each.state, 0, each.gpus, each.submit_s)
            for each in opened
        }

    def foreseen(self) -> Forecast:
        assert self.kept is not None
        true = {each.spec.id: Estimate(each.work_s, OWNER) for each in self.jobs}
        return forecast(self.kept, restart_s=RESTART_S, lengths=lambda state: true)


@pytest.mark.parametrize("policy", sorted(policies()))
@examples(6)
@given(jobs=submissions(), instants=st.integers(0, 8))
def test_true_lengths_give_true_times(policy: str, jobs: list[TraceJob], instants: int) -> None:
    course = Course(policy, jobs, instants)
    if course.kept is None:
        return  # it was over before
    running = set(course.kept.state.held_jobs)
    found = course.foreseen()
    assert {each.id for each in found.jobs} == set(course.kept.rows)
    for each in found.jobs:
        ended = course.state.jobs[each.id]
        assert each.end_s == pytest.approx(ended.finish_s, abs=1e-6)
        if ended.seq not in running:
            assert each.start_s == pytest.approx(course.starts[each.id], abs=1e-6)
