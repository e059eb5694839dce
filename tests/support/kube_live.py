"""A live service on a real API server, with two hollow nodes of two GPUs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.hollow import HollowKubelets
from tests.support.kube_plane import ControlPlane

from skep.clusters.discovered import with_found
from skep.core.needs import offered_needs
from skep.engines.kube.engine import KubeEngine, capabilities_of, find_nodes
from skep.engines.kube.settings import KubeSettings
from skep.service.live import Live
from skep.service.store import Store


@contextlib.contextmanager
def kube_service(plane: ControlPlane, folder: Path, policy: str) -> Iterator[Live]:
    (folder / "pods").mkdir()
    namespace = plane.namespace()
    kubelets = HollowKubelets(plane.api, folder / "pods", {"n0": 2, "n1": 2}, plane.folder / "pki", namespace)
    kept = {"hostPath": {"path": str(folder / "checkpoints")}}
    settings = KubeSettings(str(plane.kubeconfig("admin", namespace)), gpus="visible", image="test", checkpoints=kept)
    service = Live(
        Store(folder / "skep.db"),
        lambda live: KubeEngine(folder, live.writer.state.cluster.blank(), live.request_of, live.tell, settings, "abc"),
        time.time,
        cluster=("test", with_found("nodes: discovered\n", find_nodes(settings))),
        policy=policy,
        offers=offered_needs(capabilities_of(settings)),
        capabilities=capabilities_of(settings),
    )
    try:
        yield service
    finally:
        service.close()
        kubelets.close()
