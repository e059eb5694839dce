"""The Gavel policies against a naive twin (`gavel_twin.py`) on random traces, and equal jobs of one GPU on GPUs of one
type, for which shares are known without a solver."""

from __future__ import annotations

import functools

import gavel_twin as naive
import numpy as np
import pytest
from gavel_twin import COSTS, ROUND_S, VC_WEIGHTS, TwinJob
from hypothesis import given
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import examples

from skep.clusters.read import read_cluster
from skep.core.model import JobSpec, gpu_shape
from skep.core.weights import Weights
from skep.experiments.simulate import Experiment, Options
from skep.profiles.native import Factors, NativeProfile
from skep.traces.trace import Trace, TraceJob

SHARES = {
    "gavel-las": naive.las,
    "gavel-ftf": naive.ftf,
    "gavel-makespan": naive.makespan,
    "gavel-fifo": naive.fifo,
    "gavel-sjf": naive.sjf,
    "gavel-throughput": naive.throughput,
    f"gavel-cost:costs={COSTS[0]}+{COSTS[1]}": naive.cost,
    f"gavel-cost-slo:costs={COSTS[0]}+{COSTS[1]}": naive.cost_slo,
    "gavel-hierarchical": naive.hierarchical,
    "gavel-hierarchical:inside=fifo": functools.partial(naive.hierarchical, inside="fifo"),
}


@st.composite
def twins(draw: st.DrawFn) -> list[TwinJob]:
    """Speeds and works of which no two are alike, so that few programs have several optima."""
    found = []
    for at_s in sorted(draw(st.lists(st.integers(0, 1500), min_size=1, max_size=7))):
        seq, work_s, slow = len(found), draw(st.integers(60, 900)), draw(st.integers(100, 1300))
        found.append(
            TwinJob(
                seq,
                float(at_s),
                work_s + seq / 7,
                (1.0, slow / 1000 + seq / 1e4 + 1e-5),
                gpus=draw(st.sampled_from([1, 1, 2])),
                weight=draw(st.sampled_from([1.0, 1.0, 2.0])),
                vc=draw(st.sampled_from("ab")),
                deadline_s=draw(st.sampled_from([0.0, 800.0, 1500.0])),
            )
        )
    return found


def simulated(policy: str, jobs: list[TwinJob], widths: tuple[int, int]) -> list[float]:
    models = {
        f"m{one.seq}": Factors(dict(zip(("v100", "k80"), one.speeds, strict=True)), {1: 1.0}, {}, {}) for one in jobs
    }
    profile = NativeProfile("v100", Factors({}, {1: 1.0}, {}, {}), models)
    entries = [
        TraceJob(
            one.submit_s,
            one.work_s,
            JobSpec(
                f"j{one.seq}",
                (gpu_shape(one.gpus),),
                model=f"m{one.seq}",
                vc=one.vc,
                weight=one.weight,
                expect_s=one.work_s,
                deadline_s=one.deadline_s or None,
            ),
        )
        for one in jobs
    ]
    options = Options(restart_s=0.0, weights=Weights(vcs=VC_WEIGHTS))
    where = read_cluster(f"1x{widths[0]}:v100+1x{widths[1]}:k80")
    spec = f"{policy}{',' if ':' in policy else ':'}round_s={ROUND_S:g}"
    run = Experiment(Trace("twin", "table", entries), where, options, profile.speed).run(spec)
    return [row.finish_s or 0.0 for row in run.rows]


@pytest.mark.parametrize("policy", SHARES)
@examples(12)
@given(jobs=twins(), widths=st.sampled_from([(2, 2), (2, 3), (3, 2)]))
def test_jobs_end_as_those_of_the_twin(policy: str, jobs: list[TwinJob], widths: tuple[int, int]) -> None:
    clear_s = naive.go(jobs, widths, SHARES[policy])
    for one, finish_s in zip(jobs, simulated(policy, jobs, widths), strict=True):
        if one.finish_s is None:
            assert finish_s > clear_s
        else:
            assert finish_s == pytest.approx(one.finish_s, abs=0.01)


def equal_shares(jobs: list[TwinJob], widths: tuple[int, int], now_s: float) -> naive.Array:
    return np.array([round(min(widths[0] / len(jobs), 1.0), 6), 0.0] * len(jobs))


ROWS = st.tuples(st.integers(0, 1500), st.integers(1, 900))


@pytest.mark.parametrize("policy", ["gavel-las", "gavel-throughput", "gavel-cost", "gavel-hierarchical"])
@examples(30)
@given(rows=st.lists(ROWS, min_size=1, max_size=7), gpus=st.integers(1, 3))
def test_rounds_give_equal_jobs_equal_times(policy: str, rows: list[tuple[int, int]], gpus: int) -> None:
    rows.sort()
    jobs = [job(1, work=float(work_s), at=float(at_s), id=f"j{number}") for number, (at_s, work_s) in enumerate(rows)]
    world = World(trace(*jobs), cluster(f"1x{gpus}"), f"{policy}:round_s={ROUND_S:g}", round_s=ROUND_S)
    twins = [TwinJob(number, float(at_s), float(work_s), (1.0, 0.0)) for number, (at_s, work_s) in enumerate(rows)]
    naive.go(twins, (gpus, 0), equal_shares, jitter_s=0.0)
    found = {row.job_id: row.finish_s for row in world.run().rows()}
    assert [found[f"j{one.seq}"] for one in twins] == pytest.approx([one.finish_s for one in twins])
