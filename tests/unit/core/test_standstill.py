"""Where jobs make no progress: which GPU types are left for a job, and beside whom it runs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.support import cluster, job, node

from skep.core.events import JobSubmitted, NodeJoined
from skep.core.knowledge import Knowledge, Unknown
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.core.standstill import NOWHERE, Standstills
from skep.core.state import State


class Table(Unknown):
    """`big` runs on no k80 with two GPUs or more, nobody beside `loud` on a k80."""

    def __init__(self) -> None:
        self.standstills = Standstills(self.stands_still)

    def stands_still(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> bool:
        if gpu_type != "k80":
            return False
        is_loud = any(other.model == "loud" for other in neighbours)
        return is_loud or (job.model == "big" and shape.gpus > 1)


KNOWN = Table().standstills
TYPES = ("k80", "v100")


def spec(gpus: int, *types: str, model: str = "big") -> JobSpec:
    return JobSpec("j", (gpu_shape(gpus, gpu_types=types),), model=model)


@pytest.mark.parametrize(
    ("asked", "cluster_types", "left"),
    [
        (spec(2), TYPES, ("v100",)),
        (spec(2, "k80", "v100"), TYPES, ("v100",)),
        (spec(2, "v100"), TYPES, ("v100",)),
        (spec(1), TYPES, ()),
        (spec(2, model="small"), TYPES, ()),
        (spec(2), ("k80",), NOWHERE),
        (spec(2, "k80"), TYPES, NOWHERE),
        (spec(2, "k80", "v100"), ("k80",), NOWHERE),
        (spec(2, "v100"), ("k80",), ("v100",)),
        (JobSpec("j", (Shape(gpu_shape(0, cpu=1.0).roles),), model="big"), TYPES, ()),
    ],
)
def test_the_types_that_are_left(asked: JobSpec, cluster_types: tuple[str, ...], left: tuple[str, ...]) -> None:
    (shape,) = KNOWN.shapes(asked, cluster_types)
    assert shape.gpu_types == left
    assert shape.roles == asked.shapes[0].roles


def test_a_shape_that_cannot_run_is_left_out_if_another_can() -> None:
    shapes = (gpu_shape(2, gpu_types=("k80",)), gpu_shape(1, gpu_types=("k80",)))
    assert KNOWN.shapes(JobSpec("j", shapes, model="big"), TYPES) == shapes[1:]


def test_without_a_profile_shapes_are_the_same_objects() -> None:
    asked = spec(2)
    assert Knowledge().standstills.shapes(asked, TYPES) is asked.shapes
    assert not Knowledge().standstills.are_known
    assert Knowledge().standstills.go_together(asked, asked, "k80")


def test_both_of_a_pair_must_make_progress() -> None:
    quiet, loud = spec(1, model="small"), spec(1, model="loud")
    assert KNOWN.go_together(quiet, quiet, "k80")
    assert not KNOWN.go_together(quiet, loud, "k80")
    assert not KNOWN.go_together(loud, quiet, "k80")
    assert KNOWN.go_together(quiet, loud, "v100")


def test_a_state_has_the_shapes_of_its_jobs_also_when_nodes_join() -> None:
    state = State(cluster("1x4:k80"), Table())
    state.advance(0.0, [JobSubmitted(job(2, model="big", id="a").spec)])
    assert state.jobs["a"].shapes[0].gpu_types == NOWHERE
    state.advance(0.0, [NodeJoined(node(4, "v100", name="new"))])
    assert state.jobs["a"].shapes[0].gpu_types == ("v100",)
