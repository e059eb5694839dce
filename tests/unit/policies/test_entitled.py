"""The modes of `drf`: HUG, NC-DRF and AMF against formulas, linear programs and small examples."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import job

from skep.clusters.spec import parse_spec
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import InputError
from skep.policies.allocate.entitle import Claim, SiteClaim, even_level, fair_totals
from skep.policies.registry import Setting, build_planner
from skep.verify.play import play_jobs

FEW = settings(max_examples=60, deadline=None)


def running(policy: str, cluster: Cluster | str, *jobs: object) -> dict[str, int]:
    """Jobs that start at once, by user; all run for ever."""
    rows = play_jobs(policy, cluster, list(jobs)).rows
    found: dict[str, int] = {}
    for row in rows:
        found[row.job_id[0]] = found.get(row.job_id[0], 0) + (row.start_s == 0)
    return found


def many(user: str, count: int, gpus: int = 0, **more: object) -> list[object]:
    return [job(gpus, id=f"{user}{n}", user=user, work=math.inf, **more) for n in range(count)]


# HUG and NC-DRF -----------------------------------------------------------------------------------------------------


def test_the_level_of_hug_is_that_of_the_paper() -> None:
    endless = [Claim((1.0, 0.5), 99.0), Claim((0.5, 1.0), 99.0), Claim((1.0, 1.0), 99.0)]
    assert even_level(endless) == pytest.approx(1 / 2.5)


@FEW
@given(
    st.lists(
        st.tuples(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.floats(0.01, 3), st.floats(0.5, 3)),
        min_size=1,
        max_size=5,
    )
)
def test_the_level_is_the_highest_at_which_all_fit(drawn: list[tuple[list[float], float, float]]) -> None:
    claims = [Claim((1.0, *vector[1:]), total, weight) for vector, total, weight in drawn]

    def used(level: float) -> float:
        return max(sum(min(each.weight * level, each.total) * each.vector[k] for each in claims) for k in range(3))

    level = even_level(claims)
    if level == math.inf:
        assert used(1e9) <= 1 + 1e-6
    else:
        assert used(level) == pytest.approx(1.0, abs=1e-6)
        assert used(level * 1.001) >= 1.0 - 1e-9


TWO = Cluster([NodeSpec("n0", 0, cpu_milli=10_000, memory_mib=10 * 1024)], "10 CPUs, 10 GiB")


def test_hug_caps_what_drf_gives_out() -> None:
    """A's jobs need CPUs twice as much as memory, B's memory alone. The level is 2/3, A's cap."""
    jobs = (*many("A", 20, cpu=1, memory_gib=0.5), *many("B", 20, cpu=0.001, memory_gib=1))
    assert running("drf:mode=hug", TWO, *jobs) == {"A": 6, "B": 6}
    assert running("drf", TWO, *jobs)["A"] > 6


def test_hug_leaves_nothing_idle_for_those_who_want_less() -> None:
    jobs = (*many("A", 20, cpu=1), *many("B", 2, cpu=1))
    assert running("drf:mode=hug", TWO, *jobs) == {"A": 8, "B": 2}


def test_nc_drf_counts_jobs_where_hug_counts_amounts() -> None:
    """B has one large job with memory and many small ones without. By counts it hardly needs memory, so A gets it."""
    jobs = (*many("A", 20, memory_gib=1), *many("B", 1, memory_gib=4, cpu=0.1))
    more = [job(0, id=f"B{n}", user="B", work=math.inf, cpu=0.1) for n in range(1, 40)]
    assert running("drf:mode=nc-drf", TWO, *jobs, *more) == {"A": 9, "B": 39}
    assert running("drf:mode=hug", TWO, *jobs, *more) == {"A": 6, "B": 40}


def test_a_gang_larger_than_the_level_still_runs() -> None:
    jobs = (*many("A", 1, 8), *many("B", 1, 8))
    assert running("drf:mode=hug", "1x8", *jobs) == {"A": 1, "B": 0}


