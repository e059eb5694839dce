"""What a planner is told of speeds: the profile's figures by shape, GPU type and neighbours, and no others."""

from __future__ import annotations

import pytest
from tests.support import cluster

from skep.core.cluster import Cluster
from skep.core.knowledge import UNKNOWN
from skep.core.model import JobSpec, gpu_shape
from skep.core.snapshot import dump, fork, load
from skep.core.state import State
from skep.experiments.known import Known
from skep.profiles.native import read_native

PROFILE = """
reference: v100
default: {types: {v100: 1.0, k80: 0.25}, scaling: {2: 0.9}}
models:
  bert: {sharing: {gnn: 0.5, default: 0.8}}
"""
BERT, GNN = (JobSpec(model, (gpu_shape(1),), model=model) for model in ("bert", "gnn"))


def known(text: str = PROFILE) -> Known:
    return Known(read_native(text, "profile.yaml").speed, cluster("2x4:v100+1x4:k80"))


@pytest.mark.parametrize(
    ("gpus", "gpu_type", "neighbours", "rate"),
    [
        (1, "v100", (), 1.0),
        (1, "k80", (), 0.25),
        (2, "v100", (), 1.8),
        (1, "v100", (GNN,), 0.5),
        (1, "k80", (BERT,), 0.2),
        (1, "v100", (GNN, BERT), 0.4),
        (1, "a100", (), None),
        (16, "v100", (), None),
    ],
)
def test_rates_are_those_of_the_profile_where_the_job_could_be(
    gpus: int, gpu_type: str, neighbours: tuple[JobSpec, ...], rate: float | None
) -> None:
    assert known().rate(BERT, gpu_shape(gpus), gpu_type, neighbours) == (rate and pytest.approx(rate))


def test_what_nobody_measured_is_not_known() -> None:
    alone = known("default: {scaling: {2: 0.9}}")
    assert alone.rate(BERT, gpu_shape(1), "v100") == 1.0
    assert alone.rate(BERT, gpu_shape(1), "v100", (GNN,)) is None
    assert UNKNOWN.rate(BERT, gpu_shape(1), "v100") is None


def test_a_state_shares_what_it_knows_with_its_forks() -> None:
    here = known()
    state = State(Cluster([]), here)
    states = [state.blank(), fork(state), load(dump(state), Cluster([]), here)]
    assert all(each.knowledge.measured is here for each in states)
    assert load(dump(state), Cluster([])).knowledge.measured is UNKNOWN
