"""Searches with real processes: trials pause, give their GPUs back and go on from their checkpoints; the best is
found; a budget ends the search; a server that is killed loses no trial."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.crash import Server, left_over

from skep.client import Client

WAIT_S = 120.0
RATES = [0.001, 0.4, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.005]
STEPS = 27
PLAIN = """
import sys, time
from pathlib import Path
from skep import train

rate, weights = float(sys.argv[1]), {"x": 5.0}
job = train.join(every_s=0, weights=weights)
for step in job.steps(%d):
    weights["x"] *= 1 - rate
    with Path(f"done-{rate}").open("a") as done:
        done.write(f"{step}\\n")
    job.report(loss=abs(weights["x"]), samples=1)
    time.sleep(0.1)
"""
TORCH = """
import sys, time
import torch
from skep import train

torch.manual_seed(1)
torch.set_num_threads(1)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[1]))
points = torch.randn(64, 8)
labels = points.sum(dim=1, keepdim=True)
job = train.join(model=model, optimizer=optimizer)
for step in job.steps(%d):
    loss = torch.nn.functional.mse_loss(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    job.report(loss=loss, samples=64)
    time.sleep(0.1)
"""


class World:
    def __init__(self, folder: Path, cluster: str) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        self.server = Server(folder / "data", cluster, "fifo")
        self.server.start()
        self.client = Client(self.server.url.removesuffix("/api/v1"))

    def search(self, script: str, steps: int = STEPS, rates: list[float] = RATES, **search: Any) -> None:
        (self.folder / "trial.py").write_text(script % steps)
        rule = {"metric": "loss", "rule": "asha", "first": 3, "parameters": {"rate": rates}, **search}
        command = f"{sys.executable} trial.py ${{rate}}"
        job = {"name": "tune", "command": command, "gpus": 1, "workdir": str(self.folder), "search": rule}
        assert len(self.client.submit(job)["jobs"]) == len(rates)

    def until(self, is_so: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        by_s = time.monotonic() + WAIT_S
        while not is_so(found := self.client.patiently(lambda: self.client.search("tune"))):
            assert time.monotonic() < by_s, found
            time.sleep(0.1)
        return found

    def ended(self) -> dict[str, Any]:
        return self.until(lambda found: found["state"] == "ended")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, "1x4")
    yield made
    if made.client.search("tune")["state"] == "running":
        made.client.stop_search("tune")
        made.ended()
    made.client.close()
    made.server.stop()
    assert left_over(made.server.data) == []


def is_paused(found: dict[str, Any]) -> bool:
    return any(trial["state"] == "paused" for trial in found["trials"])


def test_the_best_is_found_and_a_killed_server_loses_no_trial(world: World) -> None:
    world.search(PLAIN)
    world.until(is_paused)
    world.server.kill()
    world.server.start()
    found = world.ended()
    states = [trial["state"] for trial in found["trials"]]
    best = next(trial for trial in found["trials"] if trial["is_best"])
    assert (best["parameters"], best["state"]) == ({"rate": "0.4"}, "succeeded"), found
    assert states.count("succeeded") < len(RATES) / 2
    stopped = [trial["why"] for trial in found["trials"] if trial["state"] == "stopped"]
    assert len(stopped) + states.count("succeeded") == len(RATES)
    assert all("by its search: loss" in why for why in stopped)
    # Who went to the end did each step once, across pauses and the crash.
    steps = (world.folder / "done-0.4").read_text().split()
    assert steps == [str(step) for step in range(STEPS)]


def test_a_budget_ends_the_search_and_a_loss_that_is_not_a_number_its_trial(world: World) -> None:
    world.search(PLAIN, steps=10_000, rates=[0.1, 0.2, 1e300], rule="median", gpu_hours=12 / 3600)
    found = world.ended()
    assert found["reason"] == "the budget of the search is spent: 0.00333333 GPU-hours"
    assert found["spent_gpu_hours"] >= 12 / 3600
    assert found["trials"][2]["why"] == "stopped by its search: its loss is not a number"
    assert {trial["state"] for trial in found["trials"]} == {"stopped"}
    assert found["best"] is not None


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_trials_of_pytorch(world: World) -> None:
    world.search(TORCH, rates=[0.3, 0.0001, 0.001, 0.01, 100.0])
    found = world.ended()
    best = next(trial for trial in found["trials"] if trial["is_best"])
    assert (best["parameters"], best["state"]) == ({"rate": "0.3"}, "succeeded")
    assert [trial["state"] for trial in found["trials"]].count("stopped") >= 3
