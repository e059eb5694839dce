"""Events about nodes: what they change in the cluster, and that the planner is called."""

from __future__ import annotations

import pytest
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.cluster import NodeSpec
from skep.core.events import (
    Event,
    NodeBack,
    NodeChanged,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeUndrained,
    OthersChanged,
)
from skep.core.others import NodeUse
from skep.testing import job


@pytest.fixture
def world() -> ByHand:
    """Job `a` runs on node 0."""
    world = ByHand(job(id="a"))
    world.start("a", gpus(0, 0b1))
    return world


@pytest.mark.parametrize(("away", "back"), [(NodeLost("n1"), NodeBack("n1")), (NodeDrained("n1"), NodeUndrained("n1"))])
def test_a_node_that_may_not_be_used_has_nothing_free(world: ByHand, away: Event, back: Event) -> None:
    assert world.apply(away).nodes_changed
    assert (world.state.health.may_use("n1"), world.state.cluster.free_gpus()) == (False, 1)
    assert world.apply(back).nodes_changed
    assert (world.state.health.may_use("n1"), world.state.cluster.free_gpus()) == (True, 3)


def test_a_node_that_is_lost_and_drained_needs_both_to_come_back(world: ByHand) -> None:
    world.apply(NodeLost("n1"), NodeDrained("n1"), NodeBack("n1"))
    assert not world.state.health.may_use("n1")
    world.apply(NodeUndrained("n1"))
    assert world.state.health.may_use("n1")


def test_what_runs_on_a_drained_node_keeps_its_gpus(world: ByHand) -> None:
    world.apply(NodeDrained("n0"))
    assert world["a"].held == gpus(0, 0b1)


@pytest.mark.parametrize(
    ("event", "changes"),
    [
        (NodeJoined(NodeSpec("x", 8)), {"x": NodeSpec("x", 8)}),
        (NodeChanged(NodeSpec("n1", 1)), {"n1": NodeSpec("n1", 1)}),
        (NodeLeft("n1"), {"n1": None}),
        (NodeLeft("nosuch"), {}),
    ],
    ids=str,
)
def test_changes_of_nodes_are_noted_for_the_end_of_the_instant(
    world: ByHand, event: Event, changes: dict[str, NodeSpec | None]
) -> None:
    world.state.apply(event)
    assert world.state.health.changes == changes
    assert world.state.health.is_told is bool(changes)


def test_what_others_use_is_noted_for_nodes_that_exist(world: ByHand) -> None:
    uses = (NodeUse(gpus=0b10),)
    world.state.apply(OthersChanged("n1", uses))
    world.state.apply(OthersChanged("nosuch", uses))
    assert {name: others.uses for name, others in world.state.health.others.items()} == {"n1": uses}
    assert world.state.health.crowded == {"n1"}
