"""AlloX against a twin that tries every schedule at every decision."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import examples

from skep.core.model import JobSpec, gpu_shape
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import TraceJob
from skep.verify.play import finishes, play_jobs

AllTimes = list[tuple[int, float, float]]
"""(submitted, seconds on the fast GPU, on the slow one) of each job."""


def best_firsts(waiting: list[int], times: AllTimes, free_in_s: list[float]) -> dict[int, int]:
    """By machine, the job that goes first in the best schedule."""
    best, found = float("inf"), dict[int, int]()
    for machines in itertools.product(range(len(free_in_s)), repeat=len(waiting)):
        total, firsts = 0.0, {}
        for machine, at_s in enumerate(free_in_s):
            mine = sorted(
                (times[job][1 + machine], job) for job, on in zip(waiting, machines, strict=True) if on == machine
            )
            if mine:
                firsts[machine] = mine[0][1]
            for time_s, _ in mine:
                at_s += time_s
                total += at_s
        if total < best - 1e-9:
            best, found = total, firsts
    return found


def twin(times: AllTimes) -> list[float]:
    """When each job ends."""
    ends: dict[int, float] = {}
    on: list[int | None] = [None, None]
    now_s = 0.0
    while len(ends) < len(times) or any(job is not None for job in on):
        for machine, job in enumerate(on):
            if job is not None and ends[job] <= now_s:
                on[machine] = None
        waiting = [job for job, row in enumerate(times) if row[0] <= now_s and job not in ends]
        free_in_s = [0.0 if job is None else ends[job] - now_s for job in on]
        for machine, job in best_firsts(waiting, times, free_in_s).items():
            if on[machine] is None:
                on[machine], ends[job] = job, now_s + times[job][1 + machine]
        later = [row[0] for job, row in enumerate(times) if row[0] > now_s and job not in ends]
        later_s = [float(at_s) for at_s in later] + [end for end in ends.values() if end > now_s]
        if not later_s:
            break
        now_s = min(later_s)
    return [ends[job] for job in range(len(times))]


@st.composite
def rows(draw: st.DrawFn) -> AllTimes:
    """Times of which no two sums are equal, so that there is one best schedule."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        fast, slow = draw(st.integers(1, 40)), draw(st.integers(1, 80))
        odd = 2.0 ** -(7 + 2 * number)
        found.append((draw(st.integers(0, 60)), fast + odd, slow + odd * 2**0.5))
    return sorted(found)


@examples(60)
@given(rows())
def test_every_decision_is_the_first_step_of_the_best_schedule(times: AllTimes) -> None:
    models = {
        f"m{at}": Factors({"fast": 1.0, "slow": fast / slow}, {1: 1.0}, {}, {})
        for at, (_, fast, slow) in enumerate(times)
    }
    profile = NativeProfile("fast", Factors({}, {1: 1.0}, {}, {}), models)
    jobs = [
        TraceJob(float(submit_s), fast, JobSpec(f"j{at}", (gpu_shape(1),), model=f"m{at}", expect_s=fast))
        for at, (submit_s, fast, _) in enumerate(times)
    ]
    run = play_jobs("allox", "1x1:fast+1x1:slow", jobs, speed=profile.speed)
    assert finishes(run) == pytest.approx(twin(times), abs=1e-6)
