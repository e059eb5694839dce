"""AntMan: who is guaranteed, who is opportunistic, and where each runs."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, node, trace
from tests.support.world import WorldCourse

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.share import Claim, Share
from skep.policies.registry import Setting, build_planner
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.play import play_jobs

PROFILE = "models: {half: {use: {sm: 0.5}}, most: {use: {sm: 0.75}}, all: {use: {sm: 1.0}}}"
TOLERANCE = 1.05


def claims(claim: Claim, name: str, gpus: int = 1, **more: object) -> TraceJob:
    return job(gpus, id=name, share=Share(claim=claim), **{"work": 1e6, **more})


def own(name: str, gpus: int = 1, **more: object) -> TraceJob:
    return claims("guaranteed", name, gpus, **more)


def guest(name: str, gpus: int = 1, **more: object) -> TraceJob:
    return claims("opportunistic", name, gpus, **more)


def auto(name: str, gpus: int = 1, **more: object) -> TraceJob:
    return claims("auto", name, gpus, **more)


def begun(*jobs: TraceJob, policy: str = "antman", gpus: int = 1, gpu_mem_gib: float | None = None) -> WorldCourse:
    course = World(trace(*jobs), cluster([node(gpus, gpu_mem_gib=gpu_mem_gib)]), policy).begin()
    course.advance()
    return course


def terms(course: WorldCourse) -> dict[str, tuple[int, int]]:
    """(mask of GPUs, guaranteed milli) of each job that runs."""
    found = ((each.id, each.allocation) for each in course.state.jobs.values())
    return {
        name: (sum(piece.gpus for piece in held.slices), held.terms.milli) for name, held in found if held is not None
    }


def ends(policy: str, where: str, *jobs: TraceJob) -> dict[str, float]:
    """When each job ends, where models use what `PROFILE` says."""
    run = play_jobs(policy, where, list(trace(*jobs).jobs), speed=read_native(PROFILE, "profile").speed)
    return {row.job_id: row.finish_s for row in run.rows if row.finish_s is not None}


def test_a_guaranteed_job_takes_a_gpu_that_hosts_only_opportunistic_work() -> None:
    course = begun(guest("g"), own("a", at=10.0))
    assert terms(course) == {"g": (1, 0)}
    course.advance()
    assert terms(course) == {"g": (1, 0), "a": (1, 1000)}
    rates = {each.id: each.rate for each in course.state.jobs.values()}
    # Nobody knows what they use: both want all of the GPU, and the guaranteed one is slowed by the tolerance at most.
    assert rates == {"a": pytest.approx(1 / TOLERANCE), "g": pytest.approx(1 - 1 / TOLERANCE)}


def test_a_guaranteed_job_prefers_free_gpus() -> None:
    course = begun(guest("g"), own("a"), own("b"), gpus=2)
    assert terms(course) == {"a": (1, 1000), "b": (2, 1000)}, "guaranteed jobs first; of unknown use, so no guest"
    course = begun(guest("g"), own("a", at=1.0), own("b", at=2.0), gpus=2)
    course.advance()
    assert terms(course)["a"] == (2, 1000)
    course.advance()
    assert terms(course)["b"] == (1, 1000)


def test_a_gang_takes_free_gpus_and_those_of_guests() -> None:
    course = begun(guest("g"), own("a", 4, at=1.0), gpus=4)
    course.advance()
    assert terms(course) == {"g": (1, 0), "a": (15, 1000)}


def test_jobs_of_negative_priority_are_opportunistic() -> None:
    course = begun(job(1, id="low", priority=-1, work=1e6), job(1, id="a", at=1.0, work=1e6))
    course.advance()
    assert terms(course) == {"low": (1, 0), "a": (1, 1000)}


def test_a_guest_is_stopped_where_a_guaranteed_job_has_no_memory_beside_it() -> None:
    jobs = (guest("g", gpu_mem_gib=10), own("a", at=1.0, gpu_mem_gib=10))
    course = begun(*jobs, gpu_mem_gib=16)
    assert terms(course) == {"g": (1, 0)}
    course.advance()
    assert terms(course) == {"a": (1, 1000)}


def test_only_the_guests_are_stopped_without_which_it_fits() -> None:
    """Which ones these are is tried without some of them, so the placement meets guests that are not in the books."""
    guests = [guest(f"g{number}", gpu_mem_gib=memory) for number, memory in enumerate((2.0, 12.0, 12.0, 2.0))]
    course = begun(*guests, own("a", 4, at=10.0, gpu_mem_gib=8.0), gpus=4, gpu_mem_gib=16.0)
    course.advance()
    assert terms(course) == {"g0": (1, 0), "g3": (8, 0), "a": (15, 1000)}


def test_an_opportunistic_job_stops_no_guaranteed_one_of_a_lower_priority() -> None:
    """The guaranteed job could stop it in turn, and the decision would never end."""
    course = begun(own("a"), guest("g", 2, at=10.0, priority=20), gpus=2)
    course.advance()
    assert terms(course) == {"a": (1, 1000)}


def test_an_auto_job_never_stops_a_guest() -> None:
    course = begun(guest("g", gpu_mem_gib=10), auto("a", at=1.0, gpu_mem_gib=10), gpu_mem_gib=16)
    course.advance()
    assert terms(course) == {"g": (1, 0)}


def test_opportunistic_jobs_run_beside_guaranteed_ones_without_slowing_them() -> None:
    # a uses half of the GPU: the guest gets all that it needs of the other half.
    found = ends("antman", "1x1", own("a", model="half", work=100.0), guest("g", model="half", at=1.0, work=50.0))
    assert found == {"a": 100.0, "g": 51.0}


def test_a_guest_gets_what_the_guaranteed_job_leaves() -> None:
    # Together 1.25: a is slowed to 1/1.05, so it uses 0.75/1.05 of the GPU and the guest has the rest.
    left = (1 - 0.75 / TOLERANCE) / 0.5
    found = ends("antman", "1x1", own("a", model="most", work=1000.0), guest("g", model="half", work=100.0))
    assert found["g"] == pytest.approx(100.0 / left)
    assert found["a"] == pytest.approx(found["g"] + 1000.0 - found["g"] / TOLERANCE)


def test_a_busy_gpu_takes_no_guest_and_the_least_used_goes_first() -> None:
    jobs = (own("a", model="all", work=100.0), own("b", model="most", work=100.0), own("c", model="half", work=100.0))
    found = ends("antman", "1x3", *jobs, guest("g", model="half", at=1.0, work=10.0))
    assert found["g"] == 11.0, "beside c, where nothing is missing"
    assert ends("antman", "1x1", jobs[0], guest("g", model="half", at=1.0, work=10.0))["g"] == 110.0


@pytest.mark.parametrize(("per_gpu", "running"), [(0, 1), (1, 2), (2, 3)])
def test_how_many_guests_a_gpu_takes(per_gpu: int, running: int) -> None:
    jobs = (own("a", work=1e6), guest("g", at=1.0), guest("h", at=2.0), guest("i", at=3.0))
    course = begun(*jobs, policy=f"antman:per_gpu={per_gpu},busy=9")
    for _ in range(3):
        course.advance()
    assert len(terms(course)) == running


def test_an_opportunistic_gang_begins_on_idle_gpus() -> None:
    course = begun(own("a"), guest("g", 2), policy="antman:busy=9", gpus=2)
    assert terms(course) == {"a": (1, 1000)}
    assert terms(begun(own("a"), guest("g", 2), gpus=3)) == {"a": (1, 1000), "g": (6, 0)}


def test_quota_is_of_guaranteed_jobs_and_guests_need_none() -> None:
    jobs = (own("a", vc="x", work=50.0), own("b", vc="x"), guest("g", vc="x"), own("c", vc="y"))
    course = begun(*jobs, policy="antman:quotas=equal", gpus=4)
    assert set(terms(course)) == {"a", "b", "g", "c"}
    late = own("d", vc="x", at=1.0)
    course = begun(*jobs, late, policy="antman:quotas=equal", gpus=4)
    course.advance()
    assert "d" not in terms(course), "x has its two GPUs, and one is idle but for a guest"
    planner = course.scheduler.planner
    assert planner.explain(course.state, course.state.memory, course.state.jobs["d"]).cause == "quota"
    while "d" not in terms(course):
        assert course.advance()
    assert course.state.now_s == 50.0


def test_an_auto_job_is_opportunistic_until_there_is_quota() -> None:
    jobs = (own("a", vc="x", work=50.0), auto("b", vc="x", at=1.0), own("c", vc="y"))
    course = begun(*jobs, policy="antman:quotas=equal", gpus=2)
    course.advance()
    assert "b" not in terms(course), "no quota, and both GPUs may be fully used"
    course = begun(*jobs[:2], job(1, id="z", vc="y", at=60.0), policy="antman:quotas=equal", gpus=2)
    course.advance()
    assert terms(course)["b"] == (2, 0)
    while course.state.now_s < 50:
        course.advance()
    assert terms(course)["b"] == (2, 1000), "upgraded in its place, without a restart"
    assert course.state.jobs["b"].launches == 1


def test_an_auto_job_is_not_upgraded_beside_a_guaranteed_one() -> None:
    jobs = (own("a", vc="x", work=50.0), auto("b", vc="x", at=1.0), own("c", vc="y", at=2.0))
    course = begun(*jobs, policy="antman:quotas=equal", gpus=2)
    while course.state.now_s < 50:
        course.advance()
    assert terms(course) == {"b": (2, 0), "c": (2, 1000)}


def test_a_job_above_the_quota_of_its_vc_is_refused() -> None:
    course = begun(own("a", 3, vc="x"), own("b", vc="y"), policy="antman:quotas=equal", gpus=4)
    assert course.state.jobs["a"].state == "unrunnable"


def test_without_sharing_every_job_has_its_gpus_to_itself() -> None:
    setting = Setting(cluster("1x1"), offers=frozenset({Need.CHECKPOINT}))
    planner = build_planner("antman", setting)
    assert planner.place.needs_free
    assert not planner.adjust


def test_half_a_job_on_a_gpu_is_not_possible() -> None:
    with pytest.raises(InputError, match=r"per_gpu=1\.5"):
        build_planner("antman:per_gpu=1.5", Setting(cluster("1x1")))
