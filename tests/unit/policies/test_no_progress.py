"""No policy places a job where its profile has a speed of 0: a GPU type, a number of GPUs, a neighbour."""

from __future__ import annotations

import pytest
from tests.support import Checker, cluster, job, trace

from skep.core.events import Event
from skep.core.job import JobState
from skep.core.state import State
from skep.core.step import Scheduler
from skep.engines.sim.engine import Simulator
from skep.experiments.simulate import Experiment, Options
from skep.policies.place import PLACES
from skep.policies.registry import policies
from skep.profiles.gavel import GavelProfile, Row
from skep.service.loop import run
from skep.traces.trace import TraceJob

PAIRS = {("big", 1): 3.0, ("small", 1): 3.0, ("loud", 1): 0.0}


def row(steps_per_s: float) -> Row:
    return Row(steps_per_s, PAIRS)


TABLE = GavelProfile(
    {
        "v100": {name: {1: row(10.0), 2: row(18.0), 4: row(30.0)} for name in ("big", "small", "loud")},
        "k80": {
            "big": {1: row(5.0), 2: row(0.0), 4: row(0.0)},
            "small": {1: row(5.0), 2: row(9.0), 4: row(15.0)},
            "loud": {1: row(5.0), 2: row(9.0), 4: row(15.0)},
        },
    }
)
"""`big` runs on no k80 with two GPUs or more, `loud` beside nobody; `small` everywhere."""

ZOO = sorted(policies())
every_policy = pytest.mark.parametrize("policy", ZOO)


def play(policy: str, where: str, *jobs: TraceJob) -> State:
    """To the end, with every job that holds GPUs looked at after every step."""
    experiment = Experiment(trace(*jobs), cluster(where), Options(restart_s=0.0), TABLE.speed)
    state = State(experiment.cluster.blank(), experiment.measured())
    scheduler = Scheduler(state, experiment.planner(policy))
    engine = Simulator(
        experiment.jobs(policy), state.cluster, speed=TABLE.speed(state.cluster), restart_s=0.0, reports=True
    )
    engine.idle_timers_max = 200
    checker = Checker(state, work_s={each.spec.id: each.work_s for each in jobs}, rate_max=10.0)

    def look(at_s: float, events: list[Event]) -> None:
        checker(at_s, events)
        running = [each for each in state.held_jobs.values() if each.state is JobState.RUNNING]
        still = [
            each for each in running if each.rate == 0.0 and not each.is_halted
        ]  # one that resumes has no rate yet
        assert not still, (at_s, still, [each.held for each in still])

    run(scheduler, engine, look)
    return state


@every_policy
def test_a_job_goes_to_a_type_on_which_it_makes_progress(policy: str) -> None:
    """The k80s are first in the cluster and free; `big` with two GPUs waits for the v100s."""
    jobs = [job(2, work=100.0, at=float(at), model="big", id=f"b{at}") for at in range(3)]
    state = play(policy, "2x2:k80+1x2:v100", *jobs, job(2, work=100.0, at=5.0, model="small", id="s"))
    assert [each.state for each in state.jobs.values()] == [JobState.SUCCEEDED] * 4


@every_policy
def test_a_job_that_makes_no_progress_anywhere_is_unrunnable_and_says_why(policy: str) -> None:
    jobs = [job(2, work=100.0, model="big", id="a"), job(2, work=100.0, at=1.0, model="big", id="b")]
    state = play(policy, "1x2:k80", *jobs, job(2, work=50.0, at=2.0, model="small", id="c"))
    for name in "ab":
        assert state.jobs[name].state is JobState.UNRUNNABLE
        assert "model big makes no progress on any GPU type that it may use here" in state.jobs[name].reason
    assert state.jobs["c"].state is JobState.SUCCEEDED


@every_policy
def test_nobody_has_a_part_of_a_gpu_beside_a_job_that_stops_it(policy: str) -> None:
    parts = [
        job(1, work=100.0, at=float(at), model=model, id=f"j{at}", gpu_milli=400)
        for at, model in enumerate(("small", "loud", "loud", "big", "small"))
    ]
    state = play(policy, "1x2:v100", *parts)
    assert [each.state for each in state.jobs.values()] == [JobState.SUCCEEDED] * 5


@pytest.mark.parametrize("place", sorted(PLACES))
def test_placements_keep_them_apart(place: str) -> None:
    parts = [
        job(1, work=100.0, at=float(at), model=model, id=f"j{at}", gpu_milli=300)
        for at, model in enumerate(("small", "loud", "loud", "big", "small"))
    ]
    play(f"fifo:walk=skip,place={place}", "2x2:v100", *parts)


def test_an_elastic_job_skips_sizes_in_which_it_makes_no_progress() -> None:
    """With one k80 it runs, with two or more it does not."""
    elastic = job(1, work=100.0, model="big", id="e", min_gpus=1, max_gpus=4)
    for policy in ("afs-l", "gandiva", "fifo:adjust=grow", "fifo:adjust=grow+deflate"):
        state = play(policy, "1x4:k80", elastic)
        assert state.jobs["e"].state is JobState.SUCCEEDED
        assert state.jobs["e"].resizes == 0


def test_two_that_stop_each_other_are_not_packed() -> None:
    jobs = [job(1, work=3000.0, at=float(at), model="loud", id=f"j{at}") for at in range(2)]
    for policy in ("gandiva:trial=30,cool_down=0", "lucid:nodes=0"):
        play(policy, "1x1:v100", *jobs)


def test_the_reason_names_the_types_that_are_left() -> None:
    state = play("fifo", "1x4:k80+1x2:v100", job(4, work=10.0, model="big", id="a"))
    assert state.jobs["a"].reason == (
        "asks for 4 GPUs of type v100, the cluster has 2; model big makes no progress on other GPU types (speed 0 in "
        "the profile)"
    )
