"""Events about nodes: what they change in the cluster, and that the planner is called."""

from __future__ import annotations

import pytest
from tests.support import job
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.cluster import NodeSpec
from skep.core.events import (
    Event,
    NodeBack,
    NodeChanged,
    NodeConditions,
    NodeDrained,
    NodeJoined,
    NodeLeft,
    NodeLost,
    NodeUndrained,
    OthersChanged,
)
from skep.core.others import NodeUse
from skep.core.snapshot import dump, load


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


def test_a_heartbeat_does_not_undo_what_a_person_said(world: ByHand) -> None:
    world.apply(NodeLost("n1", is_said=True), NodeBack("n1"), NodeConditions("n1", ()))
    assert not world.state.health.may_use("n1")
    world.apply(NodeLost("n1"), NodeBack("n1", is_said=True))
    assert world.state.health.may_use("n1")
    world.apply(NodeLost("n1"), NodeBack("n1"))
    assert world.state.health.may_use("n1"), "what was said is over"
    world.apply(NodeDrained("n1"), NodeConditions("n1", ("cordoned",)), NodeConditions("n1", ()))
    assert not world.state.health.may_use("n1")


def test_conditions_are_kept_apart_from_what_a_person_said(world: ByHand) -> None:
    world.apply(NodeConditions("n1", ("cordoned", "not-ready")), NodeUndrained("n1"), NodeBack("n1", is_said=True))
    assert not world.state.health.may_use("n1")
    assert world.state.unusable() == {"n1": "cordoned, not-ready"}
    again = load(dump(world.state), world.state.cluster.blank())
    assert not again.health.may_use("n1")
    assert not again.cluster.by_name["n1"].is_up
    world.apply(NodeConditions("n1", ()), NodeConditions("nosuch", ("cordoned",)))
    assert world.state.health.may_use("n1")
    assert world.state.health.conditions == {}


def test_what_was_said_of_a_node_goes_with_it(world: ByHand) -> None:
    world.apply(NodeLost("n1", is_said=True), NodeConditions("n1", ("cordoned",)))
    world.apply(NodeLeft("n1"))
    world.apply(NodeJoined(NodeSpec("n1", 2)))
    assert world.state.health.may_use("n1")


def test_what_runs_on_a_drained_node_keeps_its_gpus(world: ByHand) -> None:
    world.apply(NodeDrained("n0"))
    assert world["a"].held == gpus(0, 0b1)


@pytest.mark.parametrize(
    ("event", "nodes"),
    [
        (NodeJoined(NodeSpec("x", 8)), {"n0": 2, "n1": 2, "x": 8}),
        (NodeChanged(NodeSpec("n1", 1)), {"n0": 2, "n1": 1}),
        (NodeLeft("n1"), {"n0": 2}),
        (NodeLeft("nosuch"), {"n0": 2, "n1": 2}),
    ],
    ids=["joined", "changed", "left", "unknown"],
)
def test_nodes_change_at_the_end_of_the_instant(world: ByHand, event: Event, nodes: dict[str, int]) -> None:
    changed = nodes != {"n0": 2, "n1": 2}
    assert world.state.advance(world.state.now_s, [event]) is changed
    assert {name: node.gpu_count for name, node in world.state.cluster.by_name.items()} == nodes
    assert world.state.health.changes == {}


def test_a_node_leaves_when_its_last_job_has_exited(world: ByHand) -> None:
    assert world.state.advance(world.state.now_s, [NodeLeft("n0")])
    assert world.state.health.changes == {"n0": None}
    assert "n0" in world.state.cluster.by_name


def test_what_others_use_is_noted_for_nodes_that_exist(world: ByHand) -> None:
    uses = (NodeUse(gpus=0b10),)
    world.state.advance(world.state.now_s, [OthersChanged("n1", uses)])
    world.state.advance(world.state.now_s, [OthersChanged("nosuch", uses)])
    assert {name: others.uses for name, others in world.state.health.others.items()} == {"n1": uses}
    assert world.state.health.others["n1"].is_whole
