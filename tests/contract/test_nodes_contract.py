"""What every engine must do about nodes, tenants of others and jobs that are forgotten."""

from __future__ import annotations

import pytest
from subjects import Subject

from skep.core.actions import Launch, Stop
from skep.core.allocation import Allocation, Slice
from skep.core.cluster import Cluster, NodeSpec
from skep.core.errors import NotFound
from skep.core.events import NodeChanged, NodeConditions, NodeJoined, NodeLeft, OthersChanged
from skep.core.ports import Capability
from skep.core.reports import Exited, Started

NODES = Capability.NODES


def on(node: int) -> Allocation:
    return Allocation((Slice(node, gpus=1),), 1)


def test_launches_go_to_nodes_by_name_while_the_cluster_changes(subject: Subject) -> None:
    subject.do(Launch("1", on(1), 1))
    subject.wait(Started, "1")
    subject.join_node("a")
    subject.cluster = Cluster([NodeSpec("a", 4), NodeSpec("n0", 4), NodeSpec("n1", 4)])
    subject.engine.use_cluster(subject.cluster)
    subject.do(Launch("2", on(0), 1))
    assert subject.wait(Started, "2").launch == 1
    assert [task.node for task in subject.engine.tasks("2")] in (["a"], [])
    assert subject.goes_on("1"), "it keeps the node that it has"
    subject.cluster = Cluster([NodeSpec("n1", 4)])
    subject.engine.use_cluster(subject.cluster)
    assert subject.goes_on("1")
    subject.do(Stop("1", "test", launch=1))
    assert subject.wait(Exited, "1").was_stopped


@pytest.mark.needs(Capability.LOGS)
def test_what_is_forgotten_is_gone_and_what_runs_is_not(subject: Subject) -> None:
    subject.do(Launch("1", on(0), 1))
    subject.wait(Started, "1")
    subject.engine.forget("2")
    assert subject.goes_on("1")
    subject.finish()
    subject.wait(Exited, "1")
    subject.engine.settle(subject.epoch, "1", 1)
    subject.engine.check_log("1")
    subject.engine.forget("1")

    def is_gone() -> bool:
        try:
            subject.engine.check_log("1")
        except NotFound:
            return True
        return False

    assert subject.until(is_gone)


@pytest.mark.needs(NODES)
def test_nodes_that_join_change_are_cordoned_and_vanish_are_told(subject: Subject) -> None:
    subject.join_node("extra", {"zone": "a"})
    assert subject.until(lambda: any("zone=a" in spec.tags for spec in specs(subject, NodeChanged, NodeJoined)))
    assert len(specs(subject, NodeJoined)) == 1
    last = specs(subject, NodeChanged, NodeJoined)[-1]
    assert (last.gpus, dict(last.extras)["pods"]) == (4, 110)
    subject.join_node("extra", {"zone": "b"})
    assert subject.until(lambda: any("zone=b" in spec.tags for spec in specs(subject, NodeChanged)))
    subject.change_node("extra", is_cordoned=True)
    assert subject.until(lambda: NodeConditions("extra", ("cordoned",)) in subject.told)
    subject.change_node("extra", is_cordoned=False)
    assert subject.until(lambda: subject.told[-1:] == [NodeConditions("extra", ())])
    subject.remove_node("extra")
    assert subject.until(lambda: NodeLeft("extra") in subject.told)


def specs(subject: Subject, *kinds: type) -> list[NodeSpec]:
    told = (report for report in subject.told if isinstance(report, NodeJoined | NodeChanged))
    return [report.spec for report in told if isinstance(report, kinds) and report.spec.name == "extra"]


@pytest.mark.needs(NODES)
def test_what_others_use_is_told_by_count(subject: Subject) -> None:
    def counts() -> list[int]:
        told = (report for report in subject.told if isinstance(report, OthersChanged) and report.node == "n1")
        return [sum(use.count for use in report.uses) for report in told]

    subject.start_foreign("n1", 3)
    assert subject.until(lambda: counts()[-1:] == [3])
    subject.crash()
    subject.told.clear()
    subject.adopt()
    assert subject.until(lambda: counts()[-1:] == [3]), "also to the next server"
    subject.start_foreign("n1", 0)
    assert subject.until(lambda: counts()[-1:] == [0])


@pytest.mark.needs(NODES)
def test_a_launch_whose_tasks_somebody_deletes_ends(subject: Subject) -> None:
    subject.do(Launch("1", on(0), 1))
    subject.wait(Started, "1")
    subject.delete_tasks()
    told = subject.wait(Exited, "1")
    assert (told.cause, told.code, told.was_stopped) == ("deleted", 137, False)
    assert subject.until(lambda: subject.there() == set()), "its kubelet may end it later"
