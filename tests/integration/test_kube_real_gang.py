"""A gang of two pods with a real kubelet: gloo between them, a preemption, and the loss of an undisturbed run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.support.kube_node import real_node
from tests.support.kube_plane import ControlPlane
from tests.support.real_world import TORCH_IMAGE, RealWorld, add_torch_image

from skep.core.actions import Launch, Stop
from skep.core.cluster import Allocation, Slice
from skep.core.reports import Exited, Progressed, Started
from skep.jobs.request import Request, TaskRole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
SOURCE = Path(__file__).parents[2] / "src" / "skep"
SCRIPT = """
import time, torch
from skep import train

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
job = train.join(model=model, optimizer=optimizer, every_s=1)
for step in job.steps(40):
    draw = torch.Generator().manual_seed(1000 * job.rank + step)
    x = torch.randn(16, 4, generator=draw)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    job.report(loss=loss.item())
    print(f"step {step} of rank {job.rank} in {job.world_size}: {loss.item().hex()}", flush=True)
    time.sleep(0.2)
"""
BOTH = Allocation((Slice(0, gpus=0b1), Slice(0, gpus=0b10)), 2)


def losses(log: bytes) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"step (\d+) of rank 0 in 2: (\S+)", log.decode())}


def test_a_gang_trains_is_preempted_and_ends_like_an_undisturbed_one(plane: ControlPlane, tmp_path: Path) -> None:
    with real_node(plane, tmp_path / "node") as node:
        packages = add_torch_image(node)
        (tmp_path / "world").mkdir()
        world = RealWorld(node, tmp_path / "world")
        try:
            world.adopt()
            for job_id in "12":
                volume = world.folder / "checkpoints" / "abc" / job_id
                shutil.copytree(SOURCE / "train", volume / "skep" / "train")
                (volume / "ddp.py").write_text(SCRIPT)
                role = TaskRole(
                    count=2,
                    gpus=1,
                    argv=("python3", "/skep/checkpoint/ddp.py"),
                    image=TORCH_IMAGE,
                    env={"PYTHONPATH": f"/skep/checkpoint:{packages}"},
                )
                world.requests[job_id] = Request("job", {"main": role}, grace_s=30.0)
            world.do(Launch("1", BOTH, 1))
            world.wait(Started)
            assert world.until(lambda: any(each.values.get("step", 0) >= 5 for each in world.of(Progressed))), (
                world.log()
            )
            world.do(Stop("1", "preempted", launch=1))
            assert world.wait(Exited).was_stopped
            world.do(Launch("1", BOTH, 2))
            told = world.wait(Exited, count=2)
            assert told.code == 0, told.log_tail
            world.do(Launch("2", BOTH, 1))
            assert world.wait(Exited, "2").code == 0
            before, after, whole = losses(world.log(launch=1)), losses(world.log(launch=2)), losses(world.log("2"))
            assert 5 <= len(before) < 40
            assert not before.keys() & after.keys(), "a step was computed twice"
            assert before | after == whole
            assert len(whole) == 40
        finally:
            world.close()
