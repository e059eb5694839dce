"""AlloX matches jobs to machines of different speeds so that they end soonest on average."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.allox import AlloX
from skep.policies.common import PROBE, make_place, placing_knobs
from skep.policies.registry import Knob, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    fraction, window = knobs["fraction"], knobs["window"]
    if not 0 < fraction <= 1:
        raise InputError(f"allox: fraction={fraction:g}: expected a part of the users, above 0 and at most 1")
    if window != int(window) or window < 1:
        raise InputError(f"allox: window={window:g}: expected a whole number of jobs, at least 1")
    return AlloX(
        name="allox", place=make_place(knobs, setting), fraction=fraction, window=int(window), probe_s=knobs["probe"]
    )


POLICIES = (
    Policy(
        name="allox",
        title="Jobs are matched to slices of nodes of different speeds, GPUs or CPUs, so that their completion times "
        "add up to the least; a job may wait for a faster type. Without preemption, but for priorities.",
        paper="Le et al., AlloX: Compute Allocation in Hybrid Clusters, EuroSys 2020",
        assumes=frozenset({Need.ORACLE, Need.THROUGHPUT}),
        build=build,
        knobs=(
            *placing_knobs(),
            Knob("fraction", 1.0, "the part of the users, those who hold the least, whose jobs are matched first"),
            Knob("window", 100.0, "the most jobs that are matched at once, those with the least service"),
            PROBE,
        ),
    ),
)
