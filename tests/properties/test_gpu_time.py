"""Held, busy and useful GPU time mean the same under every policy: each is a part of the one before, and no GPU is held
more than once, whatever jobs share, however fast they run."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_sharing_policies import sharing_jobs
from tests.support import cluster, node, trace
from worlds import examples, jobs, policy_specs

from skep.core.events import Event
from skep.core.share import Share
from skep.core.state import State
from skep.core.step import Scheduler
from skep.experiments.simulate import Experiment, Options
from skep.metrics.gpu_time import busy_gpu_s, held_gpu_s, useful_gpu_s
from skep.policies.registry import policies
from skep.profiles.native import read_native
from skep.service.loop import run
from skep.traces.trace import TraceJob

PROFILE = read_native(
    """
reference: v100
default:
  types: {v100: 1.0, a100: 2.5, k80: 0.3}
  scaling: {2: 1.3, 4: 0.9, 8: 1.5}
  locality: {node: 1.0, cluster: 0.6}
models:
  vgg16: {use: {sm: 0.3, bandwidth: 0.2}}
  resnet50: {use: {sm: 0.2, bandwidth: 0.1}, sharing: {vgg16: 0.99, resnet50: 0.98}}
""",
    "test",
)
every_policy = pytest.mark.parametrize("name", sorted(policies()))


@st.composite
def any_jobs(draw: st.DrawFn) -> TraceJob:
    """Jobs of every kind: shared, elastic, with a tier, measured with a part of a GPU."""
    entry = draw(sharing_jobs() | jobs())
    spec, kind = entry.spec, draw(st.sampled_from(["", "", "elastic", "tier", "measured"]))
    if kind == "elastic":
        spec = msgspec.structs.replace(spec, min_gpus=1, max_gpus=draw(st.sampled_from([2, 8])))
    elif kind == "tier":
        spec = msgspec.structs.replace(spec, share=Share(tier=draw(st.sampled_from(["standard", "premium"]))))
    elif kind == "measured":
        share = spec.share or Share()
        spec = msgspec.structs.replace(spec, share=msgspec.structs.replace(share, measured_milli=300))
    return msgspec.structs.replace(entry, spec=spec)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    sizes = draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4))
    types = ["", "v100", "a100", "k80"]
    nodes = [node(size, draw(st.sampled_from(types)), gpu_mem_gib=16) for size in sizes]
    round_s = draw(st.sampled_from([0.0, 0.0, 60.0]))
    options = Options(
        restart_s=draw(st.sampled_from([0.0, 7.0, 30.0])),
        checkpoint_s=draw(st.sampled_from([0.0, 25.0])),
        round_s=round_s,
        finish_at_boundary=bool(round_s) and draw(st.booleans()),
        failures=draw(st.sampled_from(["", "", "mtbf=900,repair=60"])),
    )
    speed = PROFILE.speed if draw(st.booleans()) else None
    drawn = draw(st.lists(any_jobs(), min_size=1, max_size=12))
    return Experiment(trace(*drawn), cluster(nodes), options, speed)


@every_policy
@examples(25)
@given(data=st.data())
def test_useful_is_a_part_of_busy_is_a_part_of_held_is_a_part_of_what_exists(name: str, data: st.DataObject) -> None:
    experiment = data.draw(experiments())
    summary = experiment.run(data.draw(policy_specs(name))).summary
    if summary.utilization is not None:
        assert summary.fre is not None
        assert summary.busy is not None
        assert 0 <= summary.fre <= summary.busy <= summary.utilization <= 1


@every_policy
@examples(12)
@given(data=st.data())
def test_no_gpu_is_held_more_than_once_at_any_time(name: str, data: st.DataObject) -> None:
    """Between any two moments, not only in the end. What is idle and what is held are not more than there is."""
    experiment = data.draw(experiments())
    policy = data.draw(policy_specs(name))
    state = State(experiment.cluster.blank(), experiment.measured())
    planner = experiment.planner(policy)
    engine = experiment.engine(state.cluster, policy, planner.round_s)
    before_s, before, free = -math.inf, [0.0] * 3, 0

    def observe(at_s: float, events: list[Event]) -> None:
        nonlocal before_s, before, free
        held = held_gpu_s(state.jobs.values(), at_s)
        busy = busy_gpu_s(state.jobs.values(), at_s, held)
        useful = useful_gpu_s(state.jobs.values(), at_s, busy)
        sums = [sum(held), sum(busy), sum(useful)]
        if before_s > -math.inf:
            offered = (state.cluster.gpu_total - free) * (at_s - before_s)
            assert sums[0] - before[0] <= offered + 1e-6
            assert sums[1] - before[1] <= sums[0] - before[0] + 1e-6
            assert sums[2] <= sums[1] + 1e-6
        for each, more in zip(held, busy, strict=True):
            assert more <= each
        before_s, before = at_s, sums
        free = sum(pool.free for pool in state.cluster.pools)

    run(Scheduler(state, planner), engine, observe)
