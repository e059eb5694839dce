"""Preemption: who has to leave, cells reserved meanwhile, cancelled preemptions, guarantees lost lazily."""

from __future__ import annotations

import pytest
from small_cells import cells, fail, request, reserve, start, where
from tests.support.cells_invariants import check_cells

from skep.scenarios.gangs import Gang, GangState, GangUse
from skep.scenarios.scheduler import GangScheduler


def one_node(lazy: bool = False, priority: int = 0) -> tuple[GangScheduler, Gang]:
    """VC a owns one of two nodes and uses all of it."""
    seen = cells(racks=1, a="1 node", b="1 node")
    return seen, start(seen, request("low", "a", priority, 4, lazy=lazy))


@pytest.mark.parametrize(
    ("asked", "victims"),
    [
        pytest.param(request("g", "a", 1, 1), ["low"], id="a higher priority of the same VC"),
        pytest.param(request("g", "a", 0, 1), None, id="not an equal one"),
        pytest.param(request("g", "b", 9, 1), [], id="another VC uses its own node"),
        pytest.param(request("g", "b", 9, 4, 4), None, id="no priority takes what another VC owns"),
        pytest.param(request("g", "a", -1, 4), [], id="a borrower takes what is idle"),
    ],
)
def test_who_has_to_leave(asked: object, victims: list[str] | None) -> None:
    seen, _ = one_node()
    answer = seen.ask(asked)  # type: ignore[arg-type]
    assert (None if answer.placement is None else [gang.name for gang in answer.victims]) == victims


def test_borrowers_leave_for_the_owner() -> None:
    seen, _ = one_node()
    start(seen, request("o", "a", -1, 3))
    answer = seen.ask(request("g", "b", 0, 4))
    assert [gang.name for gang in answer.victims] == ["o"]


def test_reserved_cells_pass_from_the_victim_to_the_gang() -> None:
    seen, low = one_node()
    high, _ = reserve(seen, request("high", "a", 1, 2))
    leaves = [leaf for leaf, _ in high.pairs()]
    assert low.state is GangState.LEAVING
    assert {seen.on(leaf).use for leaf in leaves} == {GangUse.RESERVING}
    seen.release(low)
    check_cells(seen)
    assert {seen.on(leaf).use for leaf in leaves} == {GangUse.RESERVED}
    assert seen.ask(request("other", "a", 1, 4)).placement is None, "nobody of equal priority has them"
    assert seen.ask(request("oppo", "a", -1, 4, 3)).placement is None, "nor a borrower"
    seen.start(high)
    check_cells(seen)
    assert {seen.on(leaf).use for leaf in leaves} == {GangUse.USED}
    assert high.state is GangState.ALLOCATED


@pytest.mark.parametrize("has_left", [False, True], ids=["the victim is still there", "the victim has left"])
def test_a_cancelled_preemption_gives_everything_back(has_left: bool) -> None:
    seen, low = one_node()
    before = where(low)
    high, _ = reserve(seen, request("high", "a", 1, 2))
    if has_left:
        seen.release(low)
    seen.cancel(high)
    check_cells(seen)
    assert list(seen.gangs) == ([] if has_left else ["low"])
    if not has_left:
        assert low.state is GangState.ALLOCATED
        assert where(low) == before
        assert {leaf.priority for leaf, _ in low.pairs()} == {0}, "its guarantee is back"


def test_of_two_preemptions_of_one_victim_cancelling_one_leaves_it_leaving() -> None:
    seen, low = one_node()
    first, _ = reserve(seen, request("first", "a", 1, 2))
    second, _ = reserve(seen, request("second", "a", 1, 2))
    seen.cancel(first)
    check_cells(seen)
    assert low.state is GangState.LEAVING
    seen.cancel(second)
    check_cells(seen)
    assert low.state is GangState.ALLOCATED


