"""The rule by which members of a share group take turns, played with a clock of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.engines.local.turns import WINDOW_S, Member, choose

QUANTUM_S = 0.1
SHORT_S = 0.01


def play(members: list[Member], seconds: float, *, begin_s: float = 0.0) -> list[float]:
    """The part of the time that each had, as the keeper would give it; without the first window."""
    now_s = begin_s
    skipped = {member.key: 0.0 for member in members}
    is_skipped = False
    while now_s < begin_s + seconds:
        if not is_skipped and now_s >= begin_s + WINDOW_S:
            skipped, is_skipped = {member.key: member.turn_s(now_s) for member in members}, True
        chosen = choose(members, now_s)
        for member in members:
            if member not in chosen:
                member.end(now_s)
        for member in chosen:
            member.begin(now_s)
        now_s += QUANTUM_S if chosen else SHORT_S
    measured_s = now_s - begin_s - WINDOW_S
    return [(member.turn_s(now_s) - skipped[member.key]) / measured_s for member in members]


def test_equal_members_alternate() -> None:
    members = [Member("a", ["g"]), Member("b", ["g"])]
    assert play(members, 60.0) == pytest.approx([0.5, 0.5], abs=0.005)


def test_weights_divide_the_time() -> None:
    members = [Member("a", ["g"], weight=3), Member("b", ["g"], weight=1)]
    assert play(members, 60.0) == pytest.approx([0.75, 0.25], abs=0.01)


def kubeshare(*names: str) -> list[Member]:
    terms = {"a": (0.3, 0.6), "b": (0.4, 0.6), "c": (0.3, 0.5)}
    return [Member(name, ["g"], request=terms[name][0], limit=terms[name][1]) for name in names]


def test_the_three_kubeshare_jobs_get_their_requests() -> None:
    assert play(kubeshare("a", "b", "c"), 60.0) == pytest.approx([0.3, 0.4, 0.3], abs=0.015)


@pytest.mark.parametrize(("name", "limit"), [("a", 0.6), ("b", 0.6), ("c", 0.5)])
def test_alone_a_kubeshare_job_gets_its_limit(name: str, limit: float) -> None:
    assert play(kubeshare(name), 60.0) == pytest.approx([limit], abs=0.015)


def test_a_newcomer_does_not_make_up_for_the_time_before_it_came() -> None:
    old = Member("old", ["g"])
    play([old], 60.0)
    new = Member("new", ["g"], now_s=60.1)
    old.since_s = 60.1
    play([old, new], 5.0, begin_s=60.1)
    assert new.turn_s(65.1) == pytest.approx(2.5, abs=0.15)


def test_a_gang_has_its_turn_on_all_its_gpus_or_none() -> None:
    gang, left, right = Member("gang", ["g0", "g1"]), Member("left", ["g0"]), Member("right", ["g1"])
    now_s = 0.0
    for _ in range(100):
        chosen = choose([gang, left, right], now_s)
        assert chosen in ([gang], [left, right], [right, left])
        for member in (gang, left, right):
            if member in chosen:
                member.begin(now_s)
            else:
                member.end(now_s)
        now_s += QUANTUM_S
    assert gang.turn_s(now_s) == pytest.approx(5.0, abs=0.2)


terms = st.tuples(st.floats(0.0, 0.4), st.floats(0.1, 1.0), st.floats(0.5, 4.0))


@given(st.lists(terms, min_size=1, max_size=4), st.lists(st.sampled_from([0.02, 0.1, 0.5]), min_size=50, max_size=150))
def test_one_holder_none_above_its_limit_nobody_starves(asked: list[tuple[float, float, float]], steps: list) -> None:
    members = [
        Member(str(number), ["g"], request=min(request, limit), limit=limit, weight=weight)
        for number, (request, limit, weight) in enumerate(asked)
    ]
    now_s = 0.0
    for step_s in [*steps, *[0.1] * 400]:
        chosen = choose(members, now_s)
        assert len(chosen) <= 1
        assert all(member.limit >= 0.9995 or member.used(now_s) < member.limit for member in chosen)
        for member in members:
            if member in chosen:
                member.begin(now_s)
            else:
                member.end(now_s)
        now_s += step_s
    assert all(member.turn_s(now_s) > 0 for member in members)
