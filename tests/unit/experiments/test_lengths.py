"""Drawn lengths: where they come from, and what they can never be."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import job

from skep.core.cluster import Cluster
from skep.core.job import Job, JobState
from skep.core.progress import Progress, Report
from skep.core.state import State
from skep.experiments.estimates import Estimate
from skep.experiments.lengths import ASSUMED_ERRORS, LEAST, draw_all, learn, position

NOW_S = 10_000.0


def world() -> State:
    state = State(Cluster([]))
    state.now_s = NOW_S
    return state


def add(state: State, *, user: str = "ann", gpus: int = 1, expect: float | None = None, at: float = 0.0) -> Job:
    seq = len(state.jobs)
    found = state.jobs[f"j{seq}"] = Job(job(gpus, id=f"j{seq}", user=user, expect=expect).spec, seq, at)
    return found


def ended(
    state: State,
    work_s: float,
    *,
    how: JobState = JobState.SUCCEEDED,
    is_begun: bool = True,
    **more: object,
) -> None:
    found = add(state, **more)  # type: ignore[arg-type]
    found.work_s = work_s if how is JobState.SUCCEEDED else 0.0
    found.run_s = work_s
    found.start_s, found.finish_s = (1.0, 2.0) if is_begun else (None, 2.0)
    found.state = found.ended = how


def pending(state: State, *, done_s: float = 0.0, **more: object) -> Job:
    found = add(state, **more)  # type: ignore[arg-type]
    found.work_s = done_s
    state.open_jobs[found.seq] = found
    return found


def drawn(state: State, wanted: Job, names: dict[str, str] | None = None, seeds: int = 200) -> list[Estimate]:
    past = learn(state, names or {})
    return [draw_all(state, past, names or {}, seed)[wanted.id] for seed in range(seeds)]


def works(found: list[Estimate]) -> set[float]:
    return {each.work_s for each in found}


def test_similar_ended_jobs_are_drawn_and_failed_and_stopped_ones_count() -> None:
    state = world()
    for work_s, how in ((10.0, JobState.FAILED), (20.0, JobState.STOPPED), *((30.0, JobState.SUCCEEDED),) * 3):
        ended(state, work_s, how=how)
    ended(state, 99.0, how=JobState.STOPPED, is_begun=False)
    ended(state, 50.0, user="bob")
    found = drawn(state, pending(state))
    assert works(found) == {10.0, 20.0, 30.0}
    assert {each.source for each in found} == {"history"}
    assert 0.5 < sum(each.work_s == 30.0 for each in found) / len(found) < 0.7


def test_only_those_that_took_longer_are_drawn_while_there_are_enough() -> None:
    state = world()
    for work_s in range(10, 100, 10):
        ended(state, float(work_s))
    assert works(drawn(state, pending(state, done_s=45.0))) == {50.0, 60.0, 70.0, 80.0, 90.0}
    found = drawn(state, pending(state, done_s=55.0))
    assert {each.source for each in found} == {"none"}


def test_jobs_of_the_same_name_are_the_most_similar() -> None:
    state = world()
    for _ in range(LEAST):
        ended(state, 10.0)
    for _ in range(LEAST):
        ended(state, 500.0)
    one = pending(state)
    names = {**{f"j{seq}": "short" for seq in range(LEAST)}, one.id: "short"}
    assert works(drawn(state, one, names)) == {10.0}
    assert works(drawn(state, one)) == {10.0, 500.0}


def test_the_error_of_owners_is_learned_first_of_the_same_one() -> None:
    state = world()
    for _ in range(LEAST):
        ended(state, 200.0, expect=100.0)
        ended(state, 100.0, expect=100.0, user="bob")
    careful, other = pending(state, user="bob", expect=40.0), pending(state, user="eve", expect=40.0)
    assert works(drawn(state, pending(state, expect=40.0))) == {80.0}
    assert works(drawn(state, careful)) == {40.0}
    assert works(drawn(state, other)) == {40.0, 80.0}


def test_an_estimate_without_experience_is_assumed_to_be_off_by_half_to_double() -> None:
    state = world()
    found = drawn(state, pending(state, expect=100.0), seeds=500)
    assert {each.source for each in found} == {"owner"}
    assert 90 < statistics.median(works(found)) < 110
    assert sum(50 <= each.work_s <= 200 for each in found) / len(found) == pytest.approx(0.68, abs=0.08)
    assert max(ASSUMED_ERRORS) == pytest.approx(1 / min(ASSUMED_ERRORS))


def test_reported_progress_comes_first() -> None:
    state = world()
    one = pending(state, done_s=50.0, expect=1000.0)
    state.known.progress[one.id] = Progress(0.0, 1, Report(25.0, 100.0, reference=0.5))
    assert set(drawn(state, one)) == {Estimate(200.0, "progress")}


def test_nothing_known_is_called_that_and_lasts_as_long_again_in_half_of_the_draws() -> None:
    state = world()
    found = drawn(state, pending(state, done_s=1000.0), seeds=500)
    assert {each.source for each in found} == {"none"}
    assert sum(each.work_s > 2000.0 for each in found) / len(found) == pytest.approx(0.5, abs=0.08)


def test_a_burst_of_a_user_is_long_or_short_together() -> None:
    pairs = [(position(seed, 1, 1), position(seed, 2, 1), position(seed, 3, 3)) for seed in range(500)]
    first, second, other = zip(*pairs, strict=True)
    assert statistics.correlation(first, second) == pytest.approx(0.5, abs=0.1)
    assert statistics.correlation(first, other) == pytest.approx(0.0, abs=0.12)
    assert statistics.mean(first) == pytest.approx(0.5, abs=0.05)


def test_a_pause_ends_a_burst() -> None:
    state = world()
    for work_s in range(100):
        ended(state, float(work_s))
    together = [pending(state, at=at) for at in (0.0, 500.0, 1000.0)]
    later, foreign = pending(state, at=2000.0), pending(state, at=500.0, user="bob")
    past = learn(state, {})
    lengths = [draw_all(state, past, {}, seed) for seed in range(400)]

    def correlation(one: Job, two: Job) -> float:
        return statistics.correlation(*([each[job.id].work_s for each in lengths] for job in (one, two)))

    assert correlation(together[0], together[2]) > 0.35
    assert abs(correlation(together[0], later)) < 0.15
    assert abs(correlation(together[0], foreign)) < 0.15


amounts = st.floats(0.0, 1e6)


@settings(max_examples=60, deadline=None)
@given(
    done_s=amounts,
    expect=st.none() | st.floats(1.0, 1e6),
    past=st.lists(st.tuples(amounts, st.none() | st.floats(1.0, 1e6)), max_size=12),
    seed=st.integers(0, 2**63),
)
def test_a_draw_is_never_below_what_was_done_and_always_the_same(
    done_s: float, expect: float | None, past: list[tuple[float, float | None]], seed: int
) -> None:
    state = world()
    for work_s, expected_s in past:
        ended(state, work_s, expect=expected_s)
    one = pending(state, done_s=done_s, expect=expect)
    experience = learn(state, {})
    found = draw_all(state, experience, {}, seed)
    assert found[one.id].work_s >= done_s
    assert math.isfinite(found[one.id].work_s)
    assert found == draw_all(state, experience, {}, seed)


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.floats(1.0, 1e6), min_size=LEAST, max_size=10), expect=st.floats(1.0, 1e6), seed=amounts)
def test_owners_who_are_never_wrong_are_believed(lengths: list[float], expect: float, seed: float) -> None:
    state = world()
    for work_s in lengths:
        ended(state, work_s, expect=work_s)
    one = pending(state, expect=expect)
    assert draw_all(state, learn(state, {}), {}, int(seed))[one.id] == Estimate(expect, "owner")
