"""A snapshot restores a state, and a fork is independent of the first."""

from __future__ import annotations

from tests.support import check, cluster, job
from tests.support.snapshot import snapshot
from tests.unit.core.by_hand import ByHand, gpus

from skep.core.cluster import NodeSpec
from skep.core.events import JobHeld, NodeDrained, NodeJoined
from skep.core.refusal import Cause
from skep.core.snapshot import dump, fork, load


def world() -> ByHand:
    made = ByHand(job(id="a", time_limit_s=50.0), job(id="b"), job(id="c"), job(id="d"))
    made.start("a", gpus(0, 0b1))
    made.start("b", gpus(1, 0b1))
    made.suspend("b")
    made.apply(JobHeld("c", "wait", until_s=30.0), NodeDrained("n0"))
    made.decide(lambda plan: plan.wait(made["d"], "line"), lambda plan: plan.refuse("line", Cause.QUOTA))
    return made


def test_a_loaded_snapshot_is_the_same_state() -> None:
    made = world()
    restored = load(dump(made.state), cluster("2x2"))
    check(restored)
    assert snapshot(restored) == snapshot(made.state)
    assert restored.next_timer_s == made.state.next_timer_s
    assert restored.jobs["d"].waiting is restored.waits.scopes["line"]


def test_the_snapshot_knows_the_nodes_that_joined() -> None:
    made = world()
    made.state.advance(made.state.now_s, [NodeJoined(NodeSpec("extra", 4))])
    restored = load(dump(made.state), cluster("2x2"))
    assert [node.name for node in restored.cluster.nodes] == ["n0", "n1", "extra"]


def test_a_fork_goes_its_own_way() -> None:
    made = world()
    before = dump(made.state)
    copy = fork(made.state)
    assert dump(copy) == before
    plan = copy.new_plan()
    plan.start(copy.jobs["d"], gpus(1, 0b10))
    copy.commit(plan)
    assert dump(made.state) == before
    assert copy.jobs["d"].spec is made["d"].spec
