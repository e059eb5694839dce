"""Lending: which cells are kept back, who borrows first, and what owners take back."""

from __future__ import annotations

from tests.support import cluster, job, trace
from tests.unit.scenarios.small_cells import layout

from skep.core.allocation import Allocation, Slice
from skep.core.cells.cells import Cells
from skep.core.cells.hardware import Hardware
from skep.core.cluster import Cluster
from skep.core.state import State
from skep.experiments.simulate import Experiment, Options
from skep.policies.shared.lender import LendBooks, LendPipeline, NoPreemption, PinnedGpus, pinned_around
from skep.policies.shared.vc import CELLS
from skep.traces.trace import TraceJob


def pinned() -> tuple[Cluster, PinnedGpus]:
    """Two nodes of four GPUs; the first switch of the second one is pinned."""
    cells = Cells(layout(nodes=2, pins={"0/n1/0": "fast"}, a="1 @fast"))
    hardware = Hardware(cells)
    assert pinned_around(hardware.leaves[1][0]) == "fast"
    assert pinned_around(hardware.leaves[1][2]) == ""
    return Cluster(hardware.specs), PinnedGpus(hardware)


def test_only_the_idle_gpus_of_pinned_cells_are_kept_back() -> None:
    there, kept = pinned()
    assert kept.masks == {1: 0b0011}
    there.take(Allocation((Slice(1, 0b0001),), 1), 1)
    there.take(Allocation((Slice(1, 0b0010, milli=300),), 0.3), 2)
    assert [(piece.gpus, piece.milli) for piece in kept.left(there).slices if piece.gpus] == [(0b0010, 700)]


def test_on_an_empty_cluster_the_lender_sees_no_pinned_gpus() -> None:
    there, kept = pinned()
    state = State(there)
    blank, _ = LendBooks(state.cluster, kept).blank(state)
    assert [node.free for node in blank.cluster.nodes] == [4, 2]
    assert [node.free for node in there.nodes] == [4, 4]


def test_borrowers_never_stop_each_other() -> None:
    pipeline = LendPipeline(State(cluster("1x1")))
    assert isinstance(pipeline.preempt, NoPreemption)


def finished(*jobs: TraceJob) -> dict[str, tuple[float | None, int]]:
    made = layout(nodes=3, a="1 node", b="1 node", c="1 node")
    run = Experiment(trace(*jobs), Cluster(Hardware(Cells(made)).specs), Options(), None, made, CELLS).run("fifo")
    return {row.job_id: (row.start_s, row.preemptions) for row in run.rows}


def test_the_vc_that_has_borrowed_least_goes_first() -> None:
    found = finished(
        job(4, vc="a", id="a0", work=1000.0),
        job(2, vc="a", id="a1", work=1000.0),
        job(4, vc="b", id="b0", work=1000.0),
        job(2, vc="a", id="a2", at=1.0),
        job(2, vc="b", id="b1", at=1.0),
    )
    assert found["a1"] == (0.0, 0)
    assert (found["b1"][0], found["a2"][0]) == (1.0, 101.0)


def test_an_owner_takes_its_cells_back() -> None:
    found = finished(
        job(4, vc="a", id="own", work=500.0),
        job(4, vc="a", id="lent"),
        job(4, vc="b", at=10.0, id="b"),
        job(4, vc="c", at=10.0, id="c"),
    )
    assert (found["b"][0], found["c"][0]) == (10.0, 10.0)
    assert found["lent"][1] == 1


def test_of_a_pinned_cell_the_idle_gpus_and_parts_are_kept_back_but_not_gpus_in_a_share_mode() -> None:
    state = State(cluster("1x4"))
    there = state.cluster
    there.take(Allocation((Slice(0, 0b0001, milli=300),), 0.3), 1)
    there.take(Allocation((Slice(0, 0b0010, milli=250, limit=1000, mode="token"),), 0.25), 2)
    kept = PinnedGpus()
    kept.masks = {0: 0b0111}
    left = kept.left(there)
    assert left.slices == (Slice(0, 0b0100), Slice(0, 0b0001, milli=700))
    plan = state.new_plan()
    plan.reserve(left)
    plan.rollback(0)
