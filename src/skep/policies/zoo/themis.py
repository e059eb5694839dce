"""Themis leases GPUs and auctions them among the apps that are treated worst."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import PROBE, make_place, placing_knobs
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.themis import Themis


def build(knobs: Knobs, setting: Setting) -> Planner:
    lease_s, left_out = knobs["lease"], knobs["left_out"]
    if left_out > 1:
        raise InputError(f"themis: left_out={left_out:g}: expected a part of the apps, at most 1")
    return Themis(
        name="themis", place=make_place(knobs, setting), lease_s=lease_s, left_out=left_out, probe_s=knobs["probe"]
    )


POLICIES = (
    Policy(
        name="themis",
        title="GPUs are leased; those that are free or whose lease is over are auctioned among the apps (job groups "
        "or single jobs) with the worst finish-time fairness, by Nash welfare with payments; the others get the rest, "
        "the worst first.",
        paper="Mahajan et al., Themis: Fair and Efficient GPU Cluster Scheduling, NSDI 2020",
        assumes=frozenset({Need.ORACLE, Need.THROUGHPUT, Need.CHECKPOINT}),
        build=build,
        knobs=(
            *placing_knobs(),
            Knob("lease", 1200.0, "seconds for which GPUs are leased, at least 1", least=1.0),
            Knob("left_out", 0.8, "the part of the apps, those with the best fairness, that does not bid"),
            PROBE,
        ),
    ),
)
