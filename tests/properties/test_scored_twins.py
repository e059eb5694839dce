"""Placements by scores against naive twins: the formula of each, worked out for every node and every GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec, Slice, bits
from skep.core.errors import InvariantBroken
from skep.core.fragments import Fragments, Typical, typical_tasks
from skep.core.job import Job
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.core.tasks import Task
from skep.policies.place import build_place

PARTS = (100, 250, 300, 500, 700)
CPUS = (0, 2000, 4000, 8000)


class Naive:
    """A node as plain lists."""

    def __init__(self, index: int, cluster: Cluster) -> None:
        node = cluster.nodes[index]
        self.index, self.gpu_type = index, node.spec.gpu_type
        self.cpu, self.memory = node.cpu_free, node.memory_free
        self.left = [node.milli_left(gpu) for gpu in range(node.gpu_count)]
        self.sizes = node.sizes()

    def masks(self, task: Task) -> list[tuple[int, ...]]:
        """All sets of GPUs on which the task has room."""
        if task.cpu_milli > self.cpu or task.memory_mib > self.memory:
            return []
        if task.gpus and task.gpu_types and self.gpu_type not in task.gpu_types:
            return []
        roomy = [gpu for gpu, left in enumerate(self.left) if left >= task.milli]
        return list(combinations(roomy, task.gpus))


def fragment(cpu: int, left: list[int], gpu_type: str, typical: Typical) -> int:
    """The measure by its definition, times the number of typical tasks."""
    found = 0
    for task, count in typical.tasks:
        roomy = [milli for milli in left if milli >= task.milli]
        can_run = (
            task.gpus > 0
            and cpu >= task.cpu_milli
            and len(roomy) >= task.gpus
            and (not task.gpu_types or gpu_type in task.gpu_types)
        )
        found += count * (sum(left) - sum(roomy) if can_run else sum(left))
    return found


Score = tuple[float, ...]


def fgd(node: Naive, gpus: tuple[int, ...], task: Task, typical: Typical) -> Score:
    after = [left - task.milli if gpu in gpus else left for gpu, left in enumerate(node.left)]
    before = fragment(node.cpu, node.left, node.gpu_type, typical)
    gain = before - fragment(node.cpu - task.cpu_milli, after, node.gpu_type, typical)
    return (math.floor(100 / (1 + math.exp(-gain / typical.count / 1000))),)


def dot_product(node: Naive, gpus: tuple[int, ...], task: Task, largest: tuple[int, int]) -> Score:
    cpu = node.cpu / largest[0] * (task.cpu_milli / largest[0])
    gpu = sum(node.left) / largest[1] * task.total_milli / largest[1]
    return math.floor(100 * (1 - (cpu + gpu) / 2)), -tight(node, gpus)


def best_fit(node: Naive, gpus: tuple[int, ...], task: Task, largest: tuple[int, int]) -> Score:
    kept = (node.cpu - task.cpu_milli) / largest[0] + (sum(node.left) - task.total_milli) / largest[1]
    return math.floor(100 * (1 - kept / 2)), -tight(node, gpus)


def gpu_packing(node: Naive, gpus: tuple[int, ...], task: Task, largest: tuple[int, int]) -> Score:
    if not gpus:
        return (0,)
    idle = sum(node.left[gpu] == WHOLE for gpu in gpus)
    if all(left == WHOLE for left in node.left):
        return max(33 - len(node.left), 0), -tight(node, gpus)
    if idle:
        return max(50 - idle, 33), -tight(node, gpus)
    return max(100 - sum(node.left[gpu] // 10 for gpu in gpus) // 10, 50), -tight(node, gpus)


def gpu_clustering(node: Naive, gpus: tuple[int, ...], task: Task, largest: tuple[int, int]) -> Score:
    if not gpus:
        return (0,)
    size = 0 if task.milli < WHOLE else task.gpus
    hosts = set(node.sizes)
    rank = 3 if hosts == {size} else 2 if size in hosts else 1 if not hosts else 0
    return 25 * (largest[1] - sum(node.left)) // largest[1] + 25 * rank, -tight(node, gpus)


def tight(node: Naive, gpus: tuple[int, ...]) -> int:
    """Within a node the fullest GPUs are taken."""
    return sum(node.left[gpu] for gpu in gpus)


SIZED: dict[str, Callable[[Naive, tuple[int, ...], Task, tuple[int, int]], Score]] = {
    "dot-product": dot_product,
    "best-fit": best_fit,
    "gpu-packing": gpu_packing,
    "gpu-clustering": gpu_clustering,
}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """One to four nodes of several sizes, with whole GPUs, parts of GPUs and CPUs taken at random."""
    specs = [
        NodeSpec(
            f"n{at}",
            draw(st.integers(1, 4)),
            draw(st.sampled_from(["a", "b"])),
            cpu_milli=draw(st.sampled_from([4000, 8000, 16000])),
            memory_mib=1024,
        )
        for at in range(draw(st.integers(1, 4)))
    ]
    there = Cluster(specs)
    for _ in range(draw(st.integers(0, 8))):
        node = there.nodes[draw(st.integers(0, len(specs) - 1))]
        milli = draw(st.sampled_from([WHOLE, *PARTS]))
        gpus = (
            draw(st.integers(1, (1 << node.gpu_count) - 1))
            if milli == WHOLE
            else 1 << draw(st.integers(0, node.gpu_count - 1))
        )
        try:
            there.take(Allocation((Slice(node.index, gpus, milli=milli, cpu_milli=draw(st.sampled_from(CPUS))),), 0))
        except InvariantBroken:
            continue
    return there


def tasks(gpus_most: int = 3) -> st.SearchStrategy[Role]:
    whole = st.builds(Role, gpus=st.integers(0, gpus_most), cpu=st.sampled_from([cpu / 1000 for cpu in CPUS[1:]]))
    part = st.builds(
        Role, gpus=st.just(1), gpu_milli=st.sampled_from(PARTS), cpu=st.sampled_from([cpu / 1000 for cpu in CPUS])
    )
    return whole | part


TYPES = st.sampled_from([(), ("a",), ("a", "b")])
SHAPES = st.builds(lambda role, types: Shape((role,), types if role.gpus else ()), tasks(), TYPES)


def answer(name: str, there: Cluster, shape: Shape, typical: Typical) -> tuple[int, int] | None:
    job = Job(JobSpec("job", (shape,)), 0, 0.0)
    found = build_place(name, typical=typical).find(there, Plan({}, there), job, shape, 0.0)
    return None if found is None else (found.slices[0].node, found.slices[0].gpus)


def task_of(shape: Shape) -> Task:
    role = shape.roles[0]
    return Task(role.gpus, role.gpu_milli, round(role.cpu * 1000), gpu_types=shape.gpu_types)


def choices(there: Cluster, task: Task) -> list[tuple[Naive, tuple[int, ...]]]:
    nodes = [Naive(index, there) for index in range(len(there.nodes))]
    return [(node, gpus) for node in nodes for gpus in node.masks(task)]


@settings(max_examples=300, deadline=None)
@given(there=clusters(), shape=SHAPES, typical=st.lists(SHAPES, min_size=1, max_size=12))
def test_fgd_takes_the_node_and_gpu_where_fragments_grow_least(
    there: Cluster, shape: Shape, typical: list[Shape]
) -> None:
    usual, task = typical_tasks(typical, 4), task_of(shape)
    rated = [(fgd(node, gpus, task, usual), -node.index, gpus) for node, gpus in choices(there, task)]
    if not rated:
        assert answer("fgd", there, shape, usual) is None
        return
    score, node, _ = max(rated, key=lambda entry: entry[:2])
    best = [gpus for points, index, gpus in rated if (points, index) == (score, node)]
    found = answer("fgd", there, shape, usual)
    assert found is not None
    assert found[0] == -node
    assert tuple(bits(found[1])) == min(best)


@pytest.mark.parametrize("name", sorted(SIZED))
@settings(max_examples=200, deadline=None)
@given(there=clusters(), shape=SHAPES)
def test_other_placements_take_the_highest_score_of_the_lowest_node(name: str, there: Cluster, shape: Shape) -> None:
    task = task_of(shape)
    if name == "best-fit" and shape.is_plain:
        return  # whole GPUs alone: by the number of free ones, tested with the other plain placements
    largest = max(node.spec.cpu_milli for node in there.nodes), WHOLE * max(node.gpu_count for node in there.nodes)
    rated = [(SIZED[name](node, gpus, task, largest), -node.index) for node, gpus in choices(there, task)]
    # Which GPUs of the node: those with the least left come first in the score, so the node follows from the maximum.
    by_node: dict[int, Score] = {}
    for node, gpus in choices(there, task):
        score = SIZED[name](node, gpus, task, largest)
        held = by_node.get(node.index)
        if held is None or score[1:] > held[1:]:
            by_node[node.index] = score
    found = answer(name, there, shape, Typical())
    if not rated:
        assert found is None
        return
    best = max(by_node, key=lambda index: (by_node[index][0], -index))
    assert found is not None
    assert found[0] == best
    left = Naive(best, there).left
    assert sum(left[gpu] for gpu in bits(found[1])) == -(by_node[best][1:] or (0,))[0]


@settings(max_examples=300, deadline=None)
@given(there=clusters(), typical=st.lists(SHAPES, min_size=1, max_size=12))
def test_the_measure_is_what_its_definition_gives(there: Cluster, typical: list[Shape]) -> None:
    usual = typical_tasks(typical, 4)
    measure = Fragments(usual)
    for node in there.nodes:
        naive = Naive(node.index, there)
        assert measure.of_node(node) == fragment(naive.cpu, naive.left, naive.gpu_type, usual)
