"""How a shape is divided into units that go to one node each."""

from __future__ import annotations

import pytest

from skep.core.model import Role, Shape, gpu_shape
from skep.core.tasks import Task, fits_nodes, is_loose, task_of, units_of


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        (Role(2, 1), False),
        (Role(2, 0, cpu=1.0), True),
        (Role(2, 1, gpu_milli=500), True),
        (Role(2, 1, gpu_milli=500, is_apart=True), False),
    ],
)
def test_loose_tasks_may_go_anywhere(role: Role, expected: bool) -> None:
    assert is_loose(role) is expected


def test_amounts_are_those_of_all_tasks_but_memory_of_a_gpu() -> None:
    role = Role(4, 2, cpu=1.5, memory_gib=0.5, gpu_mem_gib=1.0)
    assert task_of(role, ("v100",), 3) == Task(6, 1000, 4500, 1536, 1024, ("v100",))
    assert task_of(Role(2, 0, cpu=0.1), (), 2) == Task(0, 1000, 200)


def test_a_role_larger_than_a_node_is_divided() -> None:
    shape = gpu_shape(10)
    assert [unit.tasks for unit in units_of(shape, 4)] == [4, 4, 2]
    assert not fits_nodes(shape, 4)
    assert [unit.tasks for unit in units_of(shape, 16)] == [10]
    assert fits_nodes(shape, 16)


def test_a_task_larger_than_a_node_stays_one_unit() -> None:
    assert [unit.task.gpus for unit in units_of(Shape((Role(2, 8),)), 4)] == [8, 8]


def test_loose_tasks_are_one_unit_each() -> None:
    shape = Shape((Role(3, 0, cpu=1.0), Role(1, 1)))
    assert [(unit.role, unit.tasks) for unit in units_of(shape, 4)] == [(0, 1), (0, 1), (0, 1), (1, 1)]
    assert fits_nodes(shape, 4)
