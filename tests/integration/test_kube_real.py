"""The Kubernetes engine with a real kubelet, containerd and runc."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kube_node import RealNode, real_node
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import on
from tests.support.real_world import RealWorld, add_python_image

from skep.cli.demo.training import undisturbed
from skep.core.actions import Checkpoint, Launch, Stop
from skep.core.errors import NotFound
from skep.core.reports import Exited, LaunchFailed, Progressed, Started
from skep.jobs.request import Request, TaskRole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
MIB = 1 << 20
SOURCE = Path(__file__).parents[2] / "src" / "skep"


@pytest.fixture(scope="module")
def node(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with real_node(plane, tmp_path_factory.mktemp("node")) as made:
        add_python_image(made)
        yield made


@pytest.fixture
def world(node: RealNode, tmp_path: Path) -> Iterator[RealWorld]:
    made = RealWorld(node, tmp_path)
    try:
        made.adopt()
        yield made
    finally:
        made.close()


def test_exit_codes_memory_and_a_missing_image(world: RealWorld) -> None:
    world.submit("1", "echo out; echo err >&2; exit 42")
    world.submit("2", "exec python3 -c 'x = bytearray(500 << 20); print(len(x))'", memory_gib=0.1)
    world.submit("3", "true", image="localhost/skep-not-there:1")
    world.do(*(Launch(job_id, on(0), 1) for job_id in "123"))
    told = world.wait(Exited, "1")
    assert (told.code, told.cause, told.was_stopped) == (42, "", False)
    assert world.log("1") == b"out\nerr\n"
    told = world.wait(Exited, "2")
    assert (told.code, told.cause) == (137, "oom")
    told = world.wait(LaunchFailed, "3")
    assert told.cause == "image"
    assert "skep-not-there" in told.reason


def test_a_save_of_eight_seconds_in_a_grace_of_twenty_and_the_log_of_an_earlier_attempt(world: RealWorld) -> None:
    """More than 10 MiB of log, before and while it is stopped; the pod is gone when it is read."""
    line = "0123456789" * 10
    save = "sleep 8; echo saved > $SKEP_CHECKPOINT_DIR/state; echo saved; exit 3"
    fill = f"yes {line} | head -c {11 * MIB}"
    world.submit("1", f"trap '{save}' TERM; {fill}; echo; echo ready; while :; do sleep 0.1; done", grace_s=20)
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    assert world.until(lambda: b"ready" in world.log())
    world.do(Stop("1", "preempted", launch=1))
    told = world.wait(Exited)
    assert (told.code, told.was_stopped) == (3, True)
    world.submit("1", "cat $SKEP_CHECKPOINT_DIR/state")
    world.do(Launch("1", on(0), 2))
    assert world.wait(Exited, count=2).code == 0
    assert world.log(launch=2) == b"saved\n"
    assert world.until(lambda: world.raw_pods() == [])
    log = world.log(launch=1)
    assert len(log) > 11 * MIB
    assert log.endswith(b"ready\nsaved\n")
    assert log.startswith(line.encode())


def test_exec_in_a_container_that_runs(world: RealWorld) -> None:
    world.submit("1", "echo here > /tmp/mark; sleep 1000")
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    said = list(
        world.engine.run_beside("1", "", ["bash", "-c", "cat /tmp/mark; echo $SKEP_JOB_ID; echo no >&2; exit 3"])
    )
    assert b"".join(content for channel, content in said if channel == 1) == b"here\n1\n"
    assert b"".join(content for channel, content in said if channel == 2) == b"no\n"
    assert said[-1] == (0, b"3")
    many = list(world.engine.run_beside("1", "", ["head", "-c", "300000", "/dev/zero"]))
    assert sum(len(content) for channel, content in many if channel == 1) == 300_000
    assert many[-1] == (0, b"0")
    assert list(world.engine.run_beside("1", "", ["no-such-program"]))[-1][0] == 0
    world.do(Stop("1", "stopped", launch=1))
    world.wait(Exited)
    with pytest.raises(NotFound, match="does not run now"):
        world.engine.run_beside("1", "", ["true"])


def test_training_in_a_pod_reports_saves_on_request_and_goes_on(world: RealWorld) -> None:
    """The demo's training, with `skep.train` from a volume; preempted, it ends with the loss of an undisturbed run."""
    role = TaskRole(
        argv=("python3", "/skep/checkpoint/training.py", "--steps", "80"), env={"PYTHONPATH": "/skep/checkpoint"}
    )
    world.requests["1"] = Request("job", {"main": role}, grace_s=20.0)
    volume = world.folder / "checkpoints" / "abc" / "1"
    shutil.copytree(SOURCE / "train", volume / "skep" / "train")
    shutil.copy(SOURCE / "cli" / "demo" / "training.py", volume)
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    assert world.until(lambda: any(each.values.get("step", 0) >= 5 for each in world.of(Progressed)))
    before = world.of(Progressed)[-1].values["checkpoint_step"] or 0
    world.do(Checkpoint("1", launch=1))
    assert world.until(lambda: (world.of(Progressed)[-1].values["checkpoint_step"] or 0) > before)
    world.do(Stop("1", "preempted", launch=1))
    assert world.wait(Exited).was_stopped
    assert world.engine.progress("1")["left"]
    world.do(Launch("1", on(0), 2))
    told = world.wait(Exited, count=2)
    assert (told.code, told.was_stopped) == (0, False)
    log = world.log(launch=2).decode()
    assert not log.startswith("starts at step 0")
    assert f"step 79 loss {undisturbed(80)[-1]!r}\n" in log
    assert world.engine.progress("1")["step"] == 80
    assert sum(len(each.lines) for each in world.engine.metrics("1")) >= 80
