"""First come, first served."""

from __future__ import annotations

from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.simple import Fifo
from skep.policies.registry import Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    return make_pipeline("fifo", knobs, setting, order=Fifo())


POLICIES = (
    Policy(
        name="fifo",
        title="First come, first served; with walk=skip smaller jobs pass a blocked one, with walk=easy only if they "
        "do not delay it.",
        paper="EASY: Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995",
        build=build,
        knobs=common_knobs(walk="strict"),
    ),
)
