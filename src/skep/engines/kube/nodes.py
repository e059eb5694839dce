"""Nodes as Kubernetes sees them: which there are, with what tags and extras, what speaks against new jobs there, and
what pods of others use. One that has not been ready for long is lost, and back when it is ready again."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skep.core.cluster import UNLIMITED, NodeSpec
from skep.core.events import NodeChanged, NodeConditions, NodeJoined, NodeLeft, OthersChanged
from skep.core.others import NodeUse
from skep.engines.kube.objects import ForeignPod, KubeNode
from skep.engines.kube.pods import GPU, in_mib

if TYPE_CHECKING:
    from skep.engines.kube.runs import KubeRuns


UNITS = {"": 1, "m": 0.001}
UNITS |= {unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)}
UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
PRODUCT, GPU_MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"
"""The labels that NVIDIA's feature discovery gives a node."""
PODS = "pods"
KEEP_OUT = ("NoSchedule", "NoExecute")


def quantity(text: str) -> float:
    """An amount as Kubernetes writes it: `64`, `500m`, `256Gi`."""
    found = re.fullmatch(r"([0-9.]+)(?:[eE]([0-9]+)|([a-zA-Z]*))", text)
    if found is None or (found[3] or "") not in UNITS:
        raise ValueError(f"{text!r} is no quantity")
    return float(found[1]) * (10.0 ** int(found[2]) if found[2] else UNITS[found[3] or ""])


