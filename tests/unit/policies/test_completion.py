"""Unknown speeds, completed from models that were measured."""

from __future__ import annotations

import math

import pytest
from tests.support import cluster, job, trace

from skep.core.events import Event
from skep.core.job import Job, JobState
from skep.core.state import State
from skep.core.step import Scheduler
from skep.core.why import why
from skep.engines.sim.engine import Simulator
from skep.experiments.simulate import Experiment
from skep.policies.estimate.completion import complete
from skep.profiles.native import Factors, NativeProfile
from skep.service.loop import run

MEAN = (0.0, -0.7, -1.4)
GAIN = (0.0, -0.2, -0.5)


def row(factor: float, place: float) -> list[float]:
    """One that lies exactly in the model: a factor, and a place in one direction."""
    return [math.exp(factor + mean + place * gain) for mean, gain in zip(MEAN, GAIN, strict=True)]


REFERENCES = [row(0.1 * number, number - 2.0) for number in range(6)]


def test_two_known_types_give_the_third() -> None:
    hidden = row(0.7, 1.3)
    found = complete(REFERENCES, [*hidden[:2], None])
    assert found is not None
    assert found.speeds[:2] == pytest.approx(hidden[:2])
    assert found.speeds[2] == pytest.approx(hidden[2], rel=0.05)
    assert found.error < 0.1
    assert found.references == 6


def test_nothing_known_gives_a_typical_model_and_a_larger_error() -> None:
    none, two = complete(REFERENCES, [None, None, None]), complete(REFERENCES, [1.0, 0.5, None])
    assert none is not None
    assert two is not None
    assert none.speeds[0] == 1.0
    assert (
        min(each[2] / each[0] for each in REFERENCES) < none.speeds[2] < max(each[2] / each[0] for each in REFERENCES)
    )
    assert none.error > 2 * two.error


def test_noise_is_in_the_error() -> None:
    """References that differ in the last type only, by a factor of two, up or down."""
    odd = [[1.0, 0.5, 0.25 * 2.0 ** (-1) ** number] for number in range(8)]
    found = complete(odd, [1.0, 0.5, None])
    assert found is not None
    assert 0.7 < found.error < 1.6


def test_too_few_models_give_no_estimate() -> None:
    assert complete(REFERENCES[:2], [1.0, None, None]) is None
    assert complete([*REFERENCES[:2], [1.0, 0.0, 1.0]], [1.0, None, None]) is None


TYPES = ("v100", "p100", "k80")


def test_gavel_uses_the_estimate_and_says_so() -> None:
    """A model that was not measured on k80."""
    hidden = row(0.0, 1.3)
    rows = {f"m{number}": dict(zip(TYPES, each, strict=True)) for number, each in enumerate(REFERENCES)}
    rows["new"] = dict(zip(TYPES[:2], hidden[:2], strict=True))
    models = {name: Factors(types, {1: 1.0}, {}, {}) for name, types in rows.items()}
    profile = NativeProfile("v100", Factors({}, {1: 1.0}, {}, {}), models)
    there, jobs = cluster("1x1:v100+1x1:p100+1x1:k80"), trace(job(1, model="new", id="a"), job(1, model="m1", id="b"))
    experiment = Experiment(jobs, there, speed=profile.speed)
    state = State(there.blank(), experiment.measured())
    for spec, speeds in (("gavel-las:complete=true", hidden), ("gavel-las", [*hidden[:2], 1.0])):
        planner = experiment.planner(spec)
        state.show(planner)
        planner.attach(state, state.memory)
        mine = Job(jobs.jobs[0].spec, 0, 0.0)
        assert planner.kind(state, mine).speeds == pytest.approx(speeds, rel=0.05)
        assert not planner.kind(state, Job(jobs.jobs[1].spec, 1, 0.0)).completed
        words = planner.kind(state, mine).completed
        assert ("estimated from 6 other models, 0." in words and " on k80 (typically off by" in words) == ("=" in spec)


def test_a_waiting_job_is_told_what_is_only_estimated() -> None:
    rows = {f"m{number}": dict(zip(TYPES, each, strict=True)) for number, each in enumerate(REFERENCES)}
    models = {name: Factors(types, {1: 1.0}, {}, {}) for name, types in rows.items()}
    models["new"] = Factors({"v100": 1.0}, {1: 1.0}, {}, {})
    profile = NativeProfile("v100", Factors({}, {1: 1.0}, {}, {}), models)
    there, jobs = cluster("1x1:v100+1x1:p100+1x1:k80"), trace(*(job(1, model="new", work=9e3) for _ in range(4)))
    experiment = Experiment(jobs, there, speed=profile.speed)
    state = State(there.blank(), experiment.measured())
    scheduler = Scheduler(state, experiment.planner("gavel-las:complete=true"))
    engine = Simulator(jobs.jobs, state.cluster, speed=profile.speed(state.cluster))
    said = []

    def look(at_s: float, events: list[Event]) -> None:
        waiting = [each for each in state.jobs.values() if each.state is JobState.PENDING]
        said.extend(why(state, scheduler.planner, each).reason for each in waiting)

    run(scheduler, engine, look)
    assert any("estimated from 6 other models, 0." in each and "on p100, 0." in each for each in said)
