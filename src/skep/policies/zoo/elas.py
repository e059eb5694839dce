"""E-LAS: least attained service, with the progress in epochs."""

from __future__ import annotations

import math

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.preempt import Preempt
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.progress import FORMS, ProgressAndService
from skep.policies.registry import Knob, Knobs, Policy, Setting

LEAD_MIN = {"sum": 0.001, "product": 0.1, "remaining": 0.0}
"""Without rounds: a fraction in the sum form, GPU-seconds in the product form."""


def build(knobs: Knobs, setting: Setting) -> Planner:
    form = knobs["form"]
    if knobs["weight"] > 1:
        raise InputError(f"e-las: weight={knobs['weight']:g}: expected a number from 0 to 1")
    if not 0 < knobs["scale"] < math.inf:
        raise InputError(f"e-las: scale={knobs['scale']:g}: expected GPU-seconds above 0")
    lead = knobs["lead"] if form == "sum" else knobs["lead"] * knobs["scale"]
    least = LEAD_MIN[form]
    if lead < least and not setting.round_s:
        raise InputError(
            f"e-las: lead={knobs['lead']:g}: jobs that are level with each other would switch without end",
            hint=f"a lead of at least {least if form == 'sum' else least / knobs['scale']:g}, or decisions in rounds",
        )
    order = ProgressAndService(form=form, weight=knobs["weight"], scale=knobs["scale"], lead=lead)
    return make_pipeline("e-las", knobs, setting, order=order, preempt=Preempt())


POLICIES = (
    Policy(
        name="e-las",
        title="Attained service and epoch progress together: little service and much progress go first, preempting.",
        paper="Sultana et al., E-LAS: Design and Analysis of Completion-Time Agnostic Scheduling, ICPP 2020",
        assumes=frozenset({Need.PROGRESS, Need.ORACLE, Need.CHECKPOINT}),
        build=build,
        knobs=(
            *common_knobs(walk="skip"),
            Knob(
                "form",
                "sum",
                "S service, p progress. sum: weight·S/(S+scale) + (1-weight)·(1-p); product: S·(1-p); "
                "remaining: S·(1-p)/p, for which running jobs are looked at only when jobs come and go",
                FORMS,
            ),
            Knob("weight", 0.5, "of the service in the sum, 0 to 1"),
            Knob("scale", 7200.0, "GPU-seconds that count as half of all service"),
            Knob(
                "lead",
                0.1,
                "how far behind a running job must be before it can be preempted (× scale but in the sum)",
            ),
        ),
    ),
)
