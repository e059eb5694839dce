"""Draws lengths: for every open job one total work that it may have, given the work that it has done.

The same seed draws the same lengths. A job draws the same position in its distribution whatever the others do, so two
forecasts with the same seed differ only by what was changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from statistics import NormalDist

from skep.core.chance import draw
from skep.core.history import kinds_of, owner_of
from skep.core.job import Job, JobState
from skep.core.model import told
from skep.core.state import State
from skep.experiments.estimates import NONE, Estimate, Experience, possible

LEAST = 5
"""So many ended jobs must be similar, else less similar ones count too."""
ENDED_MAX = 5_000
"""The latest ended jobs are learned from."""
BURST_S = 600.0
"""Jobs that a user submits without a longer pause than this are one burst."""
SHARED = 0.5
"""The part of the variance (of the normal score) that the jobs of a burst have in common."""
SHORTEST_S = 60.0
"""Nothing is known of a job: it takes this long at least."""
NORMAL = NormalDist()
ASSUMED_ERRORS = tuple(2 ** NORMAL.inv_cdf((n + 0.5) / 32) for n in range(32))
"""Of an estimate, while too few jobs with one have ended: half to double in two of three cases."""
HALF = 2.0**-54
"""Half of the distance of two drawn positions, which lies above the lowest: 0 and 1 have no normal score."""
JOB, BURST = 0, 1
"""A job and a burst of the same number draw different numbers."""


def learn(state: State, names: Mapping[str, str]) -> Experience:
    """From ended jobs, also those that failed or were stopped. `names`: what owners call their jobs, by id."""
    past = Experience(LEAST)
    for job in latest_ended(state):
        work_s = job.work_s if job.ended is JobState.SUCCEEDED else job.run_s  # of a failure, work may be lost
        for kind in kinds_like(job, names):
            past.works.setdefault(kind, []).append(work_s)
        expect_s = told(job.spec).expect_s
        if expect_s:
            for owner in (owner_of(job), ""):
                past.errors.setdefault(owner, []).append(work_s / expect_s)
    for values in (*past.works.values(), *past.errors.values()):
        values.sort()
    if len(past.errors.get("", ())) < LEAST:
        past.errors = {"": list(ASSUMED_ERRORS)}
    return past


def latest_ended(state: State) -> list[Job]:
    """A job that never ran shows nothing."""
    ended = (job for job in state.jobs.values() if job.state.is_final and job.start_s is not None)
    return heapq.nlargest(ENDED_MAX, ended, key=lambda job: (job.finish_s or 0.0, job.seq))


def kinds_like(job: Job, names: Mapping[str, str]) -> tuple[Hashable, ...]:
    """Classes of similar jobs, most similar first: first those of the same owner and name."""
    name = names.get(job.id)
    return ((owner_of(job), name), *kinds_of(job)) if name else kinds_of(job)


def draw_all(state: State, past: Experience, names: Mapping[str, str], seed: int) -> dict[str, Estimate]:
    """One length for every open job, by id; never less than what it has done."""
    found = {}
    for job, burst in bursts(state):
        done_s = job.work_at(state.now_s)
        known = possible(job, done_s, state.known, past, kinds_like(job, names))
        part = position(seed, job.seq, burst)
        if known is None:
            found[job.id] = Estimate(max(done_s, SHORTEST_S) / (1.0 - part), NONE)
        else:
            found[job.id] = Estimate(known.works[int(part * len(known.works))], known.source)
    return found


def bursts(state: State) -> Iterator[tuple[Job, int]]:
    """Every open job, and the number of its burst: that of the burst's first job that is still open."""
    last: dict[str, tuple[float, int]] = {}
    for _, job in sorted(state.open_jobs.items()):
        owner = owner_of(job)
        since_s, burst = last.get(owner, (-BURST_S, job.seq))
        if job.submit_s - since_s > BURST_S:
            burst = job.seq
        last[owner] = job.submit_s, burst
        yield job, burst


def position(seed: int, seq: int, burst: int) -> float:
    """Uniform in [0, 1); correlated between the jobs of a burst."""
    common, own = normal(seed, BURST, burst), normal(seed, JOB, seq)
    return min(NORMAL.cdf(SHARED**0.5 * common + (1 - SHARED) ** 0.5 * own), 1.0 - 2 * HALF)


def normal(*identity: int) -> float:
    return NORMAL.inv_cdf((draw(*identity) >> 11) * 2.0**-53 + HALF)
