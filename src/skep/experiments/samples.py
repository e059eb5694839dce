"""A forecast of many samples: each draws the lengths of all jobs and simulates onwards in a fork of this process."""

from __future__ import annotations

import gc
import math
import os
import resource
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from skep.core.errors import SkepError
from skep.experiments.estimates import NONE, weakest
from skep.experiments.fork import forecast
from skep.experiments.lengths import draw_all, learn
from skep.service.book import PENDING, owner_of
from skep.service.copy import KeptCopy
from skep.service.foreseen import DAY_S, Foreseen, Foresight, Likely

LEAST = 5
"""Fewer samples say nothing about a spread."""
ROUND_S = 300.0
"""A round ends after this time with the samples that there are."""
SAMPLE_CPU_S = 60
SAMPLE_S = 600
"""Of a sample: a policy that computes without end, or waits, is ended."""
WAITS = (PENDING, "launching")
BLIND = 0.5
"""A start is poorly known if of more than this part of the GPUs before it nothing is known."""


class SampleFailed(SkepError):
    """The process of a sample has ended without an answer."""


class Sampled(NamedTuple):
    """One job in one sample."""

    id: str
    start_s: float | None
    end_s: float | None
    source: str


Course = list[Sampled]
"""One sample."""
Pause = Callable[[float], None]
"""Called with the CPU seconds of each sample."""
READ = msgspec.msgpack.Decoder(Course).decode


def no_pause(cpu_s: float) -> None:
    """As fast as possible."""


def foresee(
    kept: KeptCopy,
    names: Mapping[str, str],
    *,
    now_s: float,
    count: int = 32,
    within_s: float = DAY_S,
    pause: Pause = no_pause,
) -> Foresight:
    """Up to `count` samples from the state, which is left as it is. The same draws are used in every round, so that an
    expected time changes only because something has happened."""
    past = learn(kept.state, names)
    import_policy(kept)
    began_s, before_s = time.monotonic(), cpu_seconds()
    courses: list[Course] = []
    count = count if kept.rows else 0
    while len(courses) < count and (len(courses) < LEAST or time.monotonic() - began_s < ROUND_S):
        seed, since_s = len(courses), cpu_seconds()

        def sample(seed: int = seed) -> bytes:
            found = forecast(
                kept, now_s=now_s, within_s=within_s, lengths=lambda state: draw_all(state, past, names, seed)
            )
            return msgspec.msgpack.encode([(job.id, job.start_s, job.end_s, job.estimate) for job in found.jobs])

        courses.append(READ(in_fork(sample)))
        pause(cpu_seconds() - since_s)
    at_s = max(now_s, kept.state.now_s)
    spent_s = round(cpu_seconds() - before_s, 3)
    jobs = summarise(kept, courses, at_s + within_s)
    return Foresight(at_s, at_s + within_s, len(courses), spent_s, kept.ground.policy, jobs, [])


def import_policy(kept: KeptCopy) -> None:
    """Once, and not in every fork. The files of users are read in forks only, where they cannot do harm."""
    if not any(kept.ground.files.values()):
        kept.ground.planner(kept.state.cluster)


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def in_fork(work: Callable[[], bytes]) -> bytes:
    """What `work` returns in a copy of this process, which then ends: all that it changed goes with it."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(ours)
        os._exit(answer(work, theirs))
    os.close(theirs)
    with open(ours, "rb") as file:
        found = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        why = found.decode(errors="replace") or f"it was ended by signal {-code}"
        raise SampleFailed(f"a sample failed: {why}")
    return found


def answer(work: Callable[[], bytes], to: int) -> int:
    """In the fork. A policy that does not come to an end is ended by the limits."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    soft = SAMPLE_CPU_S if hard == resource.RLIM_INFINITY else min(hard, SAMPLE_CPU_S)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
    signal.alarm(SAMPLE_S)
    gc.disable()  # a collection would touch, and so copy, all of the memory; what is left goes with the process
    code = 0
    try:
        found = work()
    except BaseException as error:  # also of a policy, which may raise anything
        found, code = f"{type(error).__name__}: {error}".encode(), 1
    with open(to, "wb") as file:
        file.write(found)
    return code


def summarise(kept: KeptCopy, courses: Sequence[Course], until_s: float) -> dict[str, Foreseen]:
    """By job; jobs that their owners hold have no forecast."""
    by_job: dict[str, list[Sampled]] = {}
    for course in courses:
        for job in course:
            by_job.setdefault(job.id, []).append(job)
    for held in {owner_of(kept.state, job.id) for job in kept.state.open_jobs.values() if job.hold}:
        if all(job.start_s is None for job in by_job.get(held, ())):
            by_job.pop(held, None)
    blind = blind_starts(kept, by_job)
    found = {}
    for job_id, samples in by_job.items():
        is_waiting = kept.rows[job_id].state in WAITS
        start = likely([each.start_s for each in samples], until_s) if is_waiting else None
        if start is not None and start.p10_s != start.p90_s and job_id in blind:
            start = msgspec.structs.replace(start, poor=True)
        source = weakest(each.source for each in samples)
        end = likely([each.end_s for each in samples], until_s)
        is_poor = source == NONE or (start is not None and start.poor)
        found[job_id] = Foreseen(start, msgspec.structs.replace(end, poor=is_poor), source)
    return found


def likely(times: Sequence[float | None], until_s: float) -> Likely:
    """By ranks of which the next sample would lie between in four of five cases."""
    ordered = sorted(math.inf if at_s is None or at_s > until_s else at_s for at_s in times)

    def at(part: float) -> float | None:
        found = ordered[min(max(round(part * (len(ordered) + 1)), 1), len(ordered)) - 1]
        return None if found == math.inf else round(found, 3)

    return Likely(at(0.1), at(0.5), at(0.9))


def blind_starts(kept: KeptCopy, by_job: Mapping[str, Sequence[Sampled]]) -> set[str]:
    """Waiting jobs with mostly jobs of unknown length before them: those that run, and those submitted earlier."""
    rows = [row for job_id, row in kept.rows.items() if job_id in by_job]
    found, gpus, unknown = set(), 0.0, 0.0
    for row in sorted(rows, key=lambda row: (row.state in WAITS, row.seq)):
        if row.state in WAITS and unknown > BLIND * gpus:
            found.add(str(row.seq))
        gpus += row.gpus
        unknown += row.gpus * (weakest(each.source for each in by_job[str(row.seq)]) == NONE)
    return found
