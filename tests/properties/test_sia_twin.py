"""Sia against a naive twin: all ways to give jobs configurations or nothing, at each question of a random run."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from tests.support.world import held_after

from skep.core.memory import At, Memory
from skep.core.solving import SolverProblem
from skep.core.view import View
from skep.policies.sia.planner import Sia
from skep.policies.sia.problem import ShownByType, SiaJob, SiaNode, SiaProblem
from skep.policies.sia.solve import solve

CHOICES_MAX = 20_000


@st.composite
def small_worlds(draw: st.DrawFn) -> World:
    jobs = []
    for number in range(draw(st.integers(1, 4))):
        task, least = draw(st.sampled_from([1, 1, 2])), draw(st.integers(1, 2))
        more = draw(st.integers(0, 4))
        sizes = {"min_gpus": task * least, "max_gpus": task * (least + more)} if more else {}
        submit, work = draw(st.integers(0, 200)), draw(st.integers(50, 900))
        jobs.append(job(task * least, at=submit, work=work, id=f"j{number}", **sizes))
    nodes = draw(st.sampled_from(["1x4", "2x2", "1x4:a+2x2:b", "3x2", "1x3+1x4"]))
    return World(trace(*jobs), cluster(nodes), "sia:restart=20")


@settings(max_examples=25)
@given(world=small_worlds())
def test_no_choice_costs_less(world: World) -> None:
    asked: list[SiaProblem] = []

    def problem(self: Sia, view: View, memory: Memory, at: At) -> SolverProblem:
        found = own(self, view, memory, at)
        asked.append(found.value)  # type: ignore[arg-type]
        return found

    own = Sia.problem
    with mock.patch.object(Sia, "problem", problem):
        held_after(world)
    for each in asked[:6]:
        if math.prod(len(list(ways(each, row))) for row in each.jobs) <= CHOICES_MAX:
            check(each)


def check(problem: SiaProblem) -> None:
    answer = solve(problem)
    assert answer.score <= best(problem) * 1.001 + 1e-9
    assert answer.start <= best(problem) + 1e-9  # the bound that is stated
    for node in problem.nodes:
        used = sum(answer.jobs[row.seq].tasks.get(node.index, 0) * row.task_gpus for row in problem.jobs)
        assert used <= node.gpus
    for row in problem.jobs:
        tasks = sum(answer.jobs[row.seq].tasks.values())
        assert not tasks or row.least <= tasks <= row.most


def best(problem: SiaProblem) -> float:
    room: dict[tuple[str, int], int] = {}
    for node in problem.nodes:
        room[node.gpu_type, node.size] = room.get((node.gpu_type, node.size), 0) + node.gpus
    found = math.inf
    for picks in itertools.product(*(list(ways(problem, row)) for row in problem.jobs)):
        used = dict.fromkeys(room, 0)
        for kind, gpus, _ in picks:
            if gpus:
                used[kind] += gpus
        if all(used[kind] <= room[kind] for kind in room):
            found = min(found, sum(cost for _, _, cost in picks))
    return found


def ways(problem: SiaProblem, row: SiaJob) -> Iterator[tuple[tuple[str, int], int, float]]:
    """A kind of node, GPUs and the cost of each way; nothing shown, so goodput is in proportion to GPUs."""
    yield ("", 0), 0, problem.waiting
    kinds = sorted({(node.gpu_type, node.size) for node in problem.nodes})
    sizes = range(row.least, row.most + 1)
    found = [each for each in itertools.product(kinds, sizes) if is_way(problem, row, *each)]
    least = min((tasks for _, tasks in found), default=1)
    slowest = min((row.rates[kind[0]] * tasks for kind, tasks in found), default=1.0)
    for kind, tasks in found:
        value = row.rates[kind[0]] * tasks / slowest * least * row.task_gpus
        is_now = {problem.nodes[place].gpu_type for place in row.now} == {kind[0]} and sum(row.now.values()) == tasks
        is_now = is_now and len(row.now) == -(-tasks // (kind[1] // row.task_gpus))
        is_now = is_now and all(problem.nodes[place].size == kind[1] for place in row.now)
        yield kind, tasks * row.task_gpus, (value * (1.0 if is_now or not row.now else row.kept)) ** problem.power


def is_way(problem: SiaProblem, row: SiaJob, kind: tuple[str, int], tasks: int) -> bool:
    nodes = sum((node.gpu_type, node.size) == kind for node in problem.nodes)
    whole = kind[1] // row.task_gpus
    if kind[0] not in row.rates or not whole or tasks > whole * nodes:
        return False
    is_power = tasks & (tasks - 1) == 0 and tasks <= whole
    return is_power or tasks % whole == 0 or tasks == row.least


def test_the_twin_finds_the_worked_example() -> None:
    rows = [SiaJob(seq, 1, 1, 2, {"": 1.0}, {}, 1.0, ShownByType({})) for seq in (1, 2)]
    problem = SiaProblem(rows, [SiaNode(0, "", 4, 4)], -0.5, 1.1)
    assert best(problem) == pytest.approx(2 * 2**-0.5)
    check(problem)
