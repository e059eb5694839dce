"""Real PyTorch jobs under a real server: preempted, moved, resized and rescheduled, they lose no step.

Every test compares with a run that nobody interrupted: bit for bit where the number of ranks stayed the same.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.crash import Server, left_over
from interrupted import EXAMPLES, Training

from skep.client import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"),
]

WAIT_S = 300.0
DDP = ("--epochs", "10", "--samples", "1536")
ELASTIC = ("--steps", "120")
SLOWLY = ("--sleep", "0.04")

EVACUATE = '''
from skep.core.job import JobState
from skep.policies.order.simple import Fifo
from skep.policies.pipeline import Pipeline
from skep.policies.place.simple import Consolidate

class Evacuate(Pipeline):
    """Fifo, and whoever is on a node that is drained moves away."""

    def __init__(self):
        super().__init__(name="evacuate", order=Fifo(), place=Consolidate())

    def plan(self, view, memory, trigger):
        plan = super().plan(view, memory, trigger)
        for job in list(view.held_jobs.values()):
            nodes = [view.cluster.nodes[piece.node] for piece in job.held.slices]
            is_drained = any(node.name == "n0" and not node.is_up for node in nodes)  # n1 is lost later
            if job.state is JobState.RUNNING and job.held == job.bound and is_drained:
                found = self.place.find(view.cluster, plan, job, job.spec.shapes[0], view.now_s)
                if found is not None:
                    plan.move(job, found)
        return plan
'''


def until(is_so: Callable[[], Any], told: Callable[[], object]) -> None:
    by_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < by_s, told()
        time.sleep(0.05)


class Trained:
    """A training script as a job."""

    def __init__(self, world: World, script: str, *arguments: str, ranks: int, **fields: Any) -> None:
        self.world = world
        self.curve_file = world.folder / f"{script}.curve"
        line = [sys.executable, str(EXAMPLES / f"{script}.py"), *arguments, "--curve", str(self.curve_file)]
        role = {"count": ranks, "gpus": 1, "argv": line, "env": {"OMP_NUM_THREADS": "1"}}
        job = {"name": script, "tasks": {"worker": role}, "grace_s": 60, **fields}
        self.id = world.client.submit(job)["jobs"][0]["id"]

    def show(self) -> dict[str, Any]:
        return self.world.client.job(self.id)

    def log(self) -> str:
        return "".join(self.world.client.logs(self.id))

    def steps(self) -> int:
        path = Path(f"{self.curve_file}.0")
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def train(self, steps: int) -> None:
        """Until it has done so many more."""
        target = self.steps() + steps
        until(lambda: self.steps() >= target, lambda: (self.show(), self.log()))

    def finish(self) -> list[dict[str, Any]]:
        """Its attempts, the last of which succeeded."""
        ended = self.world.client.wait(self.id, WAIT_S)
        assert ended["state"] == "succeeded", (ended, self.log())
        assert left_over(self.world.server.data) == []
        history: list[dict[str, Any]] = self.show()["history"]
        assert [attempt["launch"] for attempt in history] == list(range(1, len(history) + 1))
        return history

    def lines(self) -> list[list[tuple[int, str]]]:
        """(step, loss) of every rank as they were computed, the losses to the last bit."""
        files = sorted(self.world.folder.glob(f"{self.curve_file.name}.*"))
        pairs = [[line.split() for line in path.read_text().splitlines()] for path in files]
        return [[(int(step), loss) for step, loss in each] for each in pairs]


class World:
    """A server and the folder its jobs write to."""

    def __init__(self, folder: Path, cluster: str, policy: str) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        self.server = Server(folder / "data", cluster, policy)
        self.server.start()
        self.client = Client(self.server.url.removesuffix("/api/v1"))

    def run(self, command: str, gpus: int, **fields: Any) -> str:
        role = {"count": gpus, "gpus": 1, "command": command}
        found = self.client.submit({"name": "other", "tasks": {"main": role}, **fields})
        return str(found["jobs"][0]["id"])

    def run_to_its_end(self, command: str, gpus: int, **fields: Any) -> None:
        job = self.run(command, gpus, **fields)
        assert self.client.wait(job, WAIT_S)["state"] == "succeeded", self.client.job(job)

    def close(self) -> None:
        for job in self.client.jobs():
            self.client.stop(job["id"])
            self.client.wait(job["id"], WAIT_S)
        self.client.close()
        self.server.stop()


MakeWorld = Callable[[str, str], World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[MakeWorld]:
    made: list[World] = []

    def make(cluster: str, policy: str) -> World:
        made.append(World(tmp_path, cluster, policy))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture(scope="module")
def whole_ddp(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[int, str]]]:
    """The losses of two ranks that nobody interrupts."""
    whole = Training(tmp_path_factory.mktemp("whole") / "ddp", EXAMPLES / "ddp.py", *DDP, ranks=2)
    whole.finish()
    return [list(curve.items()) for curve in whole.curve()]


@pytest.fixture(scope="module")
def whole_elastic(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of one rank that nobody interrupts."""
    whole = Training(tmp_path_factory.mktemp("whole") / "elastic", EXAMPLES / "elastic.py", *ELASTIC)
    whole.finish()
    return {step: float.fromhex(loss) for step, loss in whole.curve()[0].items()}


def test_preempted_by_tiresias(make_world: MakeWorld, whole_ddp: list[list[tuple[int, str]]]) -> None:
    world = make_world("1x2", "tiresias-l:queues=1")
    training = Trained(world, "ddp", *DDP, *SLOWLY, ranks=2)
    training.train(12)  # a gpu-second has long been used up
    world.run_to_its_end("true", gpus=1)
    history = training.finish()
    assert [attempt["outcome"] for attempt in history] == ["preempted", "succeeded"]
    assert [attempt["code"] for attempt in history] == [143, 0]
    assert training.lines() == whole_ddp, "a step was lost, computed twice, or came out differently"


