"""las, queues and e-las in continuous time, against naive twins that look at everybody at every moment."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from released_twins import any_gpus, fullest_node
from service_twins import Elas, Las, Queues, Rule, Twin
from service_twins import World as TwinWorld
from worlds import examples

from skep.testing import World, cluster, job, trace

PLACES = {"any": any_gpus, "consolidate": fullest_node}


class Case(msgspec.Struct, frozen=True):
    """Jobs (submit, work, GPUs, epochs) on nodes × GPUs."""

    jobs: tuple[tuple[int, int, int, int], ...]
    nodes: int
    size: int
    place: str
    outages: tuple[tuple[int, float, float], ...] = ()


@st.composite
def cases(draw: st.DrawFn, *, epochs: bool = False, fails: bool = True) -> Case:
    """Few different numbers, so that much happens at one instant."""
    jobs = st.tuples(
        st.sampled_from([0, 0, 0, 40, 100, 100, 160, 333]),
        st.sampled_from([20, 50, 100, 100, 200, 400]),
        st.sampled_from([1, 1, 2, 2, 4, 8]),
        st.sampled_from([0, 0, 4]) if epochs else st.just(0),
    )
    nodes, size = draw(st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (3, 2)]))
    outages = ()
    if fails and draw(st.integers(0, 2)) == 0:
        at = draw(st.sampled_from([60.0, 100.0]))
        lost = draw(st.lists(st.integers(0, nodes - 1), unique=True, max_size=2))
        outages = tuple((node, at, at + draw(st.sampled_from([10.0, 90.0]))) for node in lost)
    drawn = sorted(draw(st.lists(jobs, min_size=2, max_size=9)), key=lambda one: one[0])
    return Case(tuple(drawn), nodes, size, draw(st.sampled_from(sorted(PLACES))), outages)


def compare(case: Case, policy: str, rule: Rule) -> None:
    twins = [Twin(seq, *one) for seq, one in enumerate(case.jobs)]
    TwinWorld(twins, case.nodes, case.size, PLACES[case.place], rule, case.outages).go()
    entries = [
        job(size, at=float(submit), work=float(work), epochs=epochs or None) for submit, work, size, epochs in case.jobs
    ]
    world = World(
        trace(*entries),
        cluster(f"{case.nodes}x{case.size}"),
        f"{policy},place={case.place}",
        checkpoint_s=0.0,
        outages=case.outages,
    )
    seen = [(row.start_s, row.finish_s, row.preemptions) for row in world.run().rows()]
    expected = [(near(one.start), near(one.finish), one.preemptions) for one in twins]
    assert seen == expected


def near(value: object) -> object:
    return None if value is None else pytest.approx(float(value), abs=2e-3)  # type: ignore[arg-type]


def las(case: Case, lead: int, by_size: bool) -> None:
    service = "gpu-seconds" if by_size else "seconds"
    compare(case, f"las:lead={lead},service={service}", Las(lead, by_size=by_size))


def queues(case: Case, limits: tuple[int, ...], by_size: bool, promote: int) -> None:
    text = "+".join(map(str, limits))
    rule = Queues(limits, by_size=by_size, promote=promote)
    if by_size:
        compare(case, f"tiresias-l:queues={text},promote={promote}", rule)
    else:
        compare(case, f"las:queues={text},service=seconds", Queues(limits, by_size=False, promote=0))


def elas(case: Case, form: str, lead: float, scale: int) -> None:
    compare(case, f"e-las:form={form},lead={lead},scale={scale}", Elas(form, lead, scale=scale))


LAS = {"case": cases(), "lead": st.sampled_from([10, 40, 100]), "by_size": st.booleans()}
QUEUES = {
    "case": cases(),
    "limits": st.sampled_from([(100,), (40, 200), (64, 128, 256)]),
    "by_size": st.booleans(),
    "promote": st.sampled_from([0, 0, 2]),
}
ELAS = {
    "case": cases(epochs=True),
    "form": st.sampled_from(["sum", "product"]),
    "lead": st.sampled_from([0.037, 0.113]),
    "scale": st.sampled_from([97, 701]),
}


@examples(60)
@given(**LAS)
def test_las_is_what_looking_at_all_pairs_gives(case: Case, lead: int, by_size: bool) -> None:
    las(case, lead, by_size)


@examples(60)
@given(**QUEUES)
def test_queues_are_what_looking_at_all_jobs_gives(
    case: Case, limits: tuple[int, ...], by_size: bool, promote: int
) -> None:
    queues(case, limits, by_size, promote)


TOGETHER = Case(((0, 400, 2, 0), (100, 200, 4, 0), (100, 200, 2, 0), (100, 400, 1, 0), (160, 200, 2, 0)), 1, 4, "any")
"""After crossings at odd moments two jobs end at one instant."""


@examples(60)
@example(TOGETHER, "sum", 0.037, 97)
@given(**ELAS)
def test_e_las_is_what_looking_at_all_pairs_gives(case: Case, form: str, lead: float, scale: int) -> None:
    elas(case, form, lead, scale)


MANY = settings(max_examples=1000, suppress_health_check=list(HealthCheck), deadline=None)


@pytest.mark.slow
@MANY
@given(**LAS)
def test_las_on_a_thousand_traces(case: Case, lead: int, by_size: bool) -> None:
    las(case, lead, by_size)


@pytest.mark.slow
@MANY
@given(**QUEUES)
def test_queues_on_a_thousand_traces(case: Case, limits: tuple[int, ...], by_size: bool, promote: int) -> None:
    queues(case, limits, by_size, promote)


@pytest.mark.slow
@MANY
@given(**ELAS)
def test_e_las_on_a_thousand_traces(case: Case, form: str, lead: float, scale: int) -> None:
    elas(case, form, lead, scale)
