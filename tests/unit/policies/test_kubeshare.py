"""KubeShare: which GPU a part goes to, by room and by labels."""

from __future__ import annotations

import pytest
from tests.support import World, cluster, job, node, role, trace
from tests.support.invariants import check

from skep.core.cluster import Cluster, Slice
from skep.core.model import Role
from skep.core.share import Share
from skep.policies.place.labelled import Labelled, go_together
from skep.policies.place.simple import Consolidate
from skep.traces.trace import TraceJob

Seats = dict[str, list[tuple[int, int]]]


def part(name: str, milli: int, **labels: object) -> TraceJob:
    return job(1, id=name, work=1e6, gpu_milli=milli, share=Share(**labels))


def seats(on: str, *jobs: TraceJob) -> Seats:
    """(node, mask) of each slice of the jobs that run, submitted in this order."""
    course = World(trace(*jobs), cluster(on), "kubeshare").begin()
    course.advance()
    check(course.state)
    placed = ((each.id, each.allocation) for each in course.state.jobs.values())
    return {name: [(piece.node, piece.gpus) for piece in found.slices] for name, found in placed if found is not None}


def pieces(on: Cluster, *jobs: TraceJob) -> dict[str, Slice]:
    """The slices of the jobs that run, submitted in this order."""
    course = World(trace(*jobs), on, "kubeshare").begin()
    course.advance()
    check(course.state)
    placed = ((each.id, each.allocation) for each in course.state.jobs.values())
    return {name: found.slices[0] for name, found in placed if found is not None}


def test_the_request_is_guaranteed_and_the_limit_is_the_most() -> None:
    course = World(trace(part("a", 300, limit_milli=600)), cluster("1x1"), "kubeshare").begin()
    course.advance()
    allocation = course.state.jobs["a"].allocation
    assert allocation is not None
    (piece,) = allocation.slices
    assert (piece.mode, piece.milli, piece.limit, allocation.gpus) == ("token", 300, 600, 0.3)


def test_a_part_goes_to_the_fullest_gpu_with_room() -> None:
    found = seats("1x3", part("a", 600), part("b", 500), part("c", 400), part("d", 500))
    assert found == {"a": [(0, 1)], "b": [(0, 2)], "c": [(0, 1)], "d": [(0, 2)]}


def test_requests_never_exceed_a_gpu() -> None:
    assert set(seats("1x1", part("a", 600), part("b", 500), part("c", 400))) == {"a", "c"}


def test_affinity_brings_jobs_to_one_gpu_and_nowhere_else() -> None:
    own = {"affinity": "x"}
    found = seats("1x3", part("a", 300, **own), part("b", 800), part("c", 300, **own), part("d", 500, **own))
    # d waits because the GPU of its label is full, although another GPU is idle.
    assert found == {"a": [(0, 1)], "b": [(0, 2)], "c": [(0, 1)]}


def test_a_job_that_is_too_large_for_the_gpus_of_its_label_waits_until_they_are_free() -> None:
    """It is not taken for one that can never run: alone on the cluster it could begin GPUs of its own."""
    small = job(1, id="small", work=60.0, gpu_milli=500, share=Share(affinity="x"))
    large = job(2, id="large", at=1.0, work=60.0, gpu_milli=800, share=Share(affinity="x"))
    course = World(trace(small, large), cluster("1x2"), "kubeshare").run()
    assert {each.id: str(each.state) for each in course.state.jobs.values()} == {
        "small": "succeeded",
        "large": "succeeded",
    }


def test_the_label_of_a_job_on_gpus_of_its_own_brings_no_others_there() -> None:
    alone = job(1, id="alone", work=1e6, share=Share(affinity="x"))
    assert seats("1x2", alone, part("a", 300, affinity="x")) == {"alone": [(0, 1)], "a": [(0, 2)]}


def test_gpus_with_affinity_are_kept_for_their_own() -> None:
    found = seats("1x3", part("a", 500, affinity="x"), part("b", 500), part("c", 400))
    assert found == {"a": [(0, 1)], "b": [(0, 1)], "c": [(0, 2)]}
    roomy = seats("1x2", part("a", 300, affinity="x"), part("b", 200, affinity="y"), part("c", 100))
    assert roomy["c"] == [(0, 2)], "worst fit among labelled GPUs"


def test_anti_affinity_keeps_jobs_apart() -> None:
    found = seats("1x2", part("a", 100, anti_affinity="x"), part("b", 100, anti_affinity="x"), part("c", 100))
    assert found == {"a": [(0, 1)], "b": [(0, 2)], "c": [(0, 1)]}
    assert set(seats("1x1", part("a", 100, anti_affinity="x"), part("b", 100, anti_affinity="x"))) == {"a"}


def test_exclusion_lets_only_equal_labels_meet() -> None:
    jobs = [part("a", 100, exclusion="x"), part("b", 100), part("c", 100, exclusion="x"), part("d", 100, exclusion="y")]
    assert seats("1x3", *jobs) == {"a": [(0, 1)], "b": [(0, 2)], "c": [(0, 1)], "d": [(0, 4)]}