def test_moved_off_a_drained_node_and_back_when_one_is_lost(
    make_world: MakeWorld, tmp_path: Path, whole_ddp: list[list[tuple[int, str]]]
) -> None:
    (tmp_path / "evacuate.py").write_text(EVACUATE, "utf-8")
    world = make_world("2x2", f"{tmp_path / 'evacuate.py'}:Evacuate")
    training = Trained(world, "ddp", *DDP, *SLOWLY, "--every", "0.2", ranks=2)
    training.train(12)
    world.client.set_node("n0", "drained")
    until(lambda: training.show()["nodes"] == ["n1"], training.show)
    computed = training.lines()
    training.train(12)
    assert [len(rank) for rank in computed] == [len(computed[0])] * 2, "the ranks left in different steps"
    done = len(computed[0]) + 12
    assert training.lines()[0][:done] == whole_ddp[0][:done], "a step was lost or computed twice"
    world.client.set_node("n0", "up")
    world.client.set_node("n1", "lost")
    history = training.finish()
    assert [attempt["outcome"] for attempt in history] == ["moved", "node-lost", "succeeded"]
    assert [attempt["nodes"] for attempt in history] == [["n0"], ["n1"], ["n0"]]
    for rank, losses in zip(training.lines(), whole_ddp, strict=True):
        assert dict(rank) == dict(losses)
        assert set(rank) == set(losses), "a step came out differently when it was computed again"
        assert len(rank) < 1.5 * len(losses), "it did not go on from the last checkpoint"


def test_resized_from_four_to_two_to_four_by_afs(make_world: MakeWorld, whole_elastic: dict[int, float]) -> None:
    world = make_world("1x4", "afs-l:restart=0.1")
    elastic = {"role": "worker", "min": 2, "max": 4}
    training = Trained(world, "elastic", *ELASTIC, *SLOWLY, ranks=4, elastic=elastic, expect_s=100)
    training.train(12)
    go = world.folder / "go"
    other = world.run(f"while [ ! -e {shlex.quote(str(go))} ]; do sleep 0.05; done", gpus=2, expect_s=1)
    until(lambda: world.client.job(other)["state"] == "running", training.show)
    assert training.show()["gpus"] == 2
    training.train(12)
    go.touch()
    history = training.finish()
    assert [attempt["outcome"] for attempt in history] == ["resized", "resized", "succeeded"]
    kinds = [event["text"] for event in world.client.job_events(training.id) if event["kind"] == "resized"]
    assert kinds == ["from 4 to 2 GPUs, on n0", "from 2 to 4 GPUs, on n0"]
    judge_resized(training, whole_elastic, [4, 2, 4])


def test_another_policy_every_few_steps(make_world: MakeWorld, whole_elastic: dict[int, float]) -> None:
    world = make_world("1x3", "fifo")
    elastic = {"role": "worker", "min": 2, "max": 3}
    training = Trained(world, "elastic", *ELASTIC, *SLOWLY, ranks=2, elastic=elastic, expect_s=100)
    training.train(12)
    world.client.use_policy("tiresias-l:queues=1")
    training.train(12)
    world.run_to_its_end("true", gpus=3)  # which fifo would let wait
    training.train(12)
    world.client.use_policy("afs-l:restart=0.1")
    until(lambda: training.show()["gpus"] == 3, training.show)
    training.train(12)
    world.client.use_policy("fifo")
    history = training.finish()
    assert [attempt["outcome"] for attempt in history] == ["preempted", "resized", "succeeded"]
    judge_resized(training, whole_elastic, [2, 3])


def test_the_job_files_of_the_examples_run_as_they_are(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # `python` of the files is the one with torch
    for name, value in {"EPOCHS": "2", "STEPS": "20", "OMP_NUM_THREADS": "1", "PATH": path}.items():
        monkeypatch.setenv(name, value)
    world = make_world("1x4", "fifo")
    lines = (EXAMPLES / "README.md").read_text("utf-8").splitlines()
    submit, wait = (
        lines.index("skep submit ddp.yaml elastic.yaml numpy.yaml"),
        lines.index("skep wait ddp elastic numpy"),
    )
    for line in (lines[submit], lines[wait]):
        words = [sys.executable, "-m", "skep.cli.main", *line.split()[1:]]
        environment = {**os.environ, "SKEP_URL": world.client.url}
        ran = subprocess.run(words, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=WAIT_S)
        assert ran.returncode == 0, (ran.stderr, ["".join(world.client.logs(job["id"])) for job in world.client.jobs()])
    assert "done after 32 steps" in "".join(world.client.logs("ddp"))
    assert "done after 20 steps with 2 ranks at the end" in "".join(world.client.logs("elastic"))
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {job["name"] for job in world.client.jobs(all=True)}


def judge_resized(training: Trained, whole: dict[int, float], sizes: list[int]) -> None:
    """Every step was done once, by these numbers of ranks in turn; a resize changes losses by rounding only."""
    curves = [dict(lines) for lines in training.lines()]
    assert [step for step, _ in training.lines()[0]] == list(whole), "a step was lost or computed twice"
    assert [len(curve) for curve in curves] == [len(lines) for lines in training.lines()]
    ranks = {step: sum(step in curve for curve in curves) for step in whole}
    assert [size for size, _ in itertools.groupby(ranks.values())] == sizes
    for step, loss in whole.items():
        parts = [float.fromhex(curve[step]) for curve in curves if step in curve]
        assert sum(parts) / len(parts) == pytest.approx(loss, rel=1e-4)
