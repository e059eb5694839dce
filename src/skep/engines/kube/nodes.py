"""Nodes as Kubernetes sees them: one that has not been ready for long is lost, and back when it is ready again."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skep.core.events import NodeConditions
from skep.engines.kube.objects import KubeNode
from skep.engines.kube.pods import GPU

if TYPE_CHECKING:
    from skep.engines.kube.runs import KubeRuns


UNITS = {"": 1, "m": 0.001}
UNITS |= {unit: 1000.0**power for power, unit in enumerate("kMGTPE", 1)}
UNITS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", 1)}
PRODUCT = "nvidia.com/gpu.product"
"""The label that NVIDIA's feature discovery gives a node."""


def quantity(text: str) -> float:
    """An amount as Kubernetes writes it: `64`, `500m`, `256Gi`."""
    found = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", text)
    if found is None or found[2] not in UNITS:
        raise ValueError(f"{text!r} is no quantity")
    return float(found[1]) * UNITS[found[2]]


def node_entry(node: KubeNode) -> dict[str, Any]:
    """As in a cluster file."""
    amounts = node.status.allocatable
    entry: dict[str, Any] = {"name": node.metadata.name, "gpus": int(amounts[GPU])}
    if product := node.metadata.labels.get(PRODUCT):
        entry["gpu_type"] = product.lower()
    return entry | {"cpus": quantity(amounts["cpu"]), "memory_gib": quantity(amounts["memory"]) // 2**30}


def conditions_of(node: KubeNode) -> tuple[str, ...]:
    """What speaks against new jobs there. Kubernetes marks a node that is not ready or cordoned by taints too."""
    found = ["cordoned"] if node.spec.unschedulable else []
    found += [] if node.is_ready else ["not-ready"]
    own = (taint for taint in node.spec.taints if not taint.key.startswith("node.kubernetes.io/"))
    return (
        *found,
        *(f"taint {taint.key}" for taint in own if taint.effect in ("NoSchedule", "NoExecute") and taint.key != GPU),
    )


class NodeReadiness:
    def __init__(self, unreachable_s: float, post: Callable[..., None], runs: KubeRuns) -> None:
        self.unreachable_s, self.post, self.runs = unreachable_s, post, runs
        self._timers: dict[str, threading.Timer] = {}
        self._seen: dict[str, tuple[str, ...]] = {}
        self._silent: set[str] = set()
        """Nodes that we declared lost. What an admin has declared lost stays lost."""

    def on_change(self, before: KubeNode | None, node: KubeNode | None) -> None:
        """From the thread of the watch."""
        if node is not None:
            self.post(self._see, node.metadata.name, conditions_of(node))
        name = (node or before).metadata.name  # type: ignore[union-attr]
        if node is not None and node.is_ready:
            if timer := self._timers.pop(name, None):
                timer.cancel()
            self.post(self._back, name)
        elif name not in self._timers:
            timer = self._timers[name] = threading.Timer(self.unreachable_s, self.post, (self._lost, name))
            timer.daemon = True
            timer.start()

    def _see(self, name: str, conditions: tuple[str, ...]) -> None:
        if name in self.runs.cluster.by_name and self._seen.get(name, ()) != conditions:
            self._seen[name] = conditions
            self.runs.reports.append(NodeConditions(name, conditions))

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()

    def _lost(self, name: str) -> None:
        if name in self._timers and name in self.runs.cluster.by_name and name not in self.runs.lost:
            self._silent.add(name)
            self.runs.lose(name)

    def _back(self, name: str) -> None:
        if name in self._silent:
            self._silent.discard(name)
            self.runs.restore(name)
