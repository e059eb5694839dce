"""The end of a job in a VC where no job waits is taken in without a plan; the results are those of a plan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.support import job, trace

from skep.clusters import read_layout
from skep.core.cells.layout import Layout
from skep.core.view import Trigger
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment, Run
from skep.policies.order.queues import Queues
from skep.policies.order.shares import DominantShare
from skep.policies.order.simple import Fifo, Smallest
from skep.policies.pipeline import Pipeline


def layout_of(path: Path) -> Layout:
    path.write_text("nodes: [{count: 4, gpus: 4, name: n}]\nvcs: {a: 1 nodes, b: 1 nodes, c: 2 nodes}\n")
    return read_layout(str(path))


def simulated(layout: Layout, policy: str, seed: int) -> Run:
    chance = random.Random(seed)
    rows = [
        job(
            chance.choice((1, 1, 2, 4)),
            id=f"j{number}",
            at=number * 5.0,
            vc=chance.choice("abc"),
            work=chance.uniform(10.0, 70.0),
            priority=chance.choice((-1, 0, 0, 1)),
        )
        for number in range(120)
    ]
    return Experiment(trace(*rows), hardware_cluster(layout), layout=layout).run(policy)


@pytest.mark.parametrize("policy", ["fifo", "fifo:walk=skip", "srsf", "las", "tiresias-l", "drf", "fifo:patience=20"])
@pytest.mark.parametrize("seed", range(3))
def test_ends_without_a_plan_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, seed: int
) -> None:
    layout = layout_of(tmp_path / "c.yaml")
    found = simulated(layout, policy, seed)
    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "absorb", lambda *_: False)
        expected = simulated(layout, policy, seed)
    assert found.rows == expected.rows
    assert found.summary.events == expected.summary.events


def test_fifo_ends_are_taken_in_without_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absorb, taken = Pipeline.absorb, []

    def counted(pipeline: Pipeline, trigger: Trigger) -> bool:
        taken.append(absorb(pipeline, trigger))
        return taken[-1]

    monkeypatch.setattr(Pipeline, "absorb", counted)
    simulated(layout_of(tmp_path / "c.yaml"), "fifo", 1)
    assert sum(taken) > 20


def test_orders_that_keep_an_account_are_told_of_ends() -> None:
    assert Fifo.ignores_ends()
    assert Smallest.ignores_ends()
    assert not Queues.ignores_ends()
    assert not DominantShare.ignores_ends()
