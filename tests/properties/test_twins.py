"""Naive twins: the same answer, worked out the slow and obvious way."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import clusters, examples, worlds

from skep.core.cluster import Allocation, Cluster, Node, Slice, lowest_bits
from skep.core.events import Event, Exit, TasksExited
from skep.core.job import Job, JobState
from skep.core.model import gpu_shape
from skep.core.plan import Plan
from skep.core.state import State
from skep.metrics.run import JobRow
from skep.metrics.summary import presence
from skep.policies.estimate.gittins import Gittins
from skep.policies.order.queues import Queues
from skep.policies.place import PLACES

# Preemption: who runs --------------------------------------------------------------------------------------------


KEYS = {
    "srtf": lambda job, now_s: job.spec.expect_s - job.work_at(now_s),
    "srsf": lambda job, now_s: (job.spec.expect_s - job.work_at(now_s)) * job.gpus,
    "smallest": lambda job, now_s: job.gpus,
}


def greedy(state: State, name: str, left_out: set[str]) -> set[str]:
    """Who should run: empty the cluster, then all jobs in order, whoever fits into what is left."""
    there = [job for job in state.jobs.values() if not job.state.is_final and job.id not in left_out]
    left = state.cluster.gpu_total
    found = set()
    there.sort(key=lambda job: (job.rank, round(KEYS[name](job, state.now_s), 6), job.seq))
    for each in there:
        if each.gpus <= left:
            left -= each.gpus
            found.add(each.id)
    return found


@pytest.mark.parametrize("name", sorted(KEYS))
@examples(200)
@given(data=st.data())
def test_preemption_keeps_just_those_running_that_a_greedy_pass_over_all_jobs_would(
    name: str, data: st.DataObject
) -> None:
    world: World = data.draw(
        worlds(name, plain=True, calm=True, place="any", walk="skip", patience="none", adjust="none")
    )
    course = world.begin()
    pushed_out: set[str] = set()

    def note(at_s: float, events: list[Event]) -> None:
        exits = [event for event in events if isinstance(event, TasksExited)]
        if any(event.exit is Exit.FINISHED for event in exits):
            pushed_out.clear()
        pushed_out.update(event.job_id for event in exits if event.exit is Exit.PREEMPTED)

    while course.advance(note):
        # Nobody migrates: who is pushed out comes back when something ends, and until then others may have its place.
        out = pushed_out - course.running()
        assert course.running() == greedy(course.state, name, out)
        free = course.state.cluster.free_gpus()
        assert all(course.state.jobs[id].gpus > free for id in out)


# Placement -------------------------------------------------------------------------------------------------------


@st.composite
def half_full(draw: st.DrawFn) -> Cluster:
    """A cluster with some gpus taken and some nodes down."""
    drawn = draw(clusters())
    for node in drawn.nodes:
        taken = lowest_bits(node.free_mask, draw(st.integers(0, node.gpu_count)))
        if taken:
            drawn.take(Allocation((Slice(node.index, taken),), 0))
        if draw(st.integers(0, 9)) == 0:
            drawn.lose(node)
    return drawn


Naive = list[tuple[int, int]]


def scan(name: str, nodes: list[Node], count: int) -> Naive | None:
    """(node, gpus) of a job of whole gpus among the nodes of one type, by looking at each node."""
    nodes = [node for node in nodes if node.is_up]
    if sum(node.free for node in nodes) < count:
        return None
    if name in ("consolidate", "first-fit"):
        return scan_together(name, nodes, count)
    left = {node.index: node.free for node in nodes}
    picked: dict[int, int] = {}
    for _ in range(count):
        roomy = [index for index in left if left[index]]
        if name == "any":
            index = min(roomy)
        elif name == "best-fit":  # the fullest as they were found; one that was begun is gone on with
            index = min(roomy, key=lambda index: (left[index] + picked.get(index, 0), index))
        else:
            index = min(roomy, key=lambda index: (-left[index], index))
        left[index] -= 1
        picked[index] = picked.get(index, 0) + 1
    return sorted(picked.items())


def scan_together(name: str, nodes: list[Node], count: int) -> Naive | None:
    picked: Naive = []
    rest = count
    if count > max(node.gpu_count for node in nodes[0].pool.nodes):
        for node in sorted(nodes, key=lambda node: (-node.gpu_count, node.index)):
            if node.free == node.gpu_count and 0 < node.gpu_count <= rest:
                picked.append((node.index, node.gpu_count))
                rest -= node.gpu_count
    used = {index for index, _ in picked}
    fitting = [node for node in nodes if node.free >= rest and node.index not in used]
    if not rest:
        return sorted(picked)
    if not fitting:
        return None
    best = min(fitting, key=lambda node: (node.free if name == "consolidate" else 0, node.index))
    return sorted([*picked, (best.index, rest)])


@pytest.mark.parametrize("name", ["any", "first-fit", "best-fit", "consolidate", "spread"])
@examples(300)
@given(there=half_full(), count=st.integers(1, 20), types=st.sampled_from([(), ("k80",), ("v100", "k80")]))
def test_find_is_what_a_scan_of_all_nodes_gives(name: str, there: Cluster, count: int, types: tuple[str, ...]) -> None:
    shape = gpu_shape(count, gpu_types=types)
    asking = Job(job(count, id="x").spec, 0, 0.0)
    found = PLACES[name]().find(there, Plan({}, there), asking, shape, 0.0)
    pools = [pool for pool in there.pools if not types or pool.gpu_type in types]
    scans = [scan(name, pool.nodes, count) for pool in pools]
    expected = next((picks for picks in scans if picks is not None), None)
    seen = None if found is None else sorted((piece.node, piece.gpus.bit_count()) for piece in found.slices)
    assert seen == expected
    if found is not None:
        there.take(found)  # raises if anything of it is not free
        there.give(found)


# Backfilling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["any", "consolidate"])
@pytest.mark.parametrize("name", ["fifo", "sjf"])
@examples(100)
@given(data=st.data())
def test_backfilling_never_delays_the_head_beyond_its_reservation(name: str, place: str, data: st.DataObject) -> None:
    known = {"estimate": "known"} if name == "sjf" else {}
    fixed = {"place": place, "walk": "easy", "patience": "none", "adjust": "none", **known}
    world: World = data.draw(worlds(name, plain=True, calm=True, **fixed))
    if name == "sjf":  # a shorter job that comes later may go first; so let all come at once
        entries = [msgspec.structs.replace(entry, submit_s=0.0) for entry in world.trace.jobs]
        world = msgspec.structs.replace(world, trace=trace(*entries))
    course = world.begin()
    finder = PLACES[place]()
    key = (lambda job: job.seq) if name == "fifo" else (lambda job: (job.spec.expect_s, job.seq))
    reserved: tuple[str, float] | None = None
    while course.advance():
        state = course.state
        pending = sorted((job for job in state.jobs.values() if job.state is JobState.PENDING), key=key)
        if reserved is not None:
            head = state.jobs[reserved[0]]
            late = (head.start_s if head.start_s is not None else state.now_s) > reserved[1]
            assert not late, f"{head} was to start at {reserved[1]}"
        if not pending:
            reserved = None
        elif reserved is None or pending[0].id != reserved[0]:
            reserved = (pending[0].id, naive_reservation(state, pending[0], finder))


def naive_reservation(state: State, head: Job, place: object) -> float:
    """When the head fits if everybody leaves as expected and nobody comes, on a copy of the cluster."""
    running = [job for job in state.jobs.values() if job.allocation is not None]
    ends = sorted({state.now_s + job.spec.expect_s - job.work_at(state.now_s) for job in running})
    for end_s in ends:
        copy = state.cluster.blank()
        for each in running:
            if state.now_s + each.spec.expect_s - each.work_at(state.now_s) > end_s:
                copy.take(each.allocation)
        if place.find(copy, Plan({}, copy), head, head.spec.shapes[0], end_s) is not None:
            return end_s
    return math.inf


# Gittins, queues, fairness ---------------------------------------------------------------------------------------


def textbook_index(samples: list[float], attained: float, quantum: float) -> float:
    """P(X - a <= d | X > a) / E[min(X - a, d) | X > a]"""
    alive = [sample - attained for sample in samples if sample > attained]
    if not alive:
        return 0.0
    chance = sum(left <= quantum for left in alive) / len(alive)
    return chance / (sum(min(left, quantum) for left in alive) / len(alive))


@examples(300)
@given(
    samples=st.lists(st.integers(0, 1000).map(float), min_size=1, max_size=30),
    attained=st.integers(0, 1100).map(float),
    quantum=st.integers(1, 1500).map(float) | st.just(math.inf),
)
def test_the_gittins_index_is_the_textbook_formula(samples: list[float], attained: float, quantum: float) -> None:
    expected = textbook_index(samples, attained, quantum)
    assert Gittins(tuple(samples)).index(attained, quantum) == pytest.approx(expected, rel=1e-9)


@examples(100)
@given(samples=st.lists(st.integers(1, 1000).map(float), min_size=1, max_size=100))
def test_gittins_learns_from_finished_jobs(samples: list[float]) -> None:
    state, learning = State(cluster("1x1")), Gittins()
    learning.attach(state)
    for sample in samples:
        ended = Job(job(id="x").spec, 0, 0.0)
        ended.service_gpu_s = sample
        ended.state = JobState.SUCCEEDED
        state.knowledge.note_end(ended)
        stopped = Job(job(id="y").spec, 1, 0.0)
        stopped.state = JobState.STOPPED
        state.knowledge.note_end(stopped)  # says nothing of how long jobs are
        learning.index(0.0, math.inf)
    counted = len(learning.samples)
    assert learning.samples == sorted(samples[:counted])
    assert (len(samples) - counted) * 20 < max(counted, 1)
    assert learning.index(10.0, 500.0) == pytest.approx(textbook_index(learning.samples, 10.0, 500.0))


@examples(200)
@given(
    limits=st.sets(st.integers(1, 3000), min_size=1, max_size=4).map(lambda values: tuple(map(float, sorted(values)))),
    gpus=st.integers(1, 8),
    held=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=6),
    by_size=st.booleans(),
)
def test_a_job_is_in_the_queue_its_service_says(
    limits: tuple[float, ...], gpus: int, held: list[tuple[int, int]], *, by_size: bool
) -> None:
    """`held`: (seconds running, seconds waiting), again and again."""
    order = Queues(limits, by_size=by_size)
    order.attach(State(cluster("1x1")))
    asking = Job(job(gpus, id="x").spec, 0, 0.0)
    service = 0.0
    for run_s, _ in held:
        asking.run_s += run_s
        asking.service_gpu_s += run_s * gpus
        service += run_s * (gpus if by_size else 1)
    level = sum(service >= limit for limit in limits)
    assert order.key(asking, 0.0)[0] == level
    asking.allocation = Allocation((Slice(0, 1),), gpus)
    asking.state = JobState.RUNNING
    asking.held_gpus = gpus
    due_s = order.changes_at(asking, 0.0)
    if level == len(limits):
        assert due_s == math.inf
    else:
        assert due_s == pytest.approx((limits[level] - service) / (gpus if by_size else 1))
        assert order.key(asking, due_s)[0] == level + 1
        assert order.key(asking, due_s - 0.01)[0] == level


@examples(100)
@given(
    lives=st.lists(
        st.tuples(st.integers(0, 200), st.none() | st.integers(0, 200)).map(
            lambda life: (float(life[0]), None if life[1] is None else float(life[0] + life[1]))
        ),
        min_size=1,
        max_size=12,
    )
)
def test_the_number_of_jobs_present_is_the_integral_over_their_lives(lives: list[tuple[float, float | None]]) -> None:
    lives.sort(key=lambda life: life[0])
    any_row = JobRow("", "", 1, 0.0, None, None, None, None, 0.0, 0.0, 0.0, 0.0, 0, 0, 0, "")
    rows = [msgspec.structs.replace(any_row, submit_s=start_s, finish_s=end_s) for start_s, end_s in lives]
    for (from_s, to_s), found in zip(lives, presence(rows), strict=True):
        if to_s is not None:
            shared = [min(to_s, to_s if end_s is None else end_s) - max(from_s, start_s) for start_s, end_s in lives]
            assert found == pytest.approx(sum(max(each, 0.0) for each in shared))
