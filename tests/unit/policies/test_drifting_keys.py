"""Keys that rise and fall, kept by levels, give what computing all of them would."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import job

from skep.core.cluster import Allocation
from skep.core.job import Job, JobState
from skep.core.model import told
from skep.policies.crossings import EARLY, LineHead
from skep.policies.drifting import Drifting
from skep.policies.lines import Entry, Line, Pending
from skep.policies.order.base import TICKS
from skep.policies.order.progress import ProgressAndService
from skep.policies.running import Running

numbers = st.integers(0, 30)


@st.composite
def running_jobs(draw: st.DrawFn) -> list[Job]:
    found = []
    for seq in range(draw(st.integers(1, 25))):
        gpus = draw(st.sampled_from([1, 2, 8]))
        expected = draw(st.sampled_from([None, 1000.0, 20_000.0]))
        each = Job(
            told(job(gpus, id=f"job-{seq}", expect=expected, epochs=draw(st.sampled_from([0] * 9 + [7]))).spec),
            seq,
            0.0,
        )
        each.rank = draw(st.sampled_from([0, 0, 0, -1, 1]))
        each.allocation = Allocation((), gpus)
        each.service_gpu_s, each.held_since_s, each.work_s = draw(numbers) * 700.0, 900.0, draw(numbers) * 30.0
        each.progress_since_s = draw(st.sampled_from([900.0, 1100.0, 3000.0]))
        each.state = draw(st.sampled_from([JobState.RUNNING] * 5 + [JobState.LAUNCHING]))
        if each.state is JobState.RUNNING:
            each.held_gpus, each.rate = gpus, draw(st.sampled_from([0.5, 1.0]))
        found.append(each)
    return found


def head_of(number: int, key: float) -> LineHead:
    """A line with one job of this key."""
    pending = Job(told(job(id=f"head-{number}").spec), number, 0.0)
    line = Line("", f"line {number}", pending.spec.shapes, [], is_strict=False)
    line.entries = [(0, key, number, pending)]
    return LineHead(line, line.entries[0], 1)


def scanned(order: ProgressAndService, keyed: list[Entry], keys: list[float], now_s: float) -> float:
    """When the first running job passes the next key, by looking at each of them."""
    first_s = math.inf
    for rank, key, _, each in keyed:
        ahead = [other for other in keys if other >= key]
        if rank == 0 and ahead:
            first_s = min(first_s, order.reaches(each, min(ahead), now_s))
    if first_s == math.inf:
        return first_s
    return max(math.ceil(first_s * TICKS - EARLY), math.floor(now_s * TICKS) + 1) / TICKS


def passes_before(order: ProgressAndService, keyed: list[Entry], keys: list[float], at_s: float) -> bool:
    """True if a running job is then, by more than rounding, beyond the key that it had to pass next."""
    if order.form == "remaining":
        return False
    for rank, key, _, each in keyed:
        ahead = [other for other in keys if other >= key]
        if rank == 0 and ahead and order.running_key(each, at_s) > min(ahead) + order.step + 1e-9:
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(
    jobs=running_jobs(),
    late=st.sets(st.integers(0, 24)),
    leaving=st.sets(st.integers(0, 24)),
    starting=st.sets(st.integers(0, 24)),
    form=st.sampled_from(["sum", "product", "remaining"]),
    lead=st.sampled_from([0.0, 0.01, 0.1]),
    parts=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=4, max_size=4),
    wait_s=st.lists(st.sampled_from([0.0, 7.0, 200.0, 3000.0]), min_size=4, max_size=4),
)
def test_levels_answer_like_a_scan(
    jobs: list[Job],
    late: set[int],
    leaving: set[int],
    starting: set[int],
    form: str,
    lead: float,
    parts: list[list[int]],
    wait_s: list[float],
) -> None:
    scale = 1.0 if form == "sum" else 7200.0
    order = ProgressAndService(form=form, weight=0.5, scale=7200.0, lead=lead * scale)
    crossings = Drifting(order, Pending())
    running = Running(crossings)
    now_s = 1000.0

    def enter(those: list[Job]) -> None:
        for each in those:
            running.add((each.rank, order.key(each, now_s), each.seq, each))

    enter([each for each in jobs if each.seq not in late])
    for step in range(4):
        keys = [part / 40 * scale for part in parts[step]]
        there = [entry[3] for entry in running.entries]
        keyed = sorted([(each.rank, order.running_key(each, now_s), each.seq, each) for each in there], reverse=True)
        heads = [head_of(30 + number, key) for number, key in enumerate(keys)]
        for head in [each.entry for each in heads]:
            beyond = {entry[2] for entry in keyed if entry[:3] > head[:3]}
            assert {each.seq for each in crossings.passed(head, now_s)} == beyond
        assert list(crossings.latest((-math.inf, 0.0), now_s)) == keyed
        expected_s = scanned(order, keyed, keys, now_s)
        for head in heads:
            crossings.failed(head, 1.0)
        found_s = crossings.search_ticks(heads, now_s)
        # Answers are kept while a job is launching; within an epoch they may be its end, when the job is asked again.
        if all(each.state is JobState.RUNNING and not each.spec.epochs for each in there):
            assert found_s == expected_s or abs(found_s - expected_s) < 3 / TICKS
        assert not passes_before(order, keyed, keys, min(found_s, 1e6) - 0.01)
        assert all(quiet.until_s <= found_s + 1 / TICKS for quiet in crossings.quiets.values())
        now_s += wait_s[step]
        started = [each for each in there if each.seq in starting and each.state is JobState.LAUNCHING]
        for each in started:
            each.state, each.held_gpus, each.held_since_s, each.rate = JobState.RUNNING, each.gpu_count, now_s, 1.0
            each.progress_since_s = now_s
        for each in there:
            if each.seq in leaving and step == 0:
                running.remove(each)
        if step == 1:
            enter([each for each in jobs if each.seq in late])
        crossings.is_steady = step != 2
        crossings.refresh(started)
