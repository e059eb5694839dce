"""Runs the steps of a scenario: each pod requests, is bound, preempts or waits; nodes fail; configurations change."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from skep.core.cells.layout import Layout
from skep.core.cells.tree import PhysicalCell
from skep.core.errors import InputError
from skep.scenarios.gangs import Gang, GangAnswer, GangRequest, GangState, GangUse, Placement, WaitCause
from skep.scenarios.node_order import Sorts
from skep.scenarios.pods import parse_annotation, parse_spec
from skep.scenarios.recover import GangRecord, record, recover
from skep.scenarios.scheduler import GangScheduler

Step = dict[str, Any]
Outcome = dict[str, Any]

STATES = {
    GangState.ALLOCATED: "Allocated",
    GangState.PREEMPTING: "Preempting",
    GangState.LEAVING: "BeingPreempted",
}


class ReplayedPod:
    """A bound pod: its place among the pods of its gang."""

    def __init__(self, name: str, request: GangRequest, size: int, slot: int) -> None:
        self.name = name
        self.request = request
        self.size = size
        self.slot = slot
        self.record: GangRecord | None = None
        """The placement of its whole gang, as it would be written on the pod."""


class Replay:
    """A scheduler for pods over the cells of one layout."""

    def __init__(self, layout: Layout, nodes: Collection[str] | None = None) -> None:
        """`nodes` are those that exist from the start; the others of the layout are bad until they become healthy."""
        self.announced = nodes or ()
        self.cells = fresh_cells(layout, self.announced)
        self.bad = {node for node in self.cells.nodes if nodes is not None and node not in nodes}
        """Nodes that the cells may not know yet: a later configuration may have them."""
        self._mark_bad()
        self.pods: dict[str, ReplayedPod] = {}
        self.waiting_for: dict[str, set[str]] = {}
        """Preempting gang → its pods that have requested."""
        self.overtaken: dict[str, set[str]] = {}
        """The same for gangs whose reserved cells were given to a stronger one: they hold nothing, but HiveD lists them
        as preempting until they request again."""
        self.ops: dict[str, Callable[[Step], Outcome]] = {
            "schedule": self.schedule,
            "delete": self.delete,
            "node_bad": lambda step: self.set_node(step, is_bad=True),
            "node_healthy": lambda step: self.set_node(step, is_bad=False),
            "restart": self.reconfigure,
            "reconfigure": self.reconfigure,
            "inspect": lambda step: {},
            "listGroups": lambda step: {"groupDetails": self.details()},
        }

    def play(self, step: Step) -> Outcome:
        op = self.ops.get(step.get("op", ""))
        if op is None:
            raise InputError(f"unknown op '{step.get('op')}'", hint=f"expected one of {', '.join(self.ops)}")
        outcome = op(step)
        outcome["groups"] = self.groups()
        return outcome

    def groups(self) -> dict[str, str]:
        found = dict.fromkeys(self.overtaken, STATES[GangState.PREEMPTING])
        for name, gang in self.cells.gangs.items():
            found[name] = STATES[gang.state] + ("/lazyPreempted" if gang.is_downgraded else "")
        return dict(sorted(found.items()))

    def details(self) -> dict[str, Any]:
        """Where each gang is, and how many of its GPUs the configuration no longer has."""
        found: dict[str, Any] = {}
        for name, gang in sorted(self.cells.gangs.items()):
            places: dict[str, list[int]] = {}
            for leaf, _ in gang.pairs():
                places.setdefault(leaf.node, []).append(leaf.index)
            missing = sum(leaf is None for pod in gang.physical for leaf in pod)
            found[name] = {"placement": {node: sorted(gpus) for node, gpus in sorted(places.items())}}
            if gang.is_downgraded:
                found[name]["lazyPreempted"] = True
            if missing:
                found[name]["missingLeafCells"] = missing
        return found

    # Pods ------------------------------------------------------------------------------------------------------

    def schedule(self, step: Step) -> Outcome:
        suggested = step.get("suggestedNodes", "all")
        nodes = None if suggested == "all" else list(suggested)
        try:
            request, size = self._request(step)
            return self._schedule(step, request, size, nodes)
        except InputError as error:
            return {"result": "error", "errorClass": "user_error", "reason": str(error)}

    def _request(self, step: Step) -> tuple[GangRequest, int]:
        name = step["pod"]
        raw = step.get("rawAnnotation")
        request, size = parse_spec(name, step.get("spec") if raw is None else parse_annotation(name, raw))
        bound = self.pods.get(name)
        if bound is not None and bound.request.name != request.name:
            raise InputError(f"pod {name} runs already, as one of gang {bound.request.name}")
        return request, size

    def _schedule(self, step: Step, request: GangRequest, size: int, nodes: list[str] | None) -> Outcome:
        is_preempting = step.get("phase") == "Preempting"
        gang = self.cells.gangs.get(request.name)
        if gang is not None and gang.state is GangState.PREEMPTING and is_preempting and self._is_spoiled(gang, nodes):
            self._cancel(gang)
            gang = None
        if gang is not None:
            return self._of_gang(step, gang, size)
        self.overtaken.pop(request.name, None)
        answer = self.cells.ask(request, nodes)
        if answer.placement is None:
            return {"result": "wait", "waitClass": str(answer.cause)}
        if answer.victims:
            if answer.is_searched and not is_preempting:
                # HiveD does not see this one and lets the pod wait. Kubernetes then calls again in the other phase.
                return {"result": "wait", "waitClass": str(WaitCause.VC_FULL)}
            if is_preempting:
                reserved = self._reserve(request, answer)
                self.waiting_for[reserved.name] = {step["pod"]}
            return self._preempt(answer.victims)
        slot = self._first_slot(request, size, set())
        outcome = self._bound(answer.placement.physical, slot, answer.placement.chain)
        if step.get("commit", True):
            dropped = self._drop_reservers(answer.placement)
            self.overtaken.update({} if is_preempting else dropped)
            gang = self.cells.allocate(request, answer.placement)
            self._add(step["pod"], gang, size, slot)
        return outcome

    def _of_gang(self, step: Step, gang: Gang, size: int) -> Outcome:
        """A further pod of a gang that has its place."""
        if gang.state is GangState.LEAVING:
            return {"result": "wait", "waitClass": "being-preempted"}
        if gang.state is GangState.PREEMPTING:
            self.waiting_for.setdefault(gang.name, set()).add(step["pod"])
            held = [self.cells.on(leaf) for leaf, _ in gang.pairs()]
            victims = [gpu.gang for gpu in held if gpu.use is GangUse.RESERVING and gpu.gang is not None]
            if victims:
                return self._preempt(list({victim.name: victim for victim in victims}.values()))
        siblings = [pod for pod in self.pods.values() if pod.request.name == gang.name]
        slot = self._first_slot(gang.request, size, {pod.slot for pod in siblings})
        outcome = self._bound(gang.physical, slot, self._chain(gang))
        written = next((pod.record for pod in siblings if pod.record is not None), None)
        if not any(leaf is None for pod in gang.physical for leaf in pod):
            written = None
        if written is not None:  # what the configuration no longer has is still where the other pods say
            outcome["node"] = written.pods[slot].node
            outcome["leafCells"] = list(written.pods[slot].gpus)
            outcome["cellChain"] = outcome["cellChain"] or written.chain
            outcome["groupNodes"] = len({pod.node for pod in written.pods})
        if step.get("commit", True):
            if gang.state is GangState.PREEMPTING:
                self.cells.start(gang)
                self.waiting_for.pop(gang.name, None)
            self._add(step["pod"], gang, size, slot, written)
        return outcome

    def _chain(self, gang: Gang) -> str:
        return next((leaf.chain for leaf, _ in gang.pairs()), "")

    def _first_slot(self, request: GangRequest, size: int, taken: set[int]) -> int:
        for slot, gpus in enumerate(request.sizes):
            if gpus == size and slot not in taken:
                return slot
        raise InputError(f"gang {request.name} has no place left for a pod of {size} GPUs")

    def _is_spoiled(self, gang: Gang, nodes: list[str] | None) -> bool:
        only = nodes if gang.request.only_suggested else None
        return any(not leaf.is_healthy or (only is not None and leaf.node not in only) for leaf, _ in gang.pairs())

    def _reserve(self, request: GangRequest, answer: GangAnswer) -> Gang:
        assert answer.placement is not None
        self._drop_reservers(answer.placement)
        return self.cells.reserve(request, answer.placement)

    def _drop_reservers(self, placement: Placement) -> dict[str, set[str]]:
        """The cells cancel the preemptions that a placement overtakes: returns whose, and the pods that have
        requested."""
        reservers = (self.cells.on(leaf).reserver for pod in placement.physical for leaf in pod)
        names = {gang.name for gang in reservers if gang is not None}
        return {name: self.waiting_for.pop(name, set()) for name in names}

    def _cancel(self, gang: Gang) -> None:
        self.cells.cancel(gang)
        self.waiting_for.pop(gang.name, None)

    def _preempt(self, victims: list[Gang]) -> Outcome:
        names = {victim.name for victim in victims}
        return {
            "result": "preempt",
            "victims": sorted(pod.name for pod in self.pods.values() if pod.request.name in names),
        }

    def _bound(self, physical: Any, slot: int, chain: str) -> Outcome:
        leaves: list[PhysicalCell] = [leaf for leaf in physical[slot] if leaf is not None]
        everyone = [leaf for pod in physical for leaf in pod if leaf is not None]
        return {
            "result": "bind",
            "node": leaves[0].node if leaves else "",
            "leafCells": [leaf.index for leaf in leaves],
            "cellChain": chain,
            "affinity": affinity(leaves),
            "groupAffinity": affinity(everyone),
            "groupNodes": len({leaf.node for leaf in everyone}),
        }

    def _add(self, name: str, gang: Gang, size: int, slot: int, written: GangRecord | None = None) -> None:
        pod = self.pods[name] = ReplayedPod(name, gang.request, size, slot)
        pod.record = written or record(gang)

    def delete(self, step: Step) -> Outcome:
        pod = self.pods.pop(step["pod"], None)
        if pod is None:
            self._forget_asking(step["pod"])
            return {}
        name = pod.request.name
        gang = self.cells.gangs.get(name)
        if gang is not None and not any(other.request.name == name for other in self.pods.values()):
            self.cells.release(gang)
        return {}

    def _forget_asking(self, name: str) -> None:
        for gang_name, asking in list(self.waiting_for.items()):
            asking.discard(name)
            if not asking and gang_name in self.cells.gangs:
                self._cancel(self.cells.gangs[gang_name])
        for gang_name, asking in list(self.overtaken.items()):
            asking.discard(name)
            if not asking:
                del self.overtaken[gang_name]

    # Nodes and configurations ----------------------------------------------------------------------------------

    def set_node(self, step: Step, *, is_bad: bool) -> Outcome:
        (self.bad.add if is_bad else self.bad.discard)(step["node"])
        self.cells.set_node(step["node"], is_bad=is_bad)
        return {}

    def _mark_bad(self) -> None:
        for node in sorted(self.bad):
            self.cells.set_node(node, is_bad=True)

    def reconfigure(self, step: Step) -> Outcome:
        """New cells from a configuration, then every bound pod is recovered from its placement alone."""
        self.cells = fresh_cells(step.get("layout") or self.cells.layout, self.announced)
        self.waiting_for = {}
        self.overtaken = {}
        for name in [*step.get("replayOrder", ()), *self.pods]:
            pod = self.pods.get(name)
            if pod is not None and pod.record is not None and pod.request.name not in self.cells.gangs:
                recover(self.cells, pod.request, pod.record)
        self._mark_bad()
        return {"groupDetails": self.details()}


def fresh_cells(layout: Layout, announced: Iterable[str]) -> GangScheduler:
    """HiveD treats all nodes as bad until they are reported; which of equal cells comes first depends on that."""
    cells = GangScheduler(layout, Sorts.WHEN_ASKED)
    for node in cells.nodes:
        cells.set_node(node, is_bad=True)
    for node in [*announced, *cells.nodes]:
        cells.set_node(node, is_bad=False)
    return cells


def affinity(leaves: list[PhysicalCell]) -> str:
    cell = common_level(leaves) if leaves else None
    return cell.type if cell is not None else "none"


def common_level(leaves: list[PhysicalCell]) -> PhysicalCell | None:
    """The smallest cell that holds them all."""
    cell: PhysicalCell | None = leaves[0]
    for leaf in leaves[1:]:
        other: PhysicalCell | None = leaf
        while cell is not None and other is not None and cell is not other:
            if cell.level <= other.level:
                cell = cell.parent
            else:
                other = other.parent
        if cell is not other:
            return None
    return cell
