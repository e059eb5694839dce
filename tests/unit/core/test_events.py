"""The order of an instant: one table, the same live and simulated."""

from __future__ import annotations

import math
from typing import get_args

from tests.support import cluster, job, trace
from tests.unit.core.by_hand import gpus

from skep.core.actions import Launch
from skep.core.events import (
    ORDER_OF_AN_INSTANT,
    Event,
    Exit,
    JobHeld,
    JobSubmitted,
    NodeLost,
    StopRequested,
    TasksExited,
    TasksResumed,
    TasksSuspended,
    TimerDue,
    in_order,
)
from skep.engines.sim.engine import Simulator
from skep.engines.sim.outages import Outages

EXIT = TasksExited("a", Exit.NODE_LOST, 0.0)
SUSPENDED, RESUMED = TasksSuspended("b", 1.0), TasksResumed("c", 1.0, 1.0, 0.0)
LOST, STOP, HELD = NodeLost("n0"), StopRequested("d", "by ann"), JobHeld("e", "by ann")
NEW, DUE = JobSubmitted(job(1, id="f").spec), TimerDue()


def test_every_event_has_one_place() -> None:
    listed = [kind for kinds in ORDER_OF_AN_INSTANT for kind in kinds]
    assert sorted(kind.__name__ for kind in listed) == sorted(kind.__name__ for kind in get_args(Event))


def test_tasks_come_before_nodes_then_submissions_owners_and_timers() -> None:
    wanted: list[Event] = [EXIT, SUSPENDED, RESUMED, LOST, NEW, STOP, HELD, DUE]
    assert in_order(reversed(wanted)) == [RESUMED, SUSPENDED, EXIT, LOST, NEW, HELD, STOP, DUE]
    assert in_order(wanted) == wanted


def test_the_simulator_reports_the_exits_of_a_lost_node_before_its_loss() -> None:
    jobs = trace(job(2, id="a", work=100.0), job(2, id="b", work=50.0), job(1, at=50.0, id="c")).jobs
    simulator = Simulator(jobs, cluster("2x2"), outages=Outages([(50.0, 0, True)]))
    simulator.observe(math.inf)
    node = simulator.rates.cluster.nodes[0].name
    simulator.execute(0.0, [Launch("a", gpus(0, 0b11), 1), Launch("b", gpus(1, 0b11), 1)])
    batch = simulator.observe(50.0)
    assert batch is not None
    assert batch.events == [
        TasksExited("b", Exit.FINISHED, 50.0),
        TasksExited("a", Exit.NODE_LOST, 0.0),
        NodeLost(node),
        JobSubmitted(jobs[2].spec),
        TimerDue(),
    ]
    assert batch.events == in_order(batch.events)
