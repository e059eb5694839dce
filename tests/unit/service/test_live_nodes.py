"""Nodes of the live world: a cluster file and an engine that discovers nodes tell the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from live_world import LiveWorld, request
from tests.support.snapshot import snapshot

from skep.clusters.discovered import with_found
from skep.core.cluster import NodeSpec
from skep.core.errors import Conflict
from skep.core.events import (
    ClusterChanged,
    NodeBack,
    NodeChanged,
    NodeConditions,
    NodeJoined,
    NodeLeft,
    NodeLost,
    OthersChanged,
)
from skep.core.others import NodeUse
from skep.core.record import decode
from skep.core.reports import Exited
from skep.jobs.request import TaskRole
from skep.service import commands
from skep.service.recover import recompute, recover

LAB = "nodes: [{count: 2, name: n, gpus: 4}]\n"
MORE = "nodes: [{name: first, gpus: 4}, {count: 2, name: n, gpus: 4}]\n"
VCS = "vcs: {red: 1 node, blue: 1 node}\n"
FOUND = with_found("nodes: discovered\n", [NodeSpec("n0", 4), NodeSpec("n1", 4)])


def check_log(world: LiveWorld) -> None:
    assert snapshot(recover(world.store)[0]) == snapshot(world.writer.state)
    assert snapshot(recover(world.store, from_start=True)[0]) == snapshot(world.writer.state)
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def names(world: LiveWorld, job_id: str) -> list[str]:
    held = world.writer.state.jobs[job_id].held
    return [] if held is None else [world.writer.state.cluster.nodes[number].name for number in held.nodes()]


def told(world: LiveWorld) -> list[type]:
    """What happened to nodes and cluster, in the log, since the store was opened."""
    entries = [decode(entry).events for entry in world.store.entries()][1:]
    kinds = (NodeJoined, NodeLeft, NodeChanged, ClusterChanged)
    return [type(event) for events in entries for event in events if isinstance(event, kinds)]


def test_a_file_is_applied_as_events_of_its_nodes(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB)
    running, waits = world.submit(request(gpus=8), request(gpus=4))
    world.settle()
    world.ask(commands.apply_cluster(MORE, "more", "ann"))
    world.settle()
    assert told(world) == [NodeJoined, ClusterChanged]
    assert (names(world, running), names(world, waits)) == (["n0", "n1"], ["first"])
    assert world.puppet.cluster.by_name["first"].index == 2, "the others keep their numbers"
    check_log(world)
    world.writer.save_snapshot()
    world.crash()
    check_log(world)
    assert names(world, waits) == ["first"]
    world.end(waits)
    world.ask(commands.apply_cluster(LAB, "lab", "ann"))
    assert told(world)[2:] == [NodeLeft, ClusterChanged]
    check_log(world)


def test_a_node_in_use_is_not_taken_away_by_a_file(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB)
    world.submit(request(gpus=8))
    world.settle()
    with pytest.raises(Conflict, match="runs on node n1, which the new cluster does not have"):
        world.ask(commands.apply_cluster("nodes: [{name: n0, gpus: 4}]\n", "less", "ann"))
    assert told(world) == []


@pytest.mark.parametrize("policy", ["fifo", "tiresias-l:queues=100+1000", "afs-l", "drf"])
def test_an_engine_that_discovers_nodes(tmp_path: Path, policy: str) -> None:
    world = LiveWorld(tmp_path, cluster=FOUND, policy=policy)
    running, waits = world.submit(request(gpus=8, expect_s=50.0), request(gpus=3, expect_s=90.0))
    world.settle()
    new = NodeSpec("new", 4)
    world.tell(NodeJoined(new))
    world.settle()
    assert names(world, waits) == ["new"]
    world.tell(NodeJoined(new), NodeChanged(new), NodeLeft("nobody"))
    assert told(world) == [NodeJoined], "what is known is no news"
    world.tell(NodeChanged(NodeSpec("new", 6)))
    (more,) = world.submit(request(gpus=3, expect_s=10.0))
    world.settle()
    assert names(world, more) == ["new"]
    check_log(world)
    world.crash()
    world.tell(NodeLeft("new"))
    assert names(world, more) == ["new"], "until its jobs have gone"
    gone = [(job, world.writer.state.jobs[job].held_launch) for job in (waits, more)]
    world.tell(*(Exited(job, launch, 137, cause="node-lost") for job, launch in gone))
    world.settle()
    assert "new" not in world.writer.state.cluster.by_name
    assert "running" in {world.state(job) for job in (running, waits, more)}
    kinds = world.store.reader.execute(
        "SELECT kind FROM events WHERE kind IN ('joined', 'changed', 'left') ORDER BY seq"
    )
    assert [kind for (kind,) in kinds] == ["joined", "changed", "left"]
    check_log(world)


def test_of_a_file_that_names_its_nodes_the_engine_tells_tags_and_extras_only(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB)
    about = NodeSpec("n1", 64, "other", tags=("zone=a",), extras=(("rdma/hca", 2),))
    world.tell(NodeJoined(NodeSpec("new", 4)), NodeJoined(about), NodeLeft("n0"))
    assert list(world.writer.state.cluster.by_name) == ["n0", "n1"]
    assert world.writer.state.cluster.by_name["n1"].spec == NodeSpec("n1", 4, tags=about.tags, extras=about.extras)
    role = TaskRole(gpus=1, command="x", node_tags=("zone=a",), extras={"rdma/hca": 1})
    jobs = world.submit(*[msgspec.structs.replace(request(gpus=1), tasks={"main": role})] * 3)
    world.settle()
    assert [names(world, job) for job in jobs] == [["n1"], ["n1"], []], "two have its extras"
    check_log(world)


def test_a_node_joins_with_its_conditions_and_what_others_use(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=FOUND)
    world.submit(request(gpus=8))
    bad, full, good = world.submit(*[request(gpus=4)] * 3)
    world.settle()
    world.tell(NodeJoined(NodeSpec("bad", 4)), NodeConditions("bad", ("not-ready",)))
    world.tell(NodeJoined(NodeSpec("full", 4)), OthersChanged("full", (NodeUse(count=1),)))
    world.settle()
    assert [names(world, job) for job in (bad, full, good)] == [[], [], []]
    world.tell(NodeConditions("bad", ()), OthersChanged("full", ()))
    world.settle()
    assert [names(world, job) for job in (bad, full, good)] == [["bad"], ["full"], []]
    check_log(world)


def test_cells_of_virtual_clusters_follow_nodes_that_are_discovered(tmp_path: Path) -> None:
    text = "nodes: discovered\nlabels: {rack: where}\ngpu_types: {big: a100}\nvcs: {red: 1 node, blue: 1 node}\n"
    found = [NodeSpec(f"n{each}", 4, "BIG", tags=(f"where=r{each}",)) for each in range(3)]
    world = LiveWorld(tmp_path, cluster=with_found(text, found[:2]))
    jobs = world.submit(request(gpus=4, vc="red"), request(gpus=4, vc="red"))
    jobs += world.submit(request(gpus=4, vc="blue"))
    world.settle()
    world.tell(NodeJoined(found[2]))
    world.settle()
    assert [world.state(job) for job in jobs] == ["running"] * 3
    assert world.writer.state.cluster.by_name["n2"].spec.gpu_type == "a100"
    assert world.writer.state.cluster.by_name["n2"].spec.within[-1][1] == "r2"
    world.tell(NodeLeft("n1"))
    (there,) = [job for job in jobs if names(world, job) == ["n1"]]
    assert world.state(there) == "running", "until its job has gone"
    world.tell(Exited(there, 1, 137, cause="node-lost"))
    world.settle()
    assert "n1" not in world.writer.state.cluster.by_name
    assert world.writer.ground.layout is not None
    world.tell(NodeLeft("n2"))
    assert set(world.writer.ground.guaranteed()) == {"red", "blue"}, "they do not fit one node: the cells stay"
    check_log(world)
    world.crash()
    check_log(world)


def test_virtual_clusters_go_on_with_a_node_that_no_file_knows(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=FOUND + VCS)
    owner, borrower = world.submit(request(gpus=4, vc="red"), request(gpus=4, vc="red"))
    other = world.submit(request(gpus=4, vc="blue"))[0]
    world.settle()
    world.tell(NodeJoined(NodeSpec("new", 4)))
    world.settle()
    assert [world.state(job) for job in (owner, borrower, other)] == ["running"] * 3
    assert names(world, borrower) == ["new"], "nobody owns it: it is lent"
    world.tell(NodeLeft("n1"))
    check_log(world)
    world.crash()
    assert [world.state(job) for job in (owner, borrower, other)] == ["running"] * 3
    check_log(world)


def test_a_gpu_of_another_tenant_costs_one_cell_not_the_node(tmp_path: Path) -> None:
    text = "nodes: [{name: n0, gpus: 8, switch: 4}]\nvcs: {red: 1 switch, blue: 1 switch}\n"
    world = LiveWorld(tmp_path, cluster=text)
    world.tell(OthersChanged("n0", (NodeUse(count=1),)))
    jobs = world.submit(request(gpus=4, vc="red"), request(gpus=4, vc="blue"))
    world.settle()
    assert sorted(world.state(job) for job in jobs) == ["pending", "running"]
    world.writer.save_snapshot()
    world.crash()
    check_log(world)
    world.tell(OthersChanged("n0", ()))
    world.settle()
    assert {world.state(job) for job in jobs} == {"running"}
    check_log(world)


def test_the_engine_cannot_bring_back_a_node_that_a_person_gave_up(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB)
    world.ask(commands.set_node("n0", "lost", "ann"))
    world.tell(NodeBack("n0"), NodeLost("n0"), NodeBack("n0"))
    assert world.writer.state.health.lost == {"n0"}
    world.writer.save_snapshot()
    world.crash()
    world.tell(NodeBack("n0"))
    assert world.writer.state.health.lost == {"n0"}
    world.ask(commands.set_node("n0", "up", "ann"))
    assert world.writer.state.health.lost == set()
    world.tell(NodeLost("n0"))
    world.tell(NodeBack("n0"))
    assert world.writer.state.health.lost == set()
    check_log(world)


def test_a_cordoned_node_gets_no_new_job_until_it_is_not(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, cluster=LAB)
    world.tell(NodeConditions("n0", ("cordoned",)), NodeConditions("n0", ("cordoned",)))
    first, second = world.submit(request(gpus=4), request(gpus=4))
    world.settle()
    assert (names(world, first), names(world, second)) == (["n1"], [])
    world.ask(commands.set_node("n0", "up", "ann"))
    assert names(world, second) == []
    world.tell(NodeConditions("n0", ()))
    assert names(world, second) == ["n0"]
    check_log(world)
