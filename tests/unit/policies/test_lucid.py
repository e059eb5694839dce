"""Lucid: profiling, the order by predicted service, and pairs by packing score."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, role, trace

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.policies.adjust.pairs import JUMBO, MEDIUM, TINY, score
from skep.policies.place.partition import EXTRA
from skep.policies.registry import Setting, build_planner
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.play import Times, play, play_jobs, starts

KNOWN = "lucid:estimate=known"
APART = "lucid:estimate=known,nodes=0"
"""Without profiling."""


def ends(policy: str, where: str, *jobs: TraceJob, profile: str = "") -> dict[str, tuple[float | None, float | None]]:
    """(first start, end) of each job."""
    speed = read_native(profile, "profile").speed if profile else None
    run = play_jobs(policy, where, list(trace(*jobs).jobs), speed=speed)
    return {row.job_id: (row.start_s, row.finish_s) for row in run.rows}


@pytest.mark.parametrize(
    ("left", "expected"), [(1.0, TINY), (0.95, TINY), (0.949, MEDIUM), (0.85, MEDIUM), (0.849, JUMBO), (None, JUMBO)]
)
def test_the_score_of_a_workload(left: float | None, expected: int) -> None:
    assert score(left) == expected


def test_a_new_job_runs_on_the_partition_and_then_elsewhere() -> None:
    run = play(KNOWN, "4x4", [(0.0, 60.0, 4), (0.0, 200.0, 2)])
    assert [row.preemptions for row in run.rows] == [0, 0], "the end of profiling is no preemption"
    assert [row.finish_s for row in run.rows] == [60.0, 200.0], "debug jobs end there, the other goes on at once"


def test_the_fewest_gpus_are_profiled_first() -> None:
    # One node for profiling: the two jobs of 2 GPUs go first, then that of 4, although it came first.
    assert starts(play(f"{KNOWN},nodes=1", "2x4", [(0.0, 300.0, 4), (0.0, 300.0, 2), (0.0, 300.0, 2)])) == (
        80.0,
        0.0,
        0.0,
    )


def test_large_jobs_are_not_profiled_and_stay_out_of_the_partition() -> None:
    rows = [(0.0, 100.0, 8), (0.0, 100.0, 8)]
    found: Times = starts(play(f"{KNOWN},nodes=1", "2x8", rows))
    assert found == (0.0, 100.0), "the node of the partition is idle, and not for them"


def test_a_job_that_fits_only_with_the_partition_gets_it() -> None:
    assert starts(play(f"{KNOWN},nodes=1", "2x8", [(0.0, 100.0, 16)])) == (0.0,)


def test_parts_of_the_gpus_of_the_partition_are_not_for_other_jobs() -> None:
    pair = job(roles=(role(2, 1, gpu_milli=500, is_apart=True),), id="pair", work=300.0, at=1.0)
    part = job(1, id="part", gpu_milli=500, work=10.0, at=2.0)
    whole = [job(1, id=name, work=100.0) for name in "ab"]
    found = ends(f"{KNOWN},nodes=1,gpus=0", "1x4+2x1", *whole, pair, part)
    assert found["pair"][0] == 1.0, "two GPUs of one node: only the partition has them"
    assert found["part"][0] == 100.0, "its half of a GPU is outside, where the first two jobs end"


def test_what_a_profiled_job_leaves_is_free_at_once() -> None:
    new = job(1, id="new", work=300.0)
    large = job(8, id="large", gpu_type="v100", work=10.0, at=1.0)
    assert ends(f"{KNOWN},nodes=1", "1x8:v100+1x8:k80", new, large)["large"][0] == 80.0


def test_a_new_job_begins_elsewhere_while_the_partition_has_no_node_for_it() -> None:
    found = ends(f"{KNOWN},nodes=1", "1x4:k80+1x4:v100", job(1, id="a", gpu_type="v100", work=100.0))
    assert found["a"] == (0.0, 100.0)


def test_the_partition_grows_by_one_node_while_many_jobs_wait_for_it() -> None:
    rows = [(0.0, 300.0, 4)] * 12
    found = sorted(starts(play(f"{KNOWN},nodes=1", "4x4", rows)))
    assert found == [0.0, 0.0, 80.0, 80.0, 160.0, 160.0, 240.0, 240.0, 320.0, 320.0, 400.0, 400.0]
    rows = [(0.0, 300.0, 4)] * 11
    found = sorted(starts(play(f"{KNOWN},nodes=1", "4x4", rows)))
    assert found == [80.0 * number for number in range(11)], "ten wait when the first has begun"
    rows = [(0.0, 300.0, 4)] * 12
    assert sorted(starts(play(f"{KNOWN},nodes=1", "3x4", rows)))[1] == 80.0, "at most half of the nodes"


@pytest.mark.parametrize(
    ("large", "back_s"),
    [
        pytest.param(0, 240.0, id="the load is low: when the last job has gone"),
        pytest.param(40, 3600.0, id="the load is high: when no job has come for an hour"),
    ],
)
def test_the_partition_gives_the_node_back(large: int, back_s: float) -> None:
    # The twelve small jobs are 8 GPUs in ten minutes, the forty large ones 53 more: above 5 × 1 node × 4 GPUs.
    jobs = [job(4, work=60.0) for _ in range(12)] + [job(8, work=600.0) for _ in range(large)]
    course = World(trace(*jobs, job(4, at=5000.0)), cluster("2x4+2x8"), f"{KNOWN},nodes=1").begin()
    grown = {}
    while course.advance():
        grown[course.state.now_s] = EXTRA.get(course.state.memory) is not None
    assert grown[0.0]
    assert next(at_s for at_s, is_grown in grown.items() if not is_grown) == back_s


def test_a_fork_knows_the_partition() -> None:
    world = World(trace(*(job(4, work=300.0) for _ in range(16))), cluster("4x4"), f"{KNOWN},nodes=1")
    course = world.begin()
    course.advance()
    fork = course.fork(world.planner())
    assert fork.scheduler.planner.place.extra == course.scheduler.planner.place.extra == "n1"


@pytest.mark.parametrize(("quiet", "start_s"), [("0.3", 1.0), ("0.4", 100.0)])
def test_no_pairs_are_made_while_few_jobs_come(quiet: str, start_s: float) -> None:
    # Two jobs in the last hour are a third of a job in ten minutes.
    jobs = (job(1, id="a", model="tiny", work=100.0), job(1, id="b", model="tiny", work=100.0, at=1.0))
    assert ends(f"{APART},quiet={quiet}", "1x1", *jobs, profile=PAIRS)["b"][0] == start_s


def test_least_predicted_service_first_and_nobody_is_preempted() -> None:
    rows = [(0.0, 100.0, 4), (1.0, 50.0, 4), (2.0, 20.0, 4), (3.0, 30.0, 2)]
    run = play(f"{APART},share=false", "1x4", rows)
    assert starts(run) == (0.0, 150.0, 130.0, 100.0)
    assert run.summary.preemptions == 0


def test_without_sharing_the_walk_is_strict() -> None:
    rows = [(0.0, 100.0, 3), (1.0, 10.0, 4), (2.0, 500.0, 1)]
    assert starts(play(f"{APART},share=false", "1x4", rows)) == (0.0, 100.0, 110.0)
    assert starts(play(APART, "1x4", rows)) == (0.0, 502.0, 2.0)


PAIRS = """
models:
  tiny: {sharing: {tiny: 0.96, mid: 0.96}}
  mid: {sharing: {tiny: 0.9, mid: 0.9}}
  jumbo: {sharing: {jumbo: 0.5, tiny: 0.5, mid: 0.5}}
