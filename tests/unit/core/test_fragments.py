"""The measure of fragments (FGD), worked out by hand."""

from __future__ import annotations

from tests.support import cluster

from skep.core.allocation import Allocation, Slice
from skep.core.fragments import Fragments, typical_tasks
from skep.core.model import gpu_shape

HALF, ONE, TWO = gpu_shape(1, gpu_milli=500), gpu_shape(1), gpu_shape(2)


def test_typical_are_the_most_frequent_classes_up_to_95_percent() -> None:
    typical = typical_tasks([ONE] * 90 + [HALF] * 8 + [TWO] * 2, 8)
    assert [(task.gpus, task.milli, count) for task, count in typical.tasks] == [(1, 1000, 90), (1, 500, 8)]
    assert typical.count == 98


def test_what_a_task_cannot_use_is_a_fragment() -> None:
    made = cluster("1x2")
    measure = Fragments(typical_tasks([ONE, TWO], 2))
    node = made.nodes[0]
    assert measure.of_node(node) == 0
    made.take(Allocation((Slice(0, 0b01),), 1), 1)
    assert measure.of_node(node) == 1000  # of no use to the task of two GPUs, which is one of two
    made.take(Allocation((Slice(0, 0b10, milli=700),), 0.7), 2)
    assert measure.of_node(node) == 2 * 300  # of no use to either


def test_a_gpu_of_which_enough_is_left_is_no_fragment() -> None:
    made = cluster("1x2")
    measure = Fragments(typical_tasks([HALF], 2))
    made.take(Allocation((Slice(0, 0b01, milli=400),), 0.4), 1)
    assert measure.of_node(made.nodes[0]) == 0
    made.take(Allocation((Slice(0, 0b01, milli=200),), 0.2), 2)
    assert measure.of_node(made.nodes[0]) == 400
