"""What an event costs does not grow with the number of VCs: counted in calls, as times scatter."""

from __future__ import annotations

import cProfile
import pstats
import random
from pathlib import Path

import pytest
from tests.support import job, trace

from skep.clusters import read_layout
from skep.experiments.sharing import hardware_cluster
from skep.experiments.simulate import Experiment

NODES, JOBS = 64, 400


def calls_for_each_event(path: Path, vcs: int, policy: str) -> float:
    """Of the same jobs, spread at random over so many VCs, on nodes that are three quarters full."""
    shares = ", ".join(f"v{number}: {NODES // vcs} nodes" for number in range(vcs))
    path.write_text(f"nodes: [{{count: {NODES}, gpus: 8, name: n}}]\nvcs: {{{shares}}}\n")
    layout = read_layout(str(path))
    chance = random.Random(1)
    rows = [
        job(chance.choice((1, 1, 2, 4)), id=f"j{number}", at=number * 2.5, vc=f"v{chance.randrange(vcs)}", work=600)
        for number in range(JOBS)
    ]
    experiment = Experiment(trace(*rows), hardware_cluster(layout), layout=layout)
    profile = cProfile.Profile()
    run = profile.runcall(experiment.run, policy)
    calls: int = pstats.Stats(profile).total_calls  # type: ignore[attr-defined]  # not in typeshed
    return calls / run.summary.events


@pytest.mark.parametrize("policy", ["fifo:walk=skip,borrow=never", "fifo:walk=skip", "fifo"])
def test_an_event_costs_as_much_with_many_vcs_as_with_few(tmp_path: Path, policy: str) -> None:
    few, many = (calls_for_each_event(tmp_path / f"{vcs}.yaml", vcs, policy) for vcs in (8, NODES))
    assert many < 1.6 * few
