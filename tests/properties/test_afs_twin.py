"""AFS-L against a naive twin: fractions, every GPU a walk over all jobs, nothing kept from one decision to the next."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support import World, cluster, job, trace
from worlds import examples

Row = tuple[int, int, int, int, int]
"""(submit, work, GPUs asked for, least, most)."""


class Twin:
    def __init__(self, seq: int, submit: int, work: int, asked: int, least: int, most: int) -> None:
        self.seq, self.submit, self.least, self.most = seq, submit, least, most
        self.left = Fraction(work * asked)
        """GPU-seconds: twice the GPUs, twice the speed."""
        self.held = self.due = 0
        self.finish: Fraction | None = None

    def ends(self, gpus: int) -> Fraction:
        return self.left / gpus


def tournament(jobs: list[Twin], gpus: int) -> list[Twin]:
    """What is due to each; those that get something, in the order in which they first do."""
    fed = []
    for one in jobs:
        one.due = 0
    for one in sorted(jobs, key=lambda one: (one.ends(one.least), one.seq)):
        if one.least <= gpus:
            one.due, gpus = one.least, gpus - one.least
            fed.append(one)
    while gpus:
        hungry = [one for one in sorted(fed, key=lambda one: one.seq) if one.due < one.most]
        if not hungry:
            break
        best = hungry[0]
        for other in hungry[1:]:
            first, second = (other, best) if other.ends(other.due) < best.ends(best.due) else (best, other)
            # The later one to end has the next GPU at once if it gains more than the first one to end would.
            best = second if Fraction(1, second.due + 1) > Fraction(1, first.due) else first
        best.due, gpus = best.due + 1, gpus - 1
    return fed


def take(givers: list[list[Twin]], missing: int) -> Twin | None:
    """The smallest that has enough alone, or else the largest; shrinking before stopping."""
    for some in givers:
        if some:
            enough = [one for one in some[::-1] if one.held - one.due >= missing]
            found = min(enough, key=surplus) if enough else max(some[::-1], key=surplus)
            some.remove(found)
            return found
    return None


def surplus(one: Twin) -> int:
    return one.held - one.due


def decide(jobs: list[Twin], gpus: int) -> None:
    fed = tournament(jobs, gpus)
    running = sorted((one for one in jobs if one.held), key=lambda one: (one.ends(one.least), one.seq))
    givers = [[one for one in running if 0 < one.due < one.held], [one for one in running if not one.due]]
    for one in [one for one in fed if not one.held]:
        while gpus - sum(other.held for other in jobs) < one.due:
            giver = take(givers, one.due - gpus + sum(other.held for other in jobs))
            assert giver is not None
            giver.held = giver.due
        one.held = one.due
    growing = [one for one in running if 0 < one.held < one.due]
    for one in sorted(growing, key=lambda one: (-Fraction(one.due - one.held, one.due), one.seq)):
        size = one.due
        while size > one.held:
            missing = size - one.held - (gpus - sum(other.held for other in jobs))
            if missing <= 0:
                one.held = size
                break
            giver = take(givers[:1], missing)
            if giver is not None:
                giver.held = giver.due
            else:
                size -= 1


def go(jobs: list[Twin], gpus: int) -> None:
    now = Fraction(-1)
    coming = [one for one in jobs if one.least <= gpus]
    there: list[Twin] = []
    while coming or there:
        moments = [Fraction(one.submit) for one in coming] + [now + one.left / one.held for one in there if one.held]
        passed, now = min(moments) - now, min(moments)
        for one in there:
            one.left -= passed * one.held
            if not one.left:
                one.finish, one.held = now, 0
        there = [one for one in there if one.finish is None] + [one for one in coming if one.submit == now]
        coming = [one for one in coming if one.submit > now]
        decide(there, gpus)


@st.composite
def rows(draw: st.DrawFn) -> Row:
    least = draw(st.sampled_from([1, 1, 1, 2, 3]))
    most = least + draw(st.sampled_from([0, 1, 3, 7]))
    asked = draw(st.integers(least, most))
    return (
        draw(st.sampled_from([0, 0, 0, 10, 25, 60])),
        draw(st.sampled_from([30, 60, 60, 100, 240])),
        asked,
        least,
        most,
    )


def compare(drawn: list[Row], nodes: str) -> None:
    drawn.sort(key=lambda row: row[0])
    where = cluster(nodes)
    twins = [Twin(seq, *row) for seq, row in enumerate(drawn)]
    go(twins, where.gpu_total)
    entries = [
        job(asked, at=float(submit), work=float(work), min_gpus=least, max_gpus=most)
        for submit, work, asked, least, most in drawn
    ]
    world = World(trace(*entries), where, "afs-l:restart=0,place=any")
    course = world.begin()
    course.finish()
    seen = [row.finish_s for row in course.rows()]
    assert seen == [None if one.finish is None else pytest.approx(float(one.finish), abs=1e-3) for one in twins]


GIVEN = {
    "drawn": st.lists(rows(), min_size=2, max_size=8),
    "nodes": st.sampled_from(["1x4", "2x2", "1x5", "2x4", "3x2"]),
}


@examples(60)
@given(**GIVEN)
def test_afs_is_what_the_rule_gives(drawn: list[Row], nodes: str) -> None:
    compare(drawn, nodes)


@pytest.mark.slow
@settings(max_examples=1000, suppress_health_check=list(HealthCheck), deadline=None)
@given(**GIVEN)
def test_afs_on_a_thousand_traces(drawn: list[Row], nodes: str) -> None:
    compare(drawn, nodes)
