"""Gangs of hundreds of pods: found by trying what real clusters look like."""

from __future__ import annotations

from typing import Any

from skep.clusters.hived import parse_layout
from skep.scenarios.replay import Replay
from skep.scenarios.run import check_always


def play_gang(types: dict[str, Any], cells: list[Any], shares: list[Any], members: dict[int, int]) -> Replay:
    hardware = {"cellTypes": types, "physicalCells": cells}
    replay = Replay(parse_layout({"physicalCluster": hardware, "virtualClusters": {"a": {"virtualCells": shares}}}))
    listed = [{"podNumber": count, "leafCellNumber": size} for size, count in members.items()]
    spec = {"virtualCluster": "a", "leafCellNumber": max(members), "affinityGroup": {"name": "g", "members": listed}}
    outcome = replay.play({"op": "schedule", "pod": "p", "spec": spec})
    assert outcome["result"] == "bind", outcome
    check_always(replay.cells, ["g"])
    return replay


def test_a_gang_of_a_thousand_nodes_in_one_granted_cell() -> None:
    types = {
        "NODE": {"childCellType": "GPU", "childCellNumber": 2, "isNodeLevel": True},
        "POOL": {"childCellType": "NODE", "childCellNumber": 1200},
    }
    play_gang(types, [{"cellType": "POOL"}], [{"cellType": "POOL", "cellNumber": 1}], {2: 1100})


def test_more_than_64_pods_of_mixed_sizes_are_packed_although_the_small_ones_come_first() -> None:
    types = {
        "HALF": {"childCellType": "GPU", "childCellNumber": 4},
        "NODE": {"childCellType": "HALF", "childCellNumber": 2, "isNodeLevel": True},
    }
    cells = [{"cellType": "NODE", "cellAddress": f"n{number}"} for number in range(65)]
    shares = [{"cellType": "NODE", "cellNumber": 64}, {"cellType": "NODE.HALF", "cellNumber": 1}]
    play_gang(types, cells, shares, {8: 64, 4: 1})
