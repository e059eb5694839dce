"""Allocations as values: suspended, and on a cluster with other numbers."""

from __future__ import annotations

from skep.core.cluster import Allocation, Slice

TWO = Allocation((Slice(0, 0b11, gpu_mem_mib=100, cpu_milli=500, memory_mib=7, tasks=2), Slice(2, 0b1)), 3)


def test_a_suspended_one_has_no_compute_and_knows_what_it_resumes_as() -> None:
    halted = TWO.suspended("resident")
    assert (halted.is_suspended, halted.gpus, halted.resumes_as) == (True, 0, TWO)
    assert [(piece.node, piece.gpus, piece.milli, piece.cpu_milli) for piece in halted.slices] == [
        (0, 0b11, 0, 0),
        (2, 0b1, 0, 0),
    ]
    assert [piece.gpu_mem_mib for piece in halted.slices] == [100, 0]
    assert not TWO.is_suspended


def test_a_swapped_one_has_the_memory_of_its_gpus_on_its_node_but_for_what_only_runs_need() -> None:
    lane = Slice(1, 0b11, 0, 100, cpu_milli=500, memory_mib=7, tasks=2, limit=1000, mode="lane", ephemeral_mib=40)
    halted = Allocation((lane,), 2).suspended("swapped")
    assert halted.slices == (Slice(1, 0b11, 0, memory_mib=7 + 2 * 60, tasks=2),)
    assert Allocation((lane,), 2).suspended("resident").slices == (
        Slice(1, 0b11, 0, 100, memory_mib=7, tasks=2, ephemeral_mib=40),
    )


def test_other_numbers_of_the_nodes() -> None:
    numbers = {0: 5, 2: 0}
    there = TWO.renumbered(numbers)
    assert [piece.node for piece in there.slices] == [5, 0]
    assert (there.gpus, there.resumes_as) == (3, None)
    assert TWO.suspended("resident").renumbered(numbers) == there.suspended("resident")
