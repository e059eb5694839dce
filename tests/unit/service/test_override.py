"""What is stored of cluster and policy outlives its files, and gives way to whoever brings another."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_world import LiveWorld, request

from skep.core.errors import Conflict
from skep.core.record import decode
from skep.service import commands
from skep.service.override import override
from skep.service.recover import recompute
from skep.service.store import Store
from skep.service.writer import Writer

OWN = """
from skep.policies import Order

class Mine(Order):
    def key(self, job, now_s):
        return (-job.gpus, job.seq)
"""
LAB = "nodes: [{name: a, gpus: 4}]"
LAB2 = "nodes: [{name: a, gpus: 4}, {name: b, gpus: 4}]"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    return file


def restart(world: LiveWorld, cluster: tuple[str, str] | None = None, policy: str | None = None) -> None:
    world.store.close()
    world.store = Store(world.folder / "skep.db")
    world.writer = Writer(world.store, world.now_s)
    override(world.writer, cluster, policy, world.now_s)
    world.puppet.launched.clear()
    world.writer.start(world.puppet)


def forget_texts(world: LiveWorld) -> None:
    """As a store of format 1 has it: policies by name alone."""
    world.writer.ground.files = {}
    world.writer.save_snapshot()


def test_an_own_policy_outlives_its_file(tmp_path: Path, own: Path) -> None:
    world = LiveWorld(tmp_path)
    world.ask(commands.use_policy(f"{own}:Mine", "ann"))
    own.unlink()
    for _ in range(2):  # from the log, then from a snapshot
        restart(world)
        world.submit(request("small", 1), request("large", 8))
        assert world.writer.planning.planner.name == "Mine"
        world.writer.save_snapshot()
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def test_the_events_tell_which_text_is_in_charge(tmp_path: Path, own: Path) -> None:
    world = LiveWorld(tmp_path)
    said = []
    for text in (OWN, OWN + "# changed"):
        own.write_text(text)
        world.ask(commands.use_policy(f"{own}:Mine", "ann"))
        said.append(world.store.notices(0, None, 100)[-1].text)
    assert "(sha256 " in said[0]
    assert said[0].partition(" instead")[0] != said[1].partition(" instead")[0]


def test_a_file_that_a_knob_names_is_kept_too(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.csv"
    quotas.write_text("default,4\n")
    world = LiveWorld(tmp_path)
    world.ask(commands.use_policy(f"yarn-cs:quotas={quotas}", "ann"))
    quotas.unlink()
    restart(world)
    assert world.writer.planning.planner.name == "yarn-cs"


def test_the_policy_of_a_vc_outlives_its_file(tmp_path: Path, own: Path) -> None:
    world = LiveWorld(tmp_path)
    text = f"nodes: [{{name: a, gpus: 4}}]\nvcs: {{default: {{cells: 1 node, policy: '{own}:Mine'}}}}\n"
    world.ask(commands.apply_cluster(text, "lab.yaml", "ann"))
    own.unlink()
    restart(world)
    world.ask(commands.use_policy("srtf", "ann"))
    restart(world)
    assert world.submit(request()) == ["1"]


def test_without_text_nor_file_another_policy_can_be_brought(tmp_path: Path, own: Path) -> None:
    world = LiveWorld(tmp_path)
    world.ask(commands.use_policy(f"{own}:Mine", "ann"))
    forget_texts(world)
    own.unlink()
    restart(world)
    assert world.writer.ground.policy == "fifo"  # for now
    assert "does not exist" in world.writer.state.faults[""].error
    restart(world, policy="las")
    assert world.writer.ground.policy == "las"
    assert not world.writer.state.faults
    restart(world)
    (job,) = world.submit(request())
    world.settle()
    assert world.state(job) == "running"


def test_a_job_on_a_node_that_the_new_cluster_lacks_waits_again(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, LAB)
    world.ask(commands.apply_cluster(LAB2, "lab2.yaml", "ann"))
    here, there, next_one = world.submit(request(gpus=4), request(gpus=4), request(gpus=4))
    world.settle()
    restart(world, cluster=("lab.yaml", LAB))
    assert [node.name for node in world.writer.state.cluster.nodes] == ["a"]
    world.settle()
    assert [world.state(job) for job in (here, there, next_one)] == ["running", "pending", "pending"]
    assert "its node b is not in the new cluster" in world.store.attempts(int(there))[0].phrase
    world.end(here)
    assert world.state(there) == "running"
    world.crash()
    assert recompute([decode(entry) for entry in world.store.entries()]) == []


def test_a_node_with_fewer_gpus_is_used_as_far_as_it_goes(tmp_path: Path) -> None:
    world = LiveWorld(tmp_path, LAB2)
    large, small = world.submit(request(gpus=8), request(gpus=1))
    world.settle()
    restart(world, cluster=("new.yaml", "nodes: [{name: a, gpus: 4}, {name: b, gpus: 2}]"))
    world.settle()
    assert not world.writer.state.health.drained
    assert [world.state(job) for job in (large, small)] == ["failed", "running"]


def test_a_vc_with_open_jobs_cannot_go(tmp_path: Path) -> None:
    with_vcs = "nodes: [{name: a, gpus: 4}]\nvcs: {%s: 1 node}\n"
    world = LiveWorld(tmp_path, with_vcs % "one")
    world.submit(request(vc="one"))
    before = world.store.log_seq
    with pytest.raises(Conflict) as raised:
        restart(world, cluster=("lab.yaml", with_vcs % "two"))
    assert "without --cluster" in raised.value.hint
    restart(world)
    assert world.store.log_seq == before


def test_what_is_stored_already_changes_nothing(tmp_path: Path, own: Path) -> None:
    world = LiveWorld(tmp_path, LAB)
    restart(world, cluster=("lab.yaml", LAB), policy=f"{own}:Mine")
    before = world.store.log_seq
    restart(world, cluster=("lab.yaml", LAB), policy=f"{own}:Mine")
    assert world.store.log_seq == before
    own.write_text(OWN + "# better")
    restart(world, policy=f"{own}:Mine")
    assert world.store.log_seq == before + 1
