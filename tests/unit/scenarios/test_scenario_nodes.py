"""Health and configurations in a replay: what is bad stays bad, what is gone is still known."""

from __future__ import annotations

from typing import Any

from scenario_files import CONFIG, ask

from skep.clusters.hived import parse_layout
from skep.scenarios.replay import Replay
from skep.scenarios.run import check_always


def layout(*nodes: str, **shares: int) -> Any:
    types = {**CONFIG["physicalCluster"]["cellTypes"], "POOL": {"childCellType": "NODE", "childCellNumber": len(nodes)}}
    children = [{"cellAddress": node} for node in nodes]
    vcs = {vc: {"virtualCells": [{"cellType": "POOL.NODE", "cellNumber": count}]} for vc, count in shares.items()}
    hardware = {"cellTypes": types, "physicalCells": [{"cellType": "POOL", "cellChildren": children}]}
    return parse_layout({"physicalCluster": hardware, "virtualClusters": vcs})


def gang(pod: str, count: int, **more: Any) -> dict[str, Any]:
    step = ask(pod, 4, **more)
    step["spec"]["affinityGroup"] = {"name": "g", "members": [{"podNumber": count, "leafCellNumber": 4}]}
    return step


def test_nodes_that_are_not_announced_are_bad_until_they_heal() -> None:
    replay = Replay(layout("n0", "n1", a=2), ["n0"])
    assert replay.play(gang("g-0", 2))["result"] == "wait"
    replay.play({"op": "node_healthy", "node": "n1"})
    assert replay.play(gang("g-0", 2))["result"] == "bind"


def test_a_node_that_went_bad_while_it_was_out_of_the_configuration_comes_back_bad() -> None:
    replay = Replay(layout("n0", a=1))
    replay.play({"op": "node_bad", "node": "n1"})
    replay.play({"op": "reconfigure", "layout": layout("n0", "n1", a=2)})
    assert replay.play(gang("g-0", 2))["result"] == "wait"
    replay.play({"op": "node_healthy", "node": "n1"})
    assert replay.play(gang("g-0", 2))["result"] == "bind"


def test_a_gang_whose_node_was_removed_is_listed_with_what_is_missing_and_its_pod_returns_there() -> None:
    replay = Replay(layout("n0", "n1", a=2))
    placed = {pod: replay.play(gang(pod, 2))["node"] for pod in ("g-0", "g-1")}
    gone = placed["g-1"]
    kept = placed["g-0"]
    replay.play({"op": "reconfigure", "layout": layout(kept, a=1)})
    listed = replay.play({"op": "listGroups"})
    assert listed["groupDetails"] == {"g": {"placement": {kept: [0, 1, 2, 3]}, "missingLeafCells": 4}}
    replay.play({"op": "delete", "pod": "g-1"})
    again = replay.play(gang("g-1b", 2))
    assert (again["result"], again["node"], again["leafCells"]) == ("bind", gone, [0, 1, 2, 3])
    assert again["groupNodes"] == 2
    replay.play({"op": "restart"})
    assert replay.play({"op": "listGroups"}) == listed


def test_a_restart_without_a_configuration_keeps_the_one_there_is() -> None:
    replay = Replay(layout("n0", "n1", a=1, b=1))
    replay.play(ask("p"))
    before = replay.details()
    assert replay.play({"op": "restart"})["groupDetails"] == before


def test_a_gang_gets_all_its_cells_although_some_are_bad() -> None:
    """Found by random scripts: a bad cell was shown to the VC between the first gpu of the gang and the second, in the
    place of the one it was about to take."""
    types = {
        "HALF": {"childCellType": "GPU", "childCellNumber": 2},
        "NODE": {"childCellType": "HALF", "childCellNumber": 1, "isNodeLevel": True},
    }
    cells = [{"cellType": "NODE", "cellAddress": node} for node in ("n0", "n1", "n2")]
    shares = [{"cellType": "NODE.HALF", "cellNumber": 1}, {"cellType": "NODE.GPU", "cellNumber": 4}]
    hardware = {"cellTypes": types, "physicalCells": cells}
    vcs = {"a": {"virtualCells": shares}}
    replay = Replay(parse_layout({"physicalCluster": hardware, "virtualClusters": vcs}))
    replay.play({"op": "node_bad", "node": "n1"})
    step = ask("g-0", 1)
    step["spec"]["affinityGroup"] = {"name": "g", "members": [{"podNumber": 3, "leafCellNumber": 1}]}
    assert replay.play(step)["result"] == "bind"
    check_always(replay.cells, ["g"])


def test_a_restart_with_bad_nodes_takes_running_work_up_before_it_shows_them() -> None:
    """Found by random scripts: a bad free cell took the place of one with work on it."""
    replay = Replay(layout("n0", "n1", a=1, b=1))
    for pod, vc in (("q", "b"), ("p", "a")):
        assert replay.play(ask(pod, vc=vc))["result"] == "bind"
    for node in ("n0", "n1"):
        replay.play({"op": "node_bad", "node": node})
    before = replay.details()
    assert replay.play({"op": "restart", "replayOrder": ["q", "p"]})["groupDetails"] == before
    check_always(replay.cells, [])
    assert replay.groups() == {"test/p": "Allocated", "test/q": "Allocated"}
