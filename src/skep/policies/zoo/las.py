"""Least attained service."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.preempt import Preempt
from skep.policies.common import COMPAT, common_knobs, make_pipeline
from skep.policies.order.queues import Queues
from skep.policies.order.simple import LeastAttained
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.replica import QueuesReplica, check_compat

LEAD_MIN_S = 0.1


def build(knobs: Knobs, setting: Setting) -> Planner:
    by_size = knobs["service"] == "gpu-seconds"
    limits = check_limits(knobs["queues"])
    if knobs["compat"]:
        check_compat(knobs)
        if not limits:
            raise InputError("las: compat=true needs queues", hint="for example queues=3250+7200")
        return QueuesReplica("las", limits, by_size=by_size)
    if limits:
        return make_pipeline("las", knobs, setting, order=Queues(limits, by_size=by_size), preempt=Preempt())
    # With rounds, the round itself keeps jobs from switching all the time.
    lead = 0.0 if setting.round_s else knobs["lead"]
    if not setting.round_s and lead < LEAD_MIN_S:
        raise InputError(
            f"las: lead={lead:g}: jobs with equal service would preempt each other without end",
            hint=f"a lead of at least {LEAD_MIN_S:g} s, queues, or decisions in rounds",
        )
    order = LeastAttained(by_size=by_size, lead=lead)
    return make_pipeline("las", knobs, setting, order=order, preempt=Preempt())


def check_limits(limits: tuple[float, ...]) -> tuple[float, ...]:
    if list(limits) != sorted(set(limits)) or (limits and limits[0] <= 0):
        raise InputError("queues must be limits above 0, each above the one before", hint="queues=3250+7200")
    return limits


POLICIES = (
    Policy(
        name="las",
        title="Least attained service first, preempting; continuous, or in discrete queues.",
        paper="Nuijens and Wierman, The Foreground-Background Queue: A Survey, 2008",
        assumes=frozenset({Need.CHECKPOINT}),
        build=build,
        knobs=(
            *common_knobs(walk="skip"),
            Knob("service", "gpu-seconds", "what is counted", ("gpu-seconds", "seconds")),
            Knob("queues", (), "limits of the queues in that unit; none: continuous"),
            Knob(
                "lead",
                600.0,
                "without queues: seconds (at least 0.1) that a running job is ahead of jobs with equal service, so "
                "that jobs do not switch all the time; not used when decisions come in rounds",
            ),
            COMPAT,
        ),
    ),
)