def test_whole_gpus_go_where_they_always_go() -> None:
    found = seats("1x3", part("a", 500), job(2, id="b", work=10.0))
    assert found == {"a": [(0, 1)], "b": [(0, 6)]}


def test_tasks_that_stay_apart_take_parts_of_different_gpus() -> None:
    assert seats("1x2", job(2, id="a", work=10.0, gpu_milli=500, share=Share())) == {"a": [(0, 1), (0, 2)]}


@pytest.mark.parametrize("labels", [("", "x"), ("x", "y"), ("x", "")])
def test_exclusion_is_mutual(labels: tuple[str, str]) -> None:
    one, other = (Share(exclusion=label) for label in labels)
    assert not go_together(one, other)
    assert go_together(one, one)


def rate_of(*roles: Role, on: str) -> float:
    share = Share(measured_milli=roles[0].gpu_milli)
    course = World(trace(job(id="a", roles=roles, work=1e6, share=share)), cluster(on), "kubeshare").begin()
    course.advance()
    return course.state.jobs["a"].rate


def test_a_gang_is_as_fast_as_its_slowest_task() -> None:
    assert rate_of(role(1, 1, gpu_milli=400), on="1x1") == pytest.approx(2.5)
    assert rate_of(role(1, 1, gpu_milli=400), role(1, 1), on="1x2") == pytest.approx(1.0)


def test_tasks_of_one_job_on_one_gpu_have_it_together() -> None:
    assert rate_of(role(2, 1, gpu_milli=400), on="1x1") == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("mode", "limit", "rate"),
    [("token", 1000, 0.6 / 0.3), ("pack", 1000, 1.0), ("mps", 300, 1.0), ("instant", 1000, 1.0)],
)
def test_a_part_is_shared_in_the_mode_that_the_job_names(mode: str, limit: int, rate: float) -> None:
    jobs = [part(name, milli, mode=mode, measured_milli=milli) for name, milli in (("a", 300), ("b", 400), ("c", 400))]
    found = pieces(cluster("1x1"), *jobs)
    assert {name: (each.mode, each.milli, each.limit) for name, each in found.items()} == {
        "a": (mode, 300, limit),
        "b": (mode, 400, max(limit, 400)),
    }
    course = World(trace(*jobs), cluster("1x1"), "kubeshare").begin()
    course.advance()
    assert course.state.jobs["a"].rate == pytest.approx(0.5 / 0.3 if mode == "token" else rate)


def test_parts_in_different_modes_are_on_different_gpus() -> None:
    named = [part(mode, 142, mode=mode) for mode in ("token", "mps", "mig", "pack", "exclusive")]
    found = pieces(cluster("1x5"), *named)
    assert len({each.gpus for each in found.values()}) == 5
    assert found["exclusive"].mode == ""


def instance(name: str, milli: int, memory_gib: float = 0.0) -> TraceJob:
    return job(1, id=name, work=1e6, gpu_milli=milli, gpu_mem_gib=memory_gib, share=Share("mig"))


@pytest.mark.parametrize(
    ("parts", "slots"),
    [
        ([142] * 8, [6, 5, 4, 3, 2, 1, 0, None]),
        ([285, 285, 285, 285, 142], [4, 2, 0, None, 6]),
        ([428, 428, 142], [4, 0, None]),
        ([142, 571, 428, 285], [6, 0, None, 4]),
        ([571, 428], [0, 4]),
        ([142, 1000], [6, None]),
        ([1000, 142], [0, None]),
    ],
    ids=str,
)
def test_mig_instances_begin_at_slots_of_their_profile(parts: list[int], slots: list[int | None]) -> None:
    found = pieces(cluster("1x1"), *(instance(str(at), milli) for at, milli in enumerate(parts)))
    assert [found[str(at)].slot if str(at) in found else None for at in range(len(parts))] == slots


def test_an_instance_has_the_memory_of_its_profile() -> None:
    there = cluster([node(2, gpu_mem_gib=40)])
    assert set(pieces(there, instance("a", 142, 5), instance("b", 142, 6), instance("c", 285, 6))) == {"a", "c"}


def test_each_task_has_one_instance() -> None:
    roles = (role(3, 1, gpu_milli=428),)
    course = World(trace(job(id="a", roles=roles, share=Share("mig"))), cluster("1x2"), "kubeshare").begin()
    course.advance()
    held = course.state.jobs["a"].allocation
    assert held is not None
    assert [(each.gpus, each.slot) for each in held.slices] == [(1, 4), (1, 0), (2, 4)]


def test_mode_instant_is_only_simulated() -> None:
    named = part("a", 300, mode="instant").spec
    assert Labelled(Consolidate()).shares(named)
    assert not Labelled(Consolidate(), is_simulated=False).shares(named)
