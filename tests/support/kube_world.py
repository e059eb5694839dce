"""A Kubernetes engine with hollow kubelets, and what a test needs to look at them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane

from skep.core.actions import Action, named
from skep.core.cluster import Allocation, Cluster, NodeSpec, Slice
from skep.core.ports import Wanted
from skep.core.reports import Report
from skep.engines.kube.api import Api
from skep.engines.kube.credentials import of_file
from skep.engines.kube.engine import KubeEngine
from skep.engines.kube.settings import KubeSettings
from skep.jobs.request import Request, TaskRole

WAIT_S = 90.0
UNREACHABLE_S = 1.0


def on(*nodes: int, gpus: int = 1) -> Allocation:
    """One task on each of these nodes."""
    return Allocation(tuple(Slice(node, gpus=(1 << gpus) - 1) for node in nodes), gpus * len(nodes))


def until(condition: Callable[[], bool]) -> bool:
    by_s = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > by_s:
            return False
        time.sleep(0.02)
    return True


class KubeWorld:
    def __init__(self, plane: ControlPlane, folder: Path, *, user: str = "admin", namespace: str = "") -> None:
        self.plane, self.folder = plane, folder
        self.namespace = namespace or plane.namespace()
        self.api = Api(of_file(plane.kubeconfig("admin", self.namespace), "", ""))
        self.settings = KubeSettings(
            str(plane.kubeconfig(user, self.namespace)),
            gpus="visible",
            image="test",
            checkpoints={"hostPath": {"path": str(folder / "checkpoints")}},
            unreachable_s=UNREACHABLE_S,
        )
        role = TaskRole(command="echo hello; exec sleep 1000")
        self.requests = {job_id: Request("job", {"main": role}, grace_s=5.0) for job_id in "123"}
        self.told: list[Report] = []
        self.cluster = Cluster([NodeSpec("n0", 4), NodeSpec("n1", 4)])
        (folder / "pods").mkdir()
        self.engines: list[KubeEngine] = []
        self.epoch = 0
        self.join_nodes()
        self.open()

    def join_nodes(self) -> None:
        self.kubelets = HollowKubelets(
            self.api, self.folder / "pods", {"n0": 4, "n1": 4}, self.plane.folder / "pki", self.namespace
        )

    def open(self, folder: str = "", *, store: str = "abc", is_new: bool = False) -> None:
        """Another engine on a folder of its own."""
        self.engine = KubeEngine(
            self.folder / folder,
            self.cluster,
            lambda job_id: (self.requests[job_id], None),
            self.told.extend,
            self.settings,
            store,
            is_new=is_new,
        )
        self.engines.append(self.engine)

    @staticmethod
    def engine_only(folder: Path, kubeconfig: Path, namespace: str) -> KubeEngine:
        settings = KubeSettings(str(kubeconfig), namespace=namespace)
        return KubeEngine(folder, Cluster([]), lambda job_id: (Request("", {}), None), print, settings, "abc")

    def adopt(self, *actions: Action, known: set[tuple[str, int]] | None = None, lost: Collection[str] = ()) -> None:
        asked = {(action.job_id, action.launch) for action in actions}
        self.epoch = self.engine.last_epoch() + 1
        wanted = Wanted(named(actions, self.cluster), asked if known is None else known, set(lost))
        self.engine.adopt(self.epoch, 0.0, wanted)

    def do(self, *actions: Action) -> None:
        self.engine.execute(self.epoch, 0.0, named(actions, self.cluster))

    def of(self, kind: type, job_id: str = "1") -> list[Any]:
        return [told for told in self.told if isinstance(told, kind) and getattr(told, "job_id", job_id) == job_id]

    def wait(self, kind: type, job_id: str = "1", *, count: int = 1) -> Any:
        assert self.until(lambda: len(self.of(kind, job_id)) >= count), f"no {kind.__name__} of {job_id}: {self.told}"
        return self.of(kind, job_id)[count - 1]

    def until(self, condition: Callable[[], bool]) -> bool:
        return until(condition)

    def raw_pods(self) -> list[dict[str, Any]]:
        found = msgspec.json.decode(self.api.get(self.api.of("pods")))["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def leave_nodes(self) -> None:
        self.kubelets.close()

    def bind_first(self, pod: str, node: str) -> None:
        """Bind this pod as soon as it exists, before the engine does."""
        bind, starter = self.engine.runs.starter._bind, self.engine.runs.starter

        def first(name: str, wanted: str) -> None:
            if name == pod:
                bind(name, node)
            bind(name, wanted)

        starter._bind = first  # type: ignore[method-assign]

    def close(self) -> None:
        for engine in self.engines:
            if engine._thread.is_alive():
                engine.close()
        self.leave_nodes()
        self.api.close()
