"""Gandiva_fair gives every user the same GPU time of each type, and lets users trade types."""

from __future__ import annotations

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import PROBE
from skep.policies.gandiva_fair import GandivaFair
from skep.policies.registry import Knob, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    return GandivaFair(
        name="gandiva-fair",
        quantum_s=knobs["quantum"],
        price=knobs["price"],
        trades=knobs["trade"],
        gap=knobs["gap"],
        cool_down_s=knobs["cool_down"],
        weights=setting.weights,
        probe_s=knobs["probe"],
    )


POLICIES = (
    Policy(
        name="gandiva-fair",
        title="Every user has a share of the GPU time of each type by its weight, divided among its jobs by stride "
        "scheduling in quanta, with whole gangs; users trade shares of fast types for slow ones, and jobs migrate to "
        "balance the nodes.",
        paper="Chaudhary et al., Balancing Efficiency and Fairness in Heterogeneous GPU Clusters for Deep Learning "
        "(Gandiva_fair), EuroSys 2020",
        assumes=frozenset({Need.THROUGHPUT, Need.SUSPEND, Need.CHECKPOINT}),
        build=build,
        knobs=(
            Knob("quantum", 60.0, "seconds of a turn, at least 1", least=1.0),
            Knob("trade", True, "users exchange shares of GPU types where both gain"),
            Knob("price", 0.0, "GPUs of the slower type for one of the faster; 0: the second-highest speed-up"),
            Knob(
                "gap", 0.2, "a job moves if that takes it to GPUs with so many fewer tickets, as a part of the average"
            ),
            Knob("cool_down", 600.0, "seconds between two moves of a job"),
            PROBE,
        ),
    ),
)
