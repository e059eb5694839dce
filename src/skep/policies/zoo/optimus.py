"""Optimus gives GPUs one by one, each to the job whose remaining time it shortens most."""

from __future__ import annotations

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.allocate.elastic import ElasticSizes
from skep.policies.common import make_place, placing_knobs
from skep.policies.optimus import Optimus
from skep.policies.place import build_place
from skep.policies.registry import Knob, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    is_compat = knobs["compat"]
    return Optimus(
        name="optimus",
        place=build_place("roomiest") if is_compat else make_place(knobs, setting),
        sizes=ElasticSizes(can_resize=Need.RESIZE in setting.offers),
        restart_s=knobs["restart"],
        by_steps=is_compat,
    )


POLICIES = (
    Policy(
        name="optimus",
        title="In every round each job gets its smallest size, then GPUs go one by one to the job whose remaining time "
        "each shortens most; lengths and speeds are known. Jobs sit evenly on as few nodes as possible.",
        paper="Peng et al., Optimus: An Efficient Dynamic Resource Scheduler for Deep Learning Clusters, EuroSys 2018",
        assumes=frozenset({Need.ORACLE, Need.CHECKPOINT, Need.RESIZE, Need.THROUGHPUT}),
        build=build,
        knobs=(
            Knob("round_s", 600.0, "decide at multiples of so many seconds; 0: whenever something happens"),
            *placing_knobs("even"),
            Knob("restart", 30.0, "seconds a change of size costs: growing must bring more than that"),
            Knob(
                "compat",
                False,
                "imitate the Optimus of Pollux' simulator: times by measured training steps, no cost of restarts, "
                "nodes with the most free GPUs first",
            ),
        ),
    ),
)
