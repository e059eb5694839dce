"""SLAQ gives GPUs one by one, each to the job whose loss it lowers most."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.allocate.elastic import ElasticSizes
from skep.policies.common import make_place, placing_knobs
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting
from skep.policies.slaq import Slaq
from skep.policies.zoo.pollux import need_solvers


def build(knobs: Knobs, setting: Setting) -> Planner:
    if not setting.round_s:
        raise InputError("slaq: round_s=0: expected seconds, above 0")
    need_solvers("slaq")
    return Slaq(
        name="slaq",
        place=make_place(knobs, setting),
        sizes=ElasticSizes(can_resize=Need.RESIZE in setting.offers),
        restart_s=knobs["restart"],
        horizon_s=setting.round_s,
    )


POLICIES = (
    Policy(
        name="slaq",
        title="In every round each job gets its smallest size, then GPUs go one by one to the job whose loss each "
        "lowers most until the next round, relative to its largest change so far; curves are fitted to the losses "
        "that jobs report.",
        paper="Zhang et al., SLAQ: Quality-Driven Scheduling for Distributed Machine Learning, SoCC 2017",
        assumes=frozenset({Need.PROGRESS, Need.CHECKPOINT, Need.RESIZE, Need.THROUGHPUT}),
        build=build,
        knobs=(
            Knob("round_s", 600.0, "decide at multiples of so many seconds"),
            *placing_knobs("even"),
            Knob("restart", 30.0, "seconds a change of size costs: growing must bring more than that"),
        ),
        acts_on=ActsOn(
            "a range of GPUs (min_gpus, max_gpus)",
            lambda spec: spec.gpu_range is not None,
            "it then only starts jobs of fixed sizes in the order of submission",
        ),
    ),
)
