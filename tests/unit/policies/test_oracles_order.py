"""Who is better than whom: optimal where the optimum is known, and in the published order on a Philly-like trace."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.clusters.read import read_cluster
from skep.experiments.simulate import Experiment
from skep.traces.synth import synthesize
from skep.verify.play import finishes, mean_jct_s, play, starts

RANKED = ("fifo", "yarn-cs", "tiresias-l", "tiresias-g", "srsf")

times = st.integers(1, 50)


@given(works=st.lists(times, min_size=1, max_size=5))
def test_sjf_is_the_best_of_all_orders_on_one_gpu(works: list[int]) -> None:
    found = mean_jct_s(play("sjf", "1x1", [(0, work, 1) for work in works]))
    best = min(sum(itertools.accumulate(order)) for order in itertools.permutations(works))
    assert found == pytest.approx(best / len(works))


@given(jobs=st.lists(st.tuples(st.integers(0, 60), times), min_size=1, max_size=12))
def test_no_policy_beats_srtf_on_one_gpu(jobs: list[tuple[int, int]]) -> None:
    rows = [(submit, work, 1) for submit, work in sorted(jobs)]
    best = mean_jct_s(play("srtf", "1x1", rows))
    for policy in ("fifo", "sjf", "las:lead=5", "las:queues=10+30", "tiresias-l:queues=10+30", "tiresias-g:queues=10"):
        assert best <= mean_jct_s(play(policy, "1x1", rows)) + 1e-9, policy


@given(jobs=st.lists(st.tuples(st.integers(0, 60), times), min_size=1, max_size=12))
def test_with_single_gpus_srsf_is_srtf(jobs: list[tuple[int, int]]) -> None:
    rows = [(submit, work, 1) for submit, work in sorted(jobs)]
    assert finishes(play("srsf", "1x2", rows)) == finishes(play("srtf", "1x2", rows))


@pytest.mark.parametrize("policy", ["tiresias-l", "tiresias-g", "las"])
@pytest.mark.parametrize(("gpus", "limit"), [(1, 100), (2, 100), (4, 100), (4, 1000), (3, 100)])
def test_a_job_sinks_after_its_limit_over_its_gpus(policy: str, gpus: int, limit: int) -> None:
    run = play(f"{policy}:queues={limit}", "1x4", [(0, 2000, gpus), (1, 10, 4)])
    assert starts(run)[1] == pytest.approx(limit / gpus)


@pytest.mark.parametrize(("gpus", "start_s"), [(1, 20.0), (2, 200.0)])
def test_easy_lets_pass_only_whom_the_head_does_not_miss(gpus: int, start_s: float) -> None:
    # The head needs 3 of 4 gpus at 100, when the first job ends: one is over.
    run = play("fifo:walk=easy", "1x4", [(0, 100, 2), (10, 100, 3), (20, 150, gpus)])
    assert starts(run)[1:] == (100.0, start_s)


@pytest.fixture(scope="module")
def mean_jct() -> dict[str, float]:
    """On Tiresias' testbed, 15 nodes of 4 gpus; other seeds than those of `skep verify`."""
    sums = dict.fromkeys(RANKED, 0.0)
    for seed in (11, 12, 13):
        experiment = Experiment(synthesize(jobs=3000, load=0.9, seed=seed, gpus=60), read_cluster("15x4"))
        for policy in RANKED:
            sums[policy] += mean_jct_s(experiment.run(policy)) / 3
    return sums


@pytest.mark.slow
def test_srsf_has_the_lowest_average_jct(mean_jct: dict[str, float]) -> None:
    assert min(mean_jct, key=mean_jct.__getitem__) == "srsf"


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["tiresias-l", "tiresias-g"])
def test_tiresias_is_close_to_srsf_and_far_below_the_others(policy: str, mean_jct: dict[str, float]) -> None:
    assert mean_jct[policy] < 1.5 * mean_jct["srsf"]
    assert mean_jct[policy] < 0.6 * mean_jct["yarn-cs"]
    assert mean_jct[policy] < 0.5 * mean_jct["fifo"]


@pytest.mark.slow
def test_both_kinds_of_tiresias_are_alike(mean_jct: dict[str, float]) -> None:
    assert mean_jct["tiresias-g"] == pytest.approx(mean_jct["tiresias-l"], rel=0.2)
