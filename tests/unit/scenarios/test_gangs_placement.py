"""Which nodes and which gpus: the closest set, and gangs of several sizes."""

from __future__ import annotations

import pytest
from small_cells import cells, request, start, where
from tests.support.cells_invariants import can_pack

from skep.core.cells.tree import OPPORTUNISTIC, BaseCell
from skep.scenarios.packing import closest, search, search_packing


@pytest.mark.parametrize(
    ("taken", "size", "expected"),
    [
        pytest.param([], 1, [0], id="one gpu: the first"),
        pytest.param([0], 2, [2, 3], id="two gpus: the first whole switch, not the first two gpus"),
        pytest.param([0, 3, 5, 6], 2, [1, 2], id="two gpus over two switches where no switch is whole"),
        pytest.param([1, 2, 4], 2, [6, 7], id="the second socket where only there a switch is whole"),
        pytest.param([0], 3, [1, 2, 3], id="three gpus of one socket"),
        pytest.param([0, 4], 4, [1, 2, 3, 5], id="four over both sockets, in the order of the tree"),
        pytest.param([], 8, list(range(8)), id="all of the node"),
    ],
)
def test_the_closest_gpus_are_chosen(taken: list[int], size: int, expected: list[int]) -> None:
    """A node of two sockets of two switches, drawn as a rack of two nodes."""
    [rack] = cells(racks=1).chains["rack"].cells[4]
    leaves: list[BaseCell] = list(rack.leaves())
    candidates = [leaf for number, leaf in enumerate(leaves) if number not in taken]
    assert [leaves.index(leaf) for leaf in closest(rack, candidates, size)] == expected


def test_free_gpus_come_before_those_of_lower_priority_in_the_same_cell() -> None:
    seen = cells(racks=1, nodes=1, a="1 node")
    start(seen, request("low", "a", 0, 3))
    answer = seen.ask(request("high", "a", 1, 2))
    assert answer.placement is not None
    assert sorted(leaf.index for leaf in answer.placement.physical[0]) == [2, 3]


def test_pods_go_to_the_fullest_node_that_has_room() -> None:
    seen = cells(racks=1, nodes=3, a="3 node")
    start(seen, request("g", "a", 0, 3))
    assert where(start(seen, request("h", "a", 0, 1))) == ["0/n0/1/3"]
    assert "n0" not in {leaf.node for leaf, _ in start(seen, request("i", "a", 0, 2)).pairs()}


def test_borrowers_keep_together_and_away_from_guaranteed_work() -> None:
    seen = cells(racks=1, nodes=3, a="1 node", b="1 node")
    start(seen, request("g", "a", 0, 1))
    first = start(seen, request("o", "b", -1, 1))
    second = start(seen, request("p", "b", -1, 1))
    assert {leaf.node for leaf, _ in [*first.pairs(), *second.pairs()]} == {"n1"}


def test_guaranteed_work_takes_cells_with_the_fewest_borrowers() -> None:
    seen = cells(racks=1, nodes=3, a="2 node", b="1 node")
    start(seen, request("o", "b", -1, 4))
    start(seen, request("p", "b", -1, 2))
    gang = start(seen, request("g", "a", 0, 4))
    assert {leaf.node for leaf, _ in gang.pairs()} == {"n2"}
    assert [victim.name for victim in seen.ask(request("h", "a", 0, 4)).victims] == ["p"]


@pytest.mark.parametrize(
    ("free", "pods"),
    [
        pytest.param([3, 4], [2, 2, 3], id="2+2+3 on 3|4: a walk puts 2 on 3"),
        pytest.param([2, 1], [1, 2], id="1+2 on 2|1"),
        pytest.param([4, 4, 4], [1, 3, 4, 4], id="all rooms exactly filled"),
        pytest.param([5, 7], [2, 3, 3, 4], id="5 = 2+3, 7 = 3+4"),
        pytest.param([3, 3], [2, 4], id="no room for the largest"),
        pytest.param([3, 3, 3], [2, 2, 2, 3], id="enough gpus in no shape that fits"),
    ],
)
def test_a_gang_of_several_sizes_is_packed_wherever_it_fits(free: list[int], pods: list[int]) -> None:
    seen = cells(racks=len(free), nodes=1, switches=1, gpus=8)
    nodes: list[BaseCell] = []
    for number, room in enumerate(free):
        [node] = seen.chains["rack"].cells[4][number].children
        node.leaf_count = room
        nodes.append(node)
    seats = search(nodes, pods, OPPORTUNISTIC, lambda node: True)
    assert (seats is not None) == can_pack(tuple(sorted(free)), pods[::-1])
    if seats is not None:
        assert [size for size, _ in seats] == pods
        for number, node in enumerate(nodes):
            assert sum(size for size, at in seats if at is node) <= free[number]


def test_the_search_gives_up_in_bounded_time() -> None:
    [rack] = cells(racks=1).chains["rack"].cells[4]
    rooms: list[tuple[BaseCell, int]] = [(rack, 7 + number % 3) for number in range(30)]
    # 240 gpus for 229, but 7 and 8 hold only one of the fives and the rest of the eights is too small: hopeless.
    assert search_packing(rooms, [4] * 1 + [5] * 45) is None


def test_a_gang_that_the_walk_misses_runs() -> None:
    seen = cells(racks=1, nodes=2, a="2 node")
    start(seen, request("g", "a", 0, 1))
    gang = start(seen, request("h", "a", 0, 2, 2, 3))
    assert sorted(len(pod) for pod in gang.physical) == [2, 2, 3]
    assert [pod[0].node for pod in gang.physical if pod[0] is not None] == ["n1", "n1", "n0"]