def node_spec(node: KubeNode) -> NodeSpec:
    """Its labels and taints are tags."""
    amounts, labels = node.status.allocatable, node.metadata.labels
    memory = labels.get(GPU_MEMORY, "")
    return NodeSpec(
        node.metadata.name,
        gpus=int(amounts.get(GPU, "0")),
        gpu_type=labels.get(PRODUCT, "").lower(),
        gpu_mem_mib=int(memory) if memory.isdigit() else UNLIMITED,
        cpu_milli=int(quantity(amounts.get("cpu", "0")) * 1000),
        memory_mib=int(quantity(amounts.get("memory", "0")) // 2**20),
        tags=tuple(sorted([*(f"{key}={value}" for key, value in labels.items()), *taints_of(node)])),
        extras=extras_of(amounts),
    )


def taints_of(node: KubeNode) -> list[str]:
    """Those that a person or an operator set. Kubernetes marks nodes that are cordoned or not ready by taints too, and
    vendors those with GPUs."""
    own = (taint for taint in node.spec.taints if taint.effect in KEEP_OUT and taint.key != GPU)
    kept = (taint for taint in own if not taint.key.startswith("node.kubernetes.io/"))
    return [f"~{taint.key}={taint.value}" if taint.value else f"~{taint.key}" for taint in kept]


def extras_of(amounts: dict[str, str]) -> tuple[tuple[str, int], ...]:
    """What is counted beside GPUs, CPUs and memory; storage and huge pages in MiB."""
    others = (name for name in sorted(amounts) if name not in (GPU, "cpu", "memory"))
    return tuple((name, int(quantity(amounts[name]) // (2**20 if in_mib(name) else 1))) for name in others)


def conditions_of(node: KubeNode) -> tuple[str, ...]:
    """What speaks against new jobs there. Whether taints do depends on the job, unless the node belongs to a VC."""
    found = ["cordoned"] if node.spec.unschedulable else []
    found += [] if node.is_ready else ["not-ready"]
    return (*found, *(f"taint {taint[1:].partition('=')[0]}" for taint in taints_of(node)))


class KubeNodes:
    """`on_node` and `on_pod` are called from the threads of the watches; the rest in the engine's thread."""

    def __init__(self, unreachable_s: float, post: Callable[..., None], runs: KubeRuns) -> None:
        self.unreachable_s, self.post, self.runs = unreachable_s, post, runs
        self._timers: dict[str, threading.Timer] = {}
        self._there: dict[str, KubeNode] = {}
        self._told: dict[str, tuple[str, ...]] = {}
        """The conditions that were reported, of nodes of the cluster."""
        self._uses: dict[str, dict[str, ForeignPod]] = {}
        """By node and uid, pods of others."""
        self._silent: set[str] = set()
        """Nodes that we declared lost. What an admin has declared lost stays lost."""

    def on_node(self, before: KubeNode | None, node: KubeNode | None) -> None:
        self.post(self._see, (node or before).metadata.name, node)  # type: ignore[union-attr]

    def on_pod(self, before: ForeignPod | None, pod: ForeignPod | None) -> None:
        self.post(self._count, before, pod)

    def begin(self, lost: set[str]) -> None:
        """What was not heard of may have left while there was no server; what was lost then may be ready. The server
        knows which of them an admin has declared lost."""
        for name in self.runs.cluster.by_name:
            if name not in self._there:
                self._see(name, None)
        self.tell_all(self.runs.cluster.by_name)
        self._silent |= lost
        for name in sorted(lost & self._there.keys()):
            self._watch_over(name, is_ready=self._there[name].is_ready)

    def tell_all(self, names: Iterable[str]) -> None:
        """Report what is known of these nodes, which may be new in the cluster; also that nothing speaks against one
        any more."""
        for name in names:
            if (node := self._there.get(name)) is not None:
                self._told[name] = conditions_of(node)
                self.runs.reports.append(NodeConditions(name, self._told[name]))
                self._tell_uses(name)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _see(self, name: str, node: KubeNode | None) -> None:
        known = self._there.get(name)
        if node is None:
            self._there.pop(name, None)
            self.runs.reports.append(NodeLeft(name))
        else:
            self._there[name] = node
            if known is None or node_spec(known) != node_spec(node):
                self.runs.reports.append((NodeJoined if known is None else NodeChanged)(node_spec(node)))
            self._tell_conditions(name, conditions_of(node))
            if known is None:
                self._tell_uses(name)
        self._watch_over(name, is_ready=node is not None and node.is_ready)

    def _watch_over(self, name: str, *, is_ready: bool) -> None:
        if is_ready:
            if timer := self._timers.pop(name, None):
                timer.cancel()
            if name in self._silent:
                self._silent.discard(name)
                self.runs.restore(name)
        elif name not in self._timers:
            timer = self._timers[name] = threading.Timer(self.unreachable_s, self.post, (self._lost, name))
            timer.daemon = True
            timer.start()

    def _lost(self, name: str) -> None:
        if name in self._timers and name in self.runs.cluster.by_name and name not in self.runs.lost:
            self._silent.add(name)
            self.runs.lose(name)

    def _tell_conditions(self, name: str, conditions: tuple[str, ...]) -> None:
        if self._told.get(name, ()) != conditions:
            self._told[name] = conditions
            self.runs.reports.append(NodeConditions(name, conditions))

    # Others ------------------------------------------------------------------------------------------------------

    def _count(self, before: ForeignPod | None, pod: ForeignPod | None) -> None:
        for each in (before, pod):
            if each is not None and each.spec.node_name:
                there = self._uses.setdefault(each.spec.node_name, {})
                if each is pod and not each.is_over:
                    there[each.metadata.uid] = each
                else:
                    there.pop(each.metadata.uid, None)
        for name in {each.spec.node_name for each in (before, pod) if each is not None} - {""}:
            self._tell_uses(name)

    def _tell_uses(self, name: str) -> None:
        uses = tuple(uses_of(self._uses.get(name, {}).values()))
        self.runs.reports.append(OthersChanged(name, uses))


def uses_of(pods: Iterable[ForeignPod]) -> list[NodeUse]:
    """One use for all of them: which GPUs they have is not known."""
    total: dict[str, float] = {}
    for pod in pods:
        for name, amount in wants_of(pod).items():
            total[name] = total.get(name, 0.0) + amount
        total[PODS] = total.get(PODS, 0.0) + 1
    if not total:
        return []
    extras = {name: amount for name, amount in total.items() if name not in (GPU, "cpu", "memory")}
    return [
        NodeUse(
            count=round(total.get(GPU, 0.0)),
            cpu_milli=math.ceil(total.get("cpu", 0.0) * 1000 - 1e-6),
            memory_mib=math.ceil(total.get("memory", 0.0) / 2**20),
            extras=tuple((name, math.ceil(extras[name] / (2**20 if in_mib(name) else 1))) for name in sorted(extras)),
        )
    ]


def wants_of(pod: ForeignPod) -> dict[str, float]:
    """What Kubernetes sets aside for a pod: its containers together, or the largest of those that run before them."""
    total: dict[str, float] = {}
    for container in pod.spec.containers or ():
        for name, amount in container.resources.asked().items():
            total[name] = total.get(name, 0.0) + quantity(amount)
    for container in pod.spec.init_containers:
        for name, amount in container.resources.asked().items():
            total[name] = max(total.get(name, 0.0), quantity(amount))
    return total
