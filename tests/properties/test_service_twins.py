"""las, queues, Gittins and e-las in continuous time, against naive twins that look at everybody at every moment.

Hypothesis draws small worlds in which much happens at one instant; `made` draws larger ones from a seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from released_twins import any_gpus, fullest_node
from service_twins import Elas, Gittins, Las, Queues, Rule, Twin
from service_twins import World as TwinWorld
from tests.support import World, cluster, job, trace
from worlds import examples

PLACES = {"any": any_gpus, "consolidate": fullest_node}


class Case(msgspec.Struct, frozen=True):
    """Jobs (submit, work, GPUs, epochs) on nodes × GPUs."""

    jobs: tuple[tuple[int, int, int, int], ...]
    nodes: int
    size: int
    place: str
    outages: tuple[tuple[int, float, float], ...] = ()
    restart: int = 0


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
    TwinWorld(twins, case.nodes, case.size, PLACES[case.place], rule, case.outages, case.restart).go()
    entries = [
        job(size, at=float(submit), work=float(work), epochs=epochs or None) for submit, work, size, epochs in case.jobs
    ]
    world = World(
        trace(*entries),
        cluster(f"{case.nodes}x{case.size}"),
        f"{policy},place={case.place}",
        restart_s=float(case.restart),
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


def gittins(case: Case, limits: tuple[int, ...]) -> None:
    compare(case, f"tiresias-g:queues={'+'.join(map(str, limits))}", Gittins(limits))


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
    "form": st.sampled_from(["sum", "product", "remaining"]),
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


@examples(60)
@given(case=QUEUES["case"], limits=QUEUES["limits"])
def test_gittins_is_what_present_indexes_of_all_jobs_give(case: Case, limits: tuple[int, ...]) -> None:
    gittins(case, limits)


TOGETHER = Case(((0, 400, 2, 0), (100, 200, 4, 0), (100, 200, 2, 0), (100, 400, 1, 0), (160, 200, 2, 0)), 1, 4, "any")
"""After crossings at odd moments two jobs end at one instant."""


@examples(60)
@example(TOGETHER, "sum", 0.037, 97)
@given(**ELAS)
def test_e_las_is_what_looking_at_all_pairs_gives(case: Case, form: str, lead: float, scale: int) -> None:
    elas(case, form, lead, scale)


# A thousand traces each ------------------------------------------------------------------------------------------

Chance = random.Random

SIZES = (1, 1, 1, 2, 2, 3, 4, 6, 8)
LIMITS = ((100,), (40, 200), (64, 128, 256), (500, 2000))


def made(seed: int, *, epochs: bool = False) -> tuple[Chance, Case]:
    """Loads from 0.7 to 4, gangs of up to 8 GPUs, several jobs at one instant, with and without a cost of restarts."""
    chance = Chance(seed)
    nodes, size = chance.choice([(1, 1), (1, 2), (1, 4), (2, 4), (4, 4), (2, 8), (3, 2)])
    count, load = chance.choice([5, 10, 20, 30]), chance.choice([0.7, 1.2, 2.0, 4.0])
    jobs, now = [], 0
    for _ in range(count):
        work = chance.choice([chance.randint(5, 100), chance.randint(50, 1000), chance.choice([50, 100, 200])])
        gpus = chance.choice([gpus for gpus in SIZES if gpus <= nodes * size])
        if chance.random() > 0.3:
            now += int(chance.expovariate(1) * work * gpus / (nodes * size) / load)
        jobs.append((now, work, gpus, chance.choice([0, 0, 4, 7]) if epochs else 0))
    place, restart = chance.choice(sorted(PLACES)), chance.choice([0, 0, 7, 30])
    return chance, Case(tuple(jobs), nodes, size, place, restart=restart)


def made_las(seed: int) -> None:
    chance, case = made(seed)
    las(case, chance.choice([10, 40, 100, 300]) + case.restart, chance.random() < 0.5)


def made_queues(seed: int) -> None:
    chance, case = made(seed)
    # Where restarts take longer than the first queue, promoted jobs would restart without end.
    queues(case, chance.choice(LIMITS), chance.random() < 0.7, 0 if case.restart else chance.choice([0, 0, 2]))


def made_gittins(seed: int) -> None:
    chance, case = made(seed)
    gittins(case, chance.choice(LIMITS))


def made_elas(form: str, seed: int) -> None:
    chance, case = made(seed, epochs=seed % 2 == 1)
    scale = 7200 if case.restart else chance.choice([97, 701, 7200])
    elas(case, form, chance.choice([0.02, 0.037, 0.1, 0.113]), scale)


MADE: dict[str, Callable[[int], None]] = {
    "las": made_las,
    "tiresias-l": made_queues,
    "tiresias-g": made_gittins,
    "e-las sum": lambda seed: made_elas("sum", seed),
    "e-las product": lambda seed: made_elas("product", seed),
    "e-las remaining": lambda seed: made_elas("remaining", seed),
}

FOUND = {
    "las": (16,),
    "e-las remaining": (1, 130),
    "tiresias-l": (237,),
    "e-las product": (27, 99, 156, 249),
    "e-las sum": (75, 509, 591),
}
"""Seeds that found something once."""


@pytest.mark.parametrize("policy", MADE)
def test_made_traces(policy: str) -> None:
    for seed in (*range(12), *FOUND.get(policy, ())):
        MADE[policy](seed)


TRACES = min(int(100 * float(os.environ.get("SKEP_EXAMPLES", "1"))), 1000)
"""SKEP_EXAMPLES=10 tries a thousand."""


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, TRACES, 50))
@pytest.mark.parametrize("policy", MADE)
def test_many_made_traces(policy: str, first: int) -> None:
    for seed in range(first, first + 50):
        MADE[policy](seed)
