"""Optimus gives GPUs one by one, each to the job whose remaining time it shortens most."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.allocate.elastic import ElasticSizes
from skep.policies.common import make_place, placing_knobs
from skep.policies.optimus import Optimus
from skep.policies.place import build_place
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.zoo.pollux import need_solvers

LOSS = "loss"


def needs(knobs: Knobs) -> frozenset[Need]:
    known = Need.PROGRESS if knobs["lengths"] == LOSS else Need.ORACLE
    return frozenset({known, Need.CHECKPOINT, Need.RESIZE, Need.THROUGHPUT})


def build(knobs: Knobs, setting: Setting) -> Planner:
    is_compat = knobs["compat"]
    if knobs["lengths"] == LOSS:
        if is_compat:
            raise InputError("optimus: compat=true knows lengths: leave lengths=loss out")
        need_solvers("optimus:lengths=loss")
    return Optimus(
        name="optimus",
        place=build_place("roomiest") if is_compat else make_place(knobs, setting),
        sizes=ElasticSizes(can_resize=Need.RESIZE in setting.offers),
        restart_s=knobs["restart"],
        by_steps=is_compat,
        by_loss=knobs["lengths"] == LOSS,
    )


POLICIES = (
    Policy(
        name="optimus",
        title="In every round each job gets its smallest size, then GPUs go one by one to the job whose remaining time "
        "each shortens most; lengths and speeds are known, or lengths "
        "follow from losses. Jobs sit evenly on as few nodes as possible.",
        paper="Peng et al., Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters, EuroSys 2018",
        assumes=needs,
        build=build,
        knobs=(
            Knob("round_s", 600.0, "decide at multiples of so many seconds; 0: whenever something happens"),
            *placing_knobs("even"),
            Knob("restart", 30.0, "seconds a change of size costs: growing must bring more than that"),
            Knob(
                "lengths",
                "known",
                "`known`, or `loss`: a job has converged when the curve that is fitted to the losses it reports falls "
                "by less than 5 % of the largest in 10 epochs",
                choices=("known", LOSS),
            ),
            Knob(
                "compat",
                False,
                "imitate the Optimus of Pollux' simulator: times by measured training steps, no cost of restarts, "
                "nodes with the most free GPUs first",
            ),
        ),
    ),
)
