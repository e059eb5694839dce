"""Rising keys kept in one list per speed give what sorting and scanning all running jobs would."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import job

from skep.core.cluster import Allocation
from skep.core.job import Job, JobState
from skep.policies.crossings import EARLY, LineHead
from skep.policies.lines import Entry, Line, Pending
from skep.policies.order.base import TICKS
from skep.policies.order.simple import LeastAttained
from skep.policies.rising import Rising
from skep.policies.running import Running

# Thirds and a coarse grid: many keys are equal, or equal but for rounding.
amounts = st.integers(0, 40).map(lambda number: number * 100 / 3)


@st.composite
def running_jobs(draw: st.DrawFn) -> list[Job]:
    found = []
    for seq in range(draw(st.integers(1, 25))):
        gpus = draw(st.sampled_from([0, 1, 2, 8]))
        each = Job(job(max(gpus, 1), id=f"job-{seq}").spec, seq, 0.0)
        each.rank = draw(st.sampled_from([0, 0, 0, -1, 1]))
        each.allocation = Allocation((), gpus)
        each.service_gpu_s, each.run_s, each.held_since_s = draw(amounts), draw(amounts), draw(amounts)
        each.state = draw(st.sampled_from([JobState.RUNNING, JobState.RUNNING, JobState.LAUNCHING]))
        each.held_gpus = gpus if each.state is JobState.RUNNING else 0
        found.append(each)
    return found


def scanned(order: LeastAttained, there: list[Job], head: Entry, missing: int, now_s: float) -> float:
    """When the running jobs that have passed the pending one hold enough, by looking at each of them."""
    cutoff = order.cutoff(head[3], head[1])
    passing = []
    for each in there:
        has_run = each.state is JobState.RUNNING
        if each.rank > 0 or (each.rank == 0 and has_run and (0, order.running_key(each, now_s), each.seq) > cutoff):
            missing -= each.gpu_count if has_run else 0
        elif each.rank == 0:
            passing.append((order.reaches(each, head[1], now_s), each.gpu_count))
    for at_s, gpus in sorted(passing):
        missing -= gpus
        if missing <= 0 and at_s < math.inf:
            return max(math.ceil(at_s * TICKS - EARLY), math.floor(now_s * TICKS) + 1) / TICKS
    return math.inf


def lacking(order: LeastAttained, there: list[Job], head: Entry, missing: int, now_s: float) -> int:
    """The missing GPUs that running jobs beyond the pending one do not have."""
    cutoff = order.cutoff(head[3], head[1])
    keyed = [(each.rank, order.running_key(each, now_s), each.seq, each) for each in there]
    return missing - sum(
        entry[3].gpu_count for entry in keyed if entry[:3] > cutoff and entry[3].state is JobState.RUNNING
    )


def begin(each: Job, at_s: float) -> None:
    """The job runs from this time on, unless it would be beyond a head at once (what no search expects)."""
    if each.state is JobState.LAUNCHING and each.rank <= 0 and each.allocation is not None and each.allocation.gpus:
        each.state, each.held_gpus, each.held_since_s = JobState.RUNNING, each.allocation.gpus, at_s


def line_of(rank: int, key: float, seq: int) -> Line:
    """A line with this head."""
    pending = Job(job(id=f"head-{seq}").spec, seq, 0.0)
    line = Line("", f"line {seq}", pending.spec.shapes, [], is_strict=False)
    line.entries = [(rank, key, seq, pending)]
    return line


@settings(max_examples=100, deadline=None)
@given(
    jobs=running_jobs(),
    late=st.sets(st.integers(0, 24)),
    leaving=st.sets(st.integers(0, 24)),
    beginning=st.dictionaries(st.integers(0, 24), st.booleans()),
    by_size=st.booleans(),
    lead=st.sampled_from([0.0, 100 / 3, 1e7]),
    keys=st.lists(amounts, min_size=1, max_size=4),
    missing=st.lists(st.integers(-1, 20), min_size=12, max_size=12),
    wait_s=st.lists(amounts, min_size=2, max_size=2),
)
def test_lists_by_speed_answer_like_a_sort_and_a_scan(
    jobs: list[Job],
    late: set[int],
    leaving: set[int],
    beginning: dict[int, bool],
    by_size: bool,
    lead: float,
    keys: list[float],
    missing: list[int],
    wait_s: list[float],
) -> None:
    lines = [line_of(0, key, 12 + number) for number, key in enumerate(keys)]
    order = LeastAttained(by_size=by_size, lead=lead)
    crossings = Rising(order, Pending())
    running = Running(crossings)
    now_s = 4000 / 3

    def enter(those: list[Job]) -> None:
        for each in those:
            running.add((each.rank, order.key(each, now_s), each.seq, each))

    enter([each for each in jobs if each.seq not in late])
    for step in range(3):
        there = [entry[3] for entry in running.entries]
        keyed = [(each.rank, order.running_key(each, now_s), each.seq, each) for each in there]
        is_running = [entry for entry in sorted(keyed, reverse=True) if entry[3].state is JobState.RUNNING]
        assert list(crossings.latest((-math.inf, 0.0), now_s)) == is_running
        heads = [LineHead(line, line.entries[0], missing[4 * step + number]) for number, line in enumerate(lines)]
        for head in heads[::2]:
            assert crossings.lacks(head, now_s) == (lacking(order, there, head.entry, head.missing, now_s) > 0)
        expected_s = [scanned(order, there, head.entry, head.missing, now_s) for head in heads]
        assert crossings.search_ticks(heads, now_s) == min(expected_s)
        for head, crossing_s in zip(heads, expected_s, strict=True):
            line, entry, needed = head.line, head.entry, head.missing
            quiet = crossings.quiets[line]
            assert quiet.until_s < crossing_s or crossing_s == math.inf
            assert quiet.entry is entry
            assert quiet.missing <= needed
        for each in there:
            if each.seq in leaving and step == 0:
                running.remove(each)
        found_s, now_s = now_s, now_s + wait_s[step % 2]
        for each in there:
            if each.seq in beginning:
                begin(each, now_s if beginning[each.seq] else found_s)  # late, or when it was expected
        crossings.is_steady = True
        crossings.refresh(())
        if step == 1:
            enter([each for each in jobs if each.seq in late])


def placed(seq: int, gpus: int, state: JobState, rank: int = 0) -> Entry:
    """A job with as many GPUs and no service yet."""
    found = Job(job(gpus, id=f"job-{seq}").spec, seq, 0.0)
    found.state, found.allocation, found.rank = state, Allocation((), gpus), rank
    found.held_gpus = gpus if state is JobState.RUNNING else 0
    return (rank, 0.0, seq, found)


def test_a_line_is_quiet_until_jobs_with_enough_gpus_have_passed_its_head() -> None:
    crossings = Rising(LeastAttained(lead=0.0), Pending())
    crossings.add(placed(0, 2, JobState.RUNNING))
    line = line_of(0, 100.0, 1)
    entry = line.entries[0]
    assert crossings.search_ticks([LineHead(line, entry, 1)], 10.0) == 50.0
    crossings.is_steady = True
    assert not crossings.may_try(line, entry, 0, 40.0)
    assert crossings.may_try(line, entry, 0, 50.0), "the running job has passed it"
    assert crossings.may_try(line, entry, 1, 40.0), "it fits"
    assert crossings.may_try(line, line_of(0, 100.0, 1).entries[0], 0, 40.0), "another job is the head"


def test_a_line_is_not_quiet_while_a_job_of_a_lower_priority_is_launching() -> None:
    """It can be stopped as soon as it runs, and no crossing says when that is."""
    crossings = Rising(LeastAttained(lead=0.0), Pending())
    crossings.is_steady = True
    launching = placed(0, 2, JobState.LAUNCHING, rank=1)
    line = line_of(0, 100.0, 1)
    head = LineHead(line, line.entries[0], 2)
    crossings.add(launching)
    assert crossings.search_ticks([head], 10.0) == math.inf
    assert crossings.may_try(line, head.entry, 0, 11.0)
    assert crossings.lacks(head, 11.0)
    assert crossings.may_try(line, head.entry, 0, 11.0), "also after it was counted in vain"
    crossings.remove(launching)
    assert crossings.lacks(head, 12.0)
    assert not crossings.may_try(line, head.entry, 0, 12.0)