# AMF ----------------------------------------------------------------------------------------------------------------


def test_who_can_use_any_type_makes_room_for_those_who_cannot() -> None:
    jobs = (*many("B", 8, 1), *many("A", 8, 1, gpu_type="v100"))
    assert running("drf:mode=amf", "1x4:v100+1x4:p100", *jobs) == {"A": 4, "B": 4}
    assert running("drf", "1x4:v100+1x4:p100", *jobs)["A"] < 4


def test_what_nobody_is_entitled_to_is_used_too() -> None:
    jobs = (*many("A", 8, 1, gpu_type="v100"), *many("B", 8, 3))
    assert running("drf:mode=amf", "1x4:v100+1x4:p100", *jobs) == {"A": 4, "B": 1}


@st.composite
def site_claims(draw: st.DrawFn) -> tuple[list[SiteClaim], list[float]]:
    sites = draw(st.integers(1, 3))
    kinds = st.frozensets(st.integers(0, sites - 1), min_size=1)
    work = st.dictionaries(kinds, st.integers(1, 12).map(float), min_size=1, max_size=3)
    claims = st.builds(SiteClaim, work, st.sampled_from([1.0, 2.0]))
    return draw(st.lists(claims, min_size=1, max_size=4)), draw(
        st.lists(st.integers(1, 10).map(float), min_size=sites, max_size=sites)
    )


@FEW
@given(site_claims())
def test_totals_are_lexicographically_max_min_fair(drawn: tuple[list[SiteClaim], list[float]]) -> None:
    claims, there = drawn
    totals, given = fair_totals(claims, there)
    for site, amount in enumerate(there):
        assert sum(mine[site] for mine in given) <= amount + 1e-6
    for claim, total, mine in zip(claims, totals, given, strict=True):
        assert sum(mine) == pytest.approx(total, abs=1e-6)
        assert total <= claim.total + 1e-6
    expected = lexicographic(claims, there)
    found = sorted(total / claim.weight for total, claim in zip(totals, claims, strict=True))
    assert found == pytest.approx(expected, abs=1e-5)


def lexicographic(claims: list[SiteClaim], there: list[float]) -> list[float]:
    """By linear programs: raise the least of all that can still rise, and fix those that cannot."""
    from scipy.optimize import linprog

    keys = [(u, kind, s) for u, each in enumerate(claims) for kind in each.work for s in sorted(kind)]
    fixed: dict[int, float] = {}

    def best(of: list[float], least: dict[int, float]) -> float:
        """Maximise `of` times (flows, level), with these totals at least and the others at the level."""
        rows, most = [], []
        for s, amount in enumerate(there):
            rows.append([float(key[2] == s) for key in keys] + [0.0])
            most.append(amount)
        for u, each in enumerate(claims):
            for kind, amount in each.work.items():
                rows.append([float(key[0] == u and key[1] == kind) for key in keys] + [0.0])
                most.append(amount)
            mine = [-float(key[0] == u) for key in keys]
            rows.append([*mine, 0.0 if u in least else each.weight])
            most.append(-least.get(u, 0.0))
        found = linprog([-each for each in of], rows, most, bounds=(0, None), method="highs")
        assert found.success
        return float(-found.fun)

    while len(fixed) < len(claims):
        level = best([0.0] * len(keys) + [1.0], fixed)
        floor = {u: fixed.get(u, level * claims[u].weight) - 1e-9 for u in range(len(claims))}
        for u, each in enumerate(claims):
            if (
                u not in fixed
                and best([float(key[0] == u) for key in keys] + [0.0], floor) <= level * each.weight + 1e-6
            ):
                fixed[u] = level * each.weight
    return sorted(fixed[u] / claims[u].weight for u in fixed)


def test_the_knobs_of_the_pipeline_belong_to_the_mode_drf() -> None:
    with pytest.raises(InputError, match="walk=strict is not possible with mode=amf"):
        build_planner("drf:mode=amf,walk=strict", Setting(Cluster(parse_spec("1x1"), "t")))
