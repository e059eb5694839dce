"""Preemptions that are not plain: overtaken ones, and those for a gang that HiveD finds no room for."""

from __future__ import annotations

from typing import Any

from scenario_files import ask

from skep.clusters.hived import parse_layout
from skep.core.cells.layout import Layout
from skep.scenarios.replay import Replay
from skep.scenarios.run import check_always


def layout(nodes: int, **shares: list[tuple[str, int]]) -> Layout:
    types = {
        "NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": True},
        "POOL": {"childCellType": "NODE", "childCellNumber": nodes},
    }
    children = [{"cellAddress": f"n{at}"} for at in range(nodes)]
    vcs = {
        vc: {"virtualCells": [{"cellType": kind, "cellNumber": count} for kind, count in owned]}
        for vc, owned in shares.items()
    }
    hardware = {"cellTypes": types, "physicalCells": [{"cellType": "POOL", "cellChildren": children}]}
    return parse_layout({"physicalCluster": hardware, "virtualClusters": vcs})


def gang(name: str, *sizes: int, pod: int = 0, **more: Any) -> dict[str, Any]:
    step = ask(f"{name}-{pod}", sizes[pod], **more)
    members = [{"podNumber": sizes.count(size), "leafCellNumber": size} for size in dict.fromkeys(sizes)]
    step["spec"]["affinityGroup"] = {"name": name, "members": members}
    return step


def play(replay: Replay, *steps: dict[str, Any]) -> list[Any]:
    found = []
    for step in steps:
        found.append(replay.play(step))
        check_always(replay.cells, [])
    return found


def preempting(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "phase": "Preempting"}


def test_victims_of_a_gang_that_hived_does_not_see_are_named_to_who_asks_to_preempt() -> None:
    """2+2+3 on 3|4 free gpus of the VC, with a borrower on one node: HiveD lets it wait."""
    replay = Replay(layout(2, a=[("POOL.NODE", 2)]))
    [one, borrower] = play(replay, ask("one", 1), ask("borrower", 4, priority=-1))
    assert one["node"] != borrower["node"]
    mixed = gang("g", 2, 2, 3)
    [filtered, preempted] = play(replay, mixed, preempting(mixed))
    assert filtered["result"] == "wait"
    assert (preempted["result"], preempted["victims"]) == ("preempt", ["borrower"])
    [_, bound] = play(replay, {"op": "delete", "pod": "borrower"}, mixed)
    assert bound["result"] == "bind"


def test_a_search_that_spares_a_victim_is_preferred() -> None:
    """HiveD pushes a weaker gang of the VC out as well, to put 2+2 where only 3 are free."""
    replay = Replay(layout(2, a=[("POOL.NODE", 2)]))
    play(replay, ask("weak", 1, priority=0), ask("borrower", 4, priority=-1))
    [answer] = play(replay, gang("g", 2, 2, 3, priority=1))
    assert (answer["result"], answer["victims"]) == ("preempt", ["borrower"])


def test_an_overtaken_preemption_is_listed_until_it_asks_again_and_holds_nothing() -> None:
    replay = Replay(layout(1, a=[("POOL.NODE", 1)]))
    low, high = ask("low", 4, priority=1), ask("high", 4, priority=2)
    play(replay, ask("first", 4, priority=0), preempting(low), {"op": "delete", "pod": "first"})
    [bound] = play(replay, high)
    assert bound["result"] == "bind"
    assert bound["groups"] == {"test/high": "Allocated", "test/low": "Preempting"}
    assert set(replay.cells.gangs) == {"test/high"}
    [again] = play(replay, low)
    assert (again["result"], again["groups"]) == ("wait", {"test/high": "Allocated"})


def test_an_overtaken_preemption_is_forgotten_with_its_pods() -> None:
    replay = Replay(layout(1, a=[("POOL.NODE", 1)]))
    low = ask("low", 4, priority=1)
    play(replay, ask("first", 4, priority=0), preempting(low), {"op": "delete", "pod": "first"})
    play(replay, ask("high", 4, priority=2))
    [gone] = play(replay, {"op": "delete", "pod": "low"})
    assert gone["groups"] == {"test/high": "Allocated"}


def test_after_a_restart_the_stronger_gang_has_the_guarantee_even_if_the_weaker_is_taken_up_first() -> None:
    """The weaker one was downgraded for the stronger one, whose cell lies around nodes that the weaker one uses."""
    pools = [{"cellType": "POOL", "cellChildren": [{"cellAddress": f"n{at}{k}"} for k in range(3)]} for at in range(2)]
    hardware = {
        "cellTypes": {
            "NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": True},
            "POOL": {"childCellType": "NODE", "childCellNumber": 3},
        },
        "physicalCells": pools,
    }
    owned = [{"cellType": "POOL", "cellNumber": 1}, {"cellType": "POOL.NODE", "cellNumber": 2}]
    replay = Replay(parse_layout({"physicalCluster": hardware, "virtualClusters": {"a": {"virtualCells": owned}}}))
    weak = gang("weak", 4, 4, 4, 4, 4, priority=1)
    weak["spec"]["lazyPreemptionEnable"] = True
    [_, strong] = play(replay, weak, gang("strong", 4, priority=5))
    assert strong["groups"] == {"strong": "Allocated", "weak": "Allocated/lazyPreempted"}
    [restarted] = play(replay, {"op": "restart", "replayOrder": ["weak-0", "strong-0"]})
    assert restarted["groups"] == {"strong": "Allocated", "weak": "Allocated/lazyPreempted"}
