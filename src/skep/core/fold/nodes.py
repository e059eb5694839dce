"""Events about nodes: lost, drained, back, joined, left, changed, used by others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.core.events import (
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
from skep.core.others import Others

if TYPE_CHECKING:
    from skep.core.state import State


def node_lost(state: State, event: NodeLost) -> None:
    state.health.lost.add(event.node)
    if event.is_said:
        state.health.said_lost.add(event.node)
    follow_node(state, event.node)


def node_back(state: State, event: NodeBack) -> None:
    if event.is_said:
        state.health.said_lost.discard(event.node)
    elif event.node in state.health.said_lost:
        return
    state.health.lost.discard(event.node)
    follow_node(state, event.node)


def node_conditions(state: State, event: NodeConditions) -> None:
    """Of a node that joins at the same instant too."""
    is_there = event.node in state.cluster.by_name
    if not is_there and event.node not in state.health.changes:
        return
    if event.conditions:
        state.health.conditions[event.node] = event.conditions
    else:
        state.health.conditions.pop(event.node, None)
    if is_there:
        follow_node(state, event.node)


def node_drained(state: State, event: NodeDrained) -> None:
    state.health.drained.add(event.node)
    follow_node(state, event.node)


def node_undrained(state: State, event: NodeUndrained) -> None:
    state.health.drained.discard(event.node)
    follow_node(state, event.node)


def follow_node(state: State, name: str) -> None:
    node = state.cluster.by_name[name]
    if state.health.may_use(name):
        state.cluster.restore(node)
    else:
        state.cluster.lose(node)
    state.wake().nodes_changed = True


def node_changed(state: State, event: NodeJoined | NodeChanged) -> None:
    state.health.changes[event.spec.name] = event.spec
    state.health.is_told = True


def node_left(state: State, event: NodeLeft) -> None:
    if event.node in state.cluster.by_name or event.node in state.health.changes:
        state.health.changes[event.node] = None
        state.health.is_told = True


def others_changed(state: State, event: OthersChanged) -> None:
    """Of a node that joins at the same instant too: that is booked when it is there."""
    is_there = event.node in state.cluster.by_name
    if is_there or event.node in state.health.changes:
        known = state.health.others.setdefault(event.node, Others(()))
        known.uses = event.uses
    if is_there:
        state.health.crowded.add(event.node)
        state.wake().nodes_changed = True
