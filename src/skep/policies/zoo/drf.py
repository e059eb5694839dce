"""Dominant resource fairness."""

from __future__ import annotations

from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.shares import DominantShare
from skep.policies.registry import Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    return make_pipeline("drf", knobs, setting, order=DominantShare())


POLICIES = (
    Policy(
        name="drf",
        title="Dominant resource fairness over users (VCs where no user is named): the one with the smallest share of "
        "the resource it uses most goes next.",
        paper="Ghodsi et al., Dominant Resource Fairness, NSDI 2011",
        build=build,
        knobs=common_knobs(walk="skip"),
    ),
)
