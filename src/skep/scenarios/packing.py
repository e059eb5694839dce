"""Topology-aware placement of a gang on the nodes of a view: which nodes, and which GPUs of them.

Pods go to the fullest nodes first. A walk over the nodes, smallest pods first, settles nearly every gang; if it fails
although there is enough space (2+2+3 on 3|4), a bounded search looks for another packing.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from skep.core.cells.tree import OPPORTUNISTIC, BaseCell

SEARCH_STEPS = 20_000
"""The most attempts of the search for a packing."""
SEARCH_PODS = 64
"""Larger gangs of mixed sizes are packed by best fit, without backtracking."""

Usable = Callable[[BaseCell], bool]
Seats = list[tuple[int, BaseCell]]
"""(GPUs of a pod, its node), the smallest pods first."""
Seat = Callable[[Iterable[BaseCell], list[int], int, Usable], Seats | None]


def walk(nodes: Iterable[BaseCell], pods: list[int], priority: int, usable: Usable) -> Seats | None:
    """A node for every pod (GPU counts, ascending), each on the first that fits and never before that of the last one.

    Exact for pods of one size: each node takes as many as fit.
    """
    seats: Seats = []
    smallest = pods[0]
    for node in nodes:
        room = node.free_at(priority)
        if room < smallest or not usable(node):
            continue
        while len(seats) < len(pods) and pods[len(seats)] <= room:
            room -= pods[len(seats)]
            seats.append((pods[len(seats)], node))
        if len(seats) == len(pods):
            return seats
    return None


def search(nodes: Iterable[BaseCell], pods: list[int], priority: int, usable: Usable) -> Seats | None:
    """As `walk`, for pods of several sizes, in any order."""
    rooms = [(node, node.free_at(priority)) for node in nodes]
    return search_packing([(node, room) for node, room in rooms if room >= pods[0] and usable(node)], pods)


def search_packing(nodes: list[tuple[BaseCell, int]], pods: list[int]) -> Seats | None:
    """The largest pods first, each on the tightest node, with backtracking."""
    rooms = [room for _, room in nodes]
    if sum(rooms) < sum(pods):
        return None
    order = sorted(range(len(pods)), key=lambda number: -pods[number])
    chosen: dict[int, int] = {}
    steps = SEARCH_STEPS

    def seat(depth: int) -> bool:
        nonlocal steps
        if depth == len(order):
            return True
        size = pods[order[depth]]
        tried = set()
        for number in sorted(range(len(rooms)), key=rooms.__getitem__):
            room = rooms[number]
            if room < size or room in tried:
                continue
            tried.add(room)
            steps -= 1
            if steps < 0:
                return False
            rooms[number] -= size
            chosen[order[depth]] = number
            if seat(depth + 1):
                return True
            rooms[number] += size
        return False

    if len(pods) > SEARCH_PODS:
        return best_fit(nodes, pods)
    if not seat(0):
        return None
    return [(pods[number], nodes[chosen[number]][0]) for number in range(len(pods))]


def best_fit(nodes: list[tuple[BaseCell, int]], pods: list[int]) -> Seats | None:
    """The largest pods first, each on the tightest node."""
    rooms = sorted((room, number) for number, (_, room) in enumerate(nodes))
    seats = []
    for size in reversed(pods):
        at = bisect_left(rooms, (size, -1))
        if at == len(rooms):
            return None
        room, number = rooms.pop(at)
        insort(rooms, (room - size, number))
        seats.append((size, nodes[number][0]))
    return seats[::-1]


def seat_gpus(seats: Seats, priority: int) -> list[list[BaseCell]]:
    """The GPUs of each pod, each set below the smallest cell that can hold it."""
    offered: dict[int, list[BaseCell]] = {}
    placed = []
    for size, node in seats:
        candidates = offered.get(id(node))
        if candidates is None:
            candidates = offered[id(node)] = candidate_gpus(node, priority)
        chosen = closest(node, candidates, size)
        taken = set(map(id, chosen))
        offered[id(node)] = [leaf for leaf in candidates if id(leaf) not in taken]
        placed.append(chosen)
    return placed


def candidate_gpus(node: BaseCell, priority: int) -> list[BaseCell]:
    """Free GPUs in the order of the tree, then those of lower priorities."""
    leaves = list(node.leaves())
    free = [leaf for leaf in leaves if leaf.priority < OPPORTUNISTIC]
    if priority == OPPORTUNISTIC:
        return free
    return free + [leaf for leaf in leaves if OPPORTUNISTIC <= leaf.priority < priority]


def closest(node: BaseCell, candidates: list[BaseCell], size: int) -> list[BaseCell]:
    """`size` of the candidates with the lowest common cell; of several such sets the first."""
    if len(candidates) == size or size == node.leaf_count:
        return candidates[:size]
    groups = {id(leaf): (leaf, [number]) for number, leaf in enumerate(candidates)}
    while True:
        full = [numbers[:size] for cell, numbers in groups.values() if len(numbers) >= size]
        if full:
            return [candidates[number] for number in min(full)]
        groups = merge_up(groups, node)


def merge_up(groups: dict[int, tuple[BaseCell, list[int]]], node: BaseCell) -> dict[int, tuple[BaseCell, list[int]]]:
    """One level up: the candidates below each parent, in the order of the candidates."""
    lowest = min(cell.level for cell, _ in groups.values())
    merged: dict[int, tuple[BaseCell, list[int]]] = {}
    for cell, numbers in groups.values():
        above = cell.parent if cell.level == lowest and cell is not node else cell
        assert above is not None
        known = merged.get(id(above))
        merged[id(above)] = (above, sorted(known[1] + numbers) if known else numbers)
    return merged