"""


@pytest.mark.parametrize(
    ("one", "other", "start_s"),
    [
        pytest.param("tiny", "tiny", 1.0, id="0 + 0"),
        pytest.param("mid", "mid", 1.0, id="1 + 1"),
        pytest.param("mid", "jumbo", 100.0, id="1 + 2 is above 2"),
        pytest.param("jumbo", "jumbo", 100.0, id="2 + 2 is above 2"),
        pytest.param("", "tiny", 1.0, id="one that was not measured counts 2"),
        pytest.param("", "mid", 100.0, id="one that was not measured, and 1"),
    ],
)
def test_who_shares(one: str, other: str, start_s: float) -> None:
    jobs = (job(1, id="a", model=one, work=100.0), job(1, id="b", model=other, work=100.0, at=1.0))
    assert ends(APART, "1x1", *jobs, profile=PAIRS)["b"][0] == start_s


def test_a_pair_runs_at_its_measured_speed_and_then_alone() -> None:
    jobs = (job(2, id="a", model="tiny", work=96.0), job(2, id="b", model="tiny", work=190.0))
    found = ends(APART, "1x2", *jobs, profile=PAIRS)
    assert found["a"] == (0.0, 100.0)
    assert found["b"] == (0.0, pytest.approx(194.0))


@pytest.mark.parametrize(
    ("second", "start_s"),
    [
        pytest.param({"gpus": 1, "work": 190.0}, 1.0, id="at most twice the predicted service"),
        pytest.param({"gpus": 1, "work": 210.0}, 100.0, id="more than twice"),
    ],
)
def test_the_new_job_is_at_most_twice_as_long(second: dict[str, float], start_s: float) -> None:
    new = job(int(second["gpus"]), id="b", model="tiny", work=second["work"], at=1.0)
    assert ends(APART, "1x1", job(1, id="a", model="tiny", work=100.0), new, profile=PAIRS)["b"][0] == start_s


def test_only_jobs_of_equal_size_share_and_at_most_two() -> None:
    tiny = {"model": "tiny", "work": 100.0}
    found = ends(APART, "1x2", job(2, id="a", **tiny), job(1, id="b", at=1.0, **tiny), profile=PAIRS)
    assert found["b"][0] == 100.0
    jobs = (job(1, id="a", **tiny), job(1, id="b", at=1.0, **tiny), job(1, id="c", at=2.0, **tiny))
    assert ends(APART, "1x1", *jobs, profile=PAIRS)["c"][0] == ends(APART, "1x1", *jobs, profile=PAIRS)["a"][1]
    large = (job(16, id="a", **tiny), job(16, id="b", at=1.0, **tiny))
    assert ends(APART, "2x8", *large, profile=PAIRS)["b"][0] == 100.0


def test_without_sharing_in_the_engine_the_walk_is_strict() -> None:
    planner = build_planner("lucid", Setting(cluster("1x1"), offers=frozenset({Need.HISTORY})))
    assert planner.walk == "strict"
    assert [adjuster.name for adjuster in planner.adjust] == ["profile"]


@pytest.mark.parametrize("knobs", ["nodes=1.5", "limit=0"])
def test_knobs_that_make_no_sense(knobs: str) -> None:
    with pytest.raises(InputError):
        build_planner(f"lucid:{knobs}", Setting(cluster("1x1")))
