"""The Kubernetes engine in a whole cluster: controller manager, default scheduler and a real kubelet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.kube_node import RealNode, real_node
from tests.support.kube_plane import control_plane
from tests.support.kube_world import on
from tests.support.real_world import IMAGE, RealWorld, add_python_image

from skep.core.actions import Launch
from skep.core.events import NodeBack, NodeConditions, OthersChanged
from skep.core.reports import Exited, Started
from skep.engines.kube.api import ApiError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RealNode]:
    (tmp_path / "plane").mkdir()
    with control_plane(tmp_path / "plane") as plane, real_node(plane, tmp_path / "node") as made:
        plane.start_controllers()
        add_python_image(made)
        yield made


@pytest.fixture
def world(node: RealNode, tmp_path: Path) -> Iterator[RealWorld]:
    (tmp_path / "world").mkdir()
    made = RealWorld(node, tmp_path / "world")
    made.engine.health.unreachable_s = 5.0
    try:
        made.adopt()
        yield made
    finally:
        made.close()


def test_beside_the_default_scheduler_with_a_node_that_falls_silent(world: RealWorld) -> None:
    foreign = {
        "name": "other",
        "image": IMAGE,
        "command": ["sleep", "1000"],
        "resources": {"requests": {"cpu": "100m"}},
    }
    world.api.post(world.api.of("pods"), {"metadata": {"name": "other"}, "spec": {"containers": [foreign]}})
    assert world.until(lambda: phase(world, "other") == "Running"), "the default scheduler bound it"
    assert world.until(lambda: any(use.cpu_milli == 100 for use in uses(world)))

    world.submit("1", "while :; do sleep 0.1; done", count=2)
    world.do(Launch("1", on(0, 0), 1))
    world.wait(Started)
    assert world.api.get(world.api.of("services", "skep-abc-1-1"))
    kubelet = world.node.processes[1]
    kubelet.send_signal(signal.SIGSTOP)
    try:
        assert world.until(lambda: NodeConditions("real", ("not-ready",)) in world.told)
        assert world.wait(Exited).cause == "node-lost"
        assert world.until(lambda: is_gone(world)), "the service of the gang is collected with its first pod"
    finally:
        kubelet.send_signal(signal.SIGCONT)
    assert world.until(lambda: NodeBack("real") in world.told)
    world.submit("2", "exit 3")
    world.do(Launch("2", on(0), 1))
    assert world.wait(Exited, "2").code == 3
    assert world.until(lambda: len(containers(world)) == 1), "the kubelet ended what it was no longer to run"


def uses(world: RealWorld) -> list:
    return [use for told in list(world.told) if isinstance(told, OthersChanged) for use in told.uses]


def phase(world: RealWorld, pod: str) -> str:
    return msgspec.json.decode(world.api.get(world.api.of("pods", pod)))["status"]["phase"]


def is_gone(world: RealWorld) -> bool:
    try:
        world.api.get(world.api.of("services", "skep-abc-1-1"))
    except ApiError as error:
        return error.status == 404
    return False


def containers(world: RealWorld) -> list[str]:
    """Those that run and are not the pause container of their pod."""
    listed = world.node.ctr("tasks", "list").stdout.splitlines()[1:]
    running = {line.split()[0] for line in listed if "RUNNING" in line}
    about = world.node.ctr("containers", "list").stdout.splitlines()[1:]
    return [line.split()[0] for line in about if line.split()[0] in running and "pause" not in line.split()[1]]
