"""A gang runs on fewer GPUs with all its ranks (replica splicing) and computes the same: real processes, PyTorch."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from local_world import World, until

from skep.core.actions import Launch, Move, Stop
from skep.core.cluster import Allocation, Slice
from skep.core.reports import Exited, Moved, Started
from skep.jobs.request import Request, TaskRole

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

RANKS = 4

# Gradients are added up tensor by tensor. DistributedDataParallel changes the order of its buckets after the first step
# of every start; with more than two ranks that changes the order of additions, and so the last bits.
SCRIPT = """
import sys, time
import torch
from skep import train

torch.distributed.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(64, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job = train.join(model=model, optimizer=optimizer)
for step in job.steps(40):
    points = torch.randn(64, 16, generator=torch.Generator().manual_seed(step * 4 + job.rank))
    labels = (points[:, :4].sum(dim=1) > points[:, 4:8].sum(dim=1)).long()
    loss = torch.nn.functional.cross_entropy(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
    optimizer.step()
    with open(f"{sys.argv[1]}.{job.rank}", "a") as file: file.write(f"{step} {loss.item().hex()}\\n")
    time.sleep(0.05)
"""


def training(curve: Path) -> Request:
    script = curve.with_suffix(".py")
    script.write_text(SCRIPT, "utf-8")
    role = TaskRole(count=RANKS, gpus=1, argv=(sys.executable, str(script), str(curve)), env={"OMP_NUM_THREADS": "1"})
    return Request("train", {"worker": role}, grace_s=60.0)


def spread(node: int) -> Allocation:
    """Four ranks on four GPUs."""
    return Allocation((Slice(node, 0b1111, tasks=RANKS),), 4)


def spliced(node: int) -> Allocation:
    """Four ranks on two GPUs, two on each."""
    return Allocation(tuple(Slice(node, 1 << gpu, tasks=2) for gpu in range(2)), 2)


def lines(curve: Path) -> int:
    path = curve.with_name(f"{curve.name}.0")
    return path.read_bytes().count(b"\n") if path.exists() else 0


def losses(curve: Path) -> list[bytes]:
    return [curve.with_name(f"{curve.name}.{rank}").read_bytes() for rank in range(RANKS)]


def test_a_gang_that_is_preempted_moved_and_spliced_computes_the_same(tmp_path: Path) -> None:
    whole, changed = tmp_path / "whole", tmp_path / "changed"
    with World(tmp_path / "data", {"1": training(whole), "2": training(changed)}) as world:

        def go_on(steps: int) -> None:
            target = lines(changed) + steps
            assert until(lambda: lines(changed) >= target or bool(world.of(Exited, "2")[1:])), world.told

        world.launch("1", 1, spread(0))
        world.wait(Exited, "1", timeout_s=300.0)
        world.launch("2", 1, spread(0))
        world.wait(Started, "2")
        go_on(5)
        world.do(Stop("2", "preempted", 1))
        world.wait(Exited, "2")
        world.do(Launch("2", spread(1), 2))
        go_on(5)
        world.do(Move("2", spliced(0), 3))
        world.wait(Moved, "2", timeout_s=180.0)
        go_on(5)
        assert [task.gpus for task in world.engine.tasks("2")] == [[0], [0], [1], [1]]
        world.do(Move("2", spread(1), 4))
        world.wait(Moved, "2", count=2, timeout_s=180.0)
        assert lines(changed) < lines(whole), "the job had ended before it was moved back"
        assert world.wait(Exited, "2", count=2, timeout_s=300.0).code == 0
    assert losses(changed) == losses(whole)
