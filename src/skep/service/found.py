"""Nodes that an engine finds, finds changed, or no longer finds.

Of a cluster file that names its nodes, only what the file does not say is taken from the engine: tags and extras. With
`nodes: discovered` the engine says which nodes there are. Virtual clusters own cells of them, so that a node that joins
is a new cluster with the same file; if the VCs would no longer fit, or a job is in the way, the former one stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from skep.clusters.discovered import Discovery, found_in, is_discovered, with_found
from skep.core.errors import SkepError
from skep.core.events import Event, NodeChanged, NodeConditions, NodeJoined, NodeLeft, OthersChanged
from skep.core.nodes import Membership
from skep.core.reports import Report
from skep.core.state import State
from skep.service import commands

if TYPE_CHECKING:
    from skep.service.turn import Turn
    from skep.service.writer import Writer


GONE = ("gone",)


class FoundNodes:
    def __init__(self, text: str) -> None:
        self.nodes = {spec.name: spec for spec in found_in(text)}
        """As the engine describes them."""
        self.is_behind = False
        """True if the cells of VCs do not follow from these nodes yet."""
        self.problem = ""

    def fill(self, text: str) -> str:
        """A cluster file with the nodes that are known now, if it leaves them to the engine."""
        return with_found(text, list(self.nodes.values())) if is_discovered(text) else text

    def changes(self, writer: Writer, turn: Turn, reports: list[Report]) -> list[list[Event]]:
        """What these reports change, each list a step of its own. Known facts are dropped."""
        told = {name_of(report): report for report in reports if isinstance(report, Membership)}
        for name, report in told.items():
            if isinstance(report, NodeLeft):
                self.nodes.pop(name, None)
            else:
                self.nodes[name] = report.spec
        ground, state = writer.ground, writer.state
        if ground.discovery is not None and ground.layout is not None:
            self.is_behind = self.is_behind or bool(told)
            return self.catch_up(writer, turn, reports) if told else []
        if ground.layout is not None:
            return []
        found = [each for name, report in told.items() if (each := as_file_says(state, ground.discovery, name, report))]
        news = [each for each in found if is_news(state, name_of(each), each)]
        for event in news:
            turn.notify(*node_notice(event))
        joining = {event.spec.name for event in news if isinstance(event, NodeJoined)}
        return [[*news, *about(reports, joining)]] if news else []

    def catch_up(self, writer: Writer, turn: Turn, reports: list[Report]) -> list[list[Event]]:
        """Other cells of VCs, as soon as no job is in the way."""
        if not self.is_behind:
            return []
        ground = writer.ground
        try:
            event = commands.guarded(writer, lambda: commands.make_cluster(self.fill(ground.text), ground.name))
            after, cluster = ground.after(event)
            assert cluster is not None
            if commands.in_the_way(writer, cluster):
                return self._gone(writer)
            commands.refuse_orphans(writer, after.layout)
        except SkepError as error:
            if self.problem != str(error):
                self.problem = str(error)
                turn.notify("cluster", f"the nodes that are there now do not fit the VCs: {error}")
            self.is_behind = False
            return self._gone(writer)
        self.is_behind, self.problem = False, ""
        events = writer.with_nodes(event)
        for each in events:
            if isinstance(each, Membership):
                turn.notify(*node_notice(each))
        joining = {each.spec.name for each in events if isinstance(each, NodeJoined)}
        return [[*events, *about(reports, joining)]] if len(events) > 1 else []

    def _gone(self, writer: Writer) -> list[list[Event]]:
        """Nothing is started on nodes that have left and are still cells of VCs."""
        gone = [name for name in writer.state.cluster.by_name if name not in self.nodes]
        news: list[Event] = [
            NodeConditions(name, GONE) for name in gone if writer.state.health.conditions.get(name) != GONE
        ]
        return [news] if news else []


def about(reports: list[Report], joining: set[str]) -> list[Event]:
    """What is known of nodes that join, so that nothing is started there that may not be."""
    return [each for each in reports if isinstance(each, NodeConditions | OthersChanged) and each.node in joining]


def name_of(report: Membership) -> str:
    return report.node if isinstance(report, NodeLeft) else report.spec.name


def as_file_says(state: State, discovery: Discovery | None, name: str, report: Membership) -> Membership | None:
    """None if the file does not leave that to the engine."""
    node = state.cluster.by_name.get(name)
    if discovery is None:
        if node is None or isinstance(report, NodeLeft):
            return None
        return NodeChanged(msgspec.structs.replace(node.spec, tags=report.spec.tags, extras=report.spec.extras))
    spec = None if isinstance(report, NodeLeft) else discovery.node(report.spec)
    if spec is None:
        return NodeLeft(name)
    return NodeJoined(spec) if node is None else NodeChanged(spec)


def is_news(state: State, name: str, report: Membership) -> bool:
    """Compared with the pending change of the node, if one waits for jobs to exit."""
    node = state.cluster.by_name.get(name)
    known = state.health.changes.get(name, node.spec if node is not None else None)
    return known != (None if isinstance(report, NodeLeft) else report.spec)


def node_notice(event: Membership) -> tuple[str, str]:
    """For people: the kind, and a sentence."""
    if isinstance(event, NodeLeft):
        return "left", f"{event.node} leaves the cluster"
    spec = event.spec
    what = f"{spec.gpus} GPU{'' if spec.gpus == 1 else 's'}" + (f" of type {spec.gpu_type}" if spec.gpu_type else "")
    return ("joined" if isinstance(event, NodeJoined) else "changed"), f"{spec.name} has {what}"
