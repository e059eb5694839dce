"""Shapes and ranges of jobs."""

from __future__ import annotations

import pytest

from skep.core.model import JobSpec, Role, Shape, gpu_shape


def test_equal_requests_are_equal_values() -> None:
    assert gpu_shape(4, cpu=8.0) == gpu_shape(4, cpu=8.0)
    assert hash(gpu_shape(4)) == hash(gpu_shape(4))
    assert gpu_shape(4) != gpu_shape(4, gpu_types=("v100",))


def test_cpus_and_memory_are_divided_among_the_tasks() -> None:
    (role,) = gpu_shape(4, cpu=8.0, memory_gib=2.0).roles
    assert (role.count, role.gpus, role.cpu, role.memory_gib) == (4, 1, 2.0, 0.5)
    (role,) = gpu_shape(0, cpu=8.0).roles
    assert (role.count, role.gpus, role.cpu) == (1, 0, 8.0)


@pytest.mark.parametrize(
    ("gpus", "milli", "is_apart", "expected"),
    [(2, 500, True, True), (1, 500, True, False), (2, 1000, True, False), (2, 500, False, False)],
)
def test_parts_of_several_gpus_stay_apart(gpus: int, milli: int, is_apart: bool, expected: bool) -> None:
    assert gpu_shape(gpus, gpu_milli=milli, is_apart=is_apart).roles[0].is_apart is expected


@pytest.mark.parametrize(
    ("shape", "low", "high", "expected"),
    [
        (gpu_shape(4), None, None, None),
        (gpu_shape(4), 1, 8, (1, 8)),
        (gpu_shape(4), None, 8, (4, 8)),
        (gpu_shape(4), 2, None, (2, 4)),
        (gpu_shape(4), None, 2, (2, 2)),
        (Shape((Role(2, 4),)), 3, 10, (4, 8)),
        (Shape((Role(2, 4),)), 5, 7, None),
        (gpu_shape(1, gpu_milli=500), 1, 2, None),
        (gpu_shape(0, cpu=1.0), 1, 2, None),
    ],
    ids=str,
)
def test_the_range_of_an_elastic_job_is_in_whole_tasks(
    shape: Shape, low: int | None, high: int | None, expected: tuple[int, int] | None
) -> None:
    assert JobSpec("a", (shape,), min_gpus=low, max_gpus=high).gpu_range == expected


def test_the_elastic_role_is_the_first_with_gpus() -> None:
    spec = JobSpec("a", (Shape((Role(1, 0, cpu=1.0), Role(2, 2))),), min_gpus=2, max_gpus=8)
    assert spec.elastic_role == 1
    assert [role.count for role in spec.resized(6).roles] == [1, 3]