@pytest.mark.parametrize("has_left", [False, True], ids=["while the victim is there", "when the victim has left"])
def test_a_higher_priority_overtakes_a_preemption(has_left: bool) -> None:
    seen, low = one_node()
    reserve(seen, request("high", "a", 1, 4))
    if has_left:
        seen.release(low)
        gang = start(seen, request("higher", "a", 2, 4))
        assert list(seen.gangs) == ["higher"]
        assert {seen.on(leaf).reserver for leaf, _ in gang.pairs()} == {None}
    else:
        higher, answer = reserve(seen, request("higher", "a", 2, 4))
        assert answer.victims == [low]
        assert set(seen.gangs) == {"low", "higher"}
        assert {seen.on(leaf).reserver for leaf, _ in higher.pairs()} == {higher}


def test_a_lazy_gang_loses_its_guarantee_and_runs_on_where_others_have_room() -> None:
    seen, low = one_node(lazy=True)
    before = where(low)
    high = start(seen, request("high", "a", 1, 4))
    assert {leaf.node for leaf, _ in high.pairs()} == {"n1"}
    assert low.is_downgraded
    assert low.priority == -1
    assert where(low) == before
    assert [gang.name for gang in seen.ask(request("own", "b", 0, 4)).victims] == ["low"]


def test_a_lazy_gang_has_to_leave_where_there_is_no_room() -> None:
    seen, low = one_node(lazy=True)
    start(seen, request("own", "b", 0, 4))
    high, answer = reserve(seen, request("high", "a", 1, 4))
    assert answer.victims == [low]
    seen.release(low)
    seen.start(high)
    check_cells(seen)


def test_a_question_takes_no_guarantee_away() -> None:
    seen, low = one_node(lazy=True)
    answer = seen.ask(request("high", "a", 1, 4))
    assert answer.placement is not None
    assert not low.is_downgraded
    check_cells(seen)


def test_a_question_leaves_what_a_vc_sees_of_bad_nodes() -> None:
    """The rack of a lazy gang has a bad node: taking the rack back for a moment must bind it again as it was."""
    seen = cells(racks=2, nodes=3, a="1 rack", b="1 rack")
    low = start(seen, request("low", "a", 0, 4, lazy=True))
    beside = start(seen, request("beside", "a", 0, 4))
    fail(seen, "n2")
    seen.release(beside)
    shown = {cell: cell.physical for root in seen.tenancies["a"].roots["rack"][4] for cell in root.tree()}
    assert seen.ask(request("high", "a", 1, 4, 4)).placement is not None
    assert {cell: cell.physical for cell in shown} == shown
    assert low.virtual is not None
    check_cells(seen)


def test_a_lazy_gang_that_is_partly_on_a_bad_node_is_no_obstacle() -> None:
    """Its bad node, given back for a moment, must not be shown to the VC as the very cell that the question needs."""
    seen = cells(racks=1, nodes=3, a="2 node", b="1 node")
    low = start(seen, request("low", "a", 0, 4, 4, lazy=True))
    start(seen, request("own", "b", 0, 4))
    fail(seen, "n1")
    high, answer = reserve(seen, request("high", "a", 1, 4))
    assert {leaf.node for leaf, _ in high.pairs()} == {"n0"}
    assert answer.victims == [low]


@pytest.mark.parametrize(
    ("owners", "victims"),
    [
        pytest.param({"a": "2 node"}, [], id="the other rack has room to spare"),
        pytest.param({"a": "2 node", "b": "1 rack"}, ["o"], id="the other rack is owed to another VC"),
    ],
)
def test_borrowers_are_evicted_only_if_nothing_else_fits(owners: dict[str, str], victims: list[str]) -> None:
    """The node beside the first one is next in line for buddy allocation, and a borrower is on it."""
    seen = cells(racks=2, **owners)
    start(seen, request("first", "a", 0, 4))
    start(seen, request("o", "a", -1, 4))
    answer = seen.ask(request("g", "a", 0, 4))
    assert answer.placement is not None
    assert [gang.name for gang in answer.victims] == victims
