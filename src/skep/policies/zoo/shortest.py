"""Orders by duration and size: the clairvoyant baselines, and prediction from history (QSSF)."""

from __future__ import annotations

from collections.abc import Callable

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.preempt import Preempt
from skep.policies.common import COMPAT, common_knobs, make_pipeline
from skep.policies.estimate.duration import Duration, LikeFinished
from skep.policies.order.base import Order
from skep.policies.order.simple import Remaining, Shortest, Smallest
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.replica import SortedReplica, check_compat

Build = Callable[[Knobs, Setting], Planner]

KNOWN = Knob("estimate", "known", "known: owner's estimate; history: mean of similar jobs", ("known", "history"))
ESTIMATES = {"known": Duration, "history": LikeFinished}


CLAIRVOYANT = frozenset({Need.ORACLE, Need.CHECKPOINT})


def by_estimate(knobs: Knobs) -> frozenset[Need]:
    return frozenset({Need.ORACLE if knobs["estimate"] == KNOWN.default else Need.HISTORY})


def non_preemptive(name: str, *, by_size: bool) -> Build:
    def build(knobs: Knobs, setting: Setting) -> Planner:
        estimate = ESTIMATES[knobs["estimate"]]()
        order = Shortest(estimate, by_size=by_size)
        return make_pipeline(name, knobs, setting, order=order, estimate=estimate)

    return build


def preemptive(name: str, order: Callable[[], Order]) -> Build:
    def build(knobs: Knobs, setting: Setting) -> Planner:
        if knobs["compat"]:
            check_compat(knobs)
            return SortedReplica(name, name)
        return make_pipeline(name, knobs, setting, order=order(), preempt=Preempt())

    return build


POLICIES = (
    Policy(
        name="sjf",
        title="Shortest job first, without preemption.",
        paper="folklore",
        assumes=by_estimate,
        build=non_preemptive("sjf", by_size=False),
        knobs=(*common_knobs(walk="strict"), KNOWN),
    ),
    Policy(
        name="qssf",
        title="Quasi-shortest service first: least predicted duration × GPUs, without preemption.",
        paper="Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios), SC 2021",
        assumes=by_estimate,
        build=non_preemptive("qssf", by_size=True),
        knobs=(*common_knobs(walk="strict"), Knob("estimate", "history", KNOWN.help, KNOWN.choices)),
    ),
    Policy(
        name="smallest",
        title="Fewest GPUs first, preempting larger jobs.",
        paper="baseline of Gu et al., Tiresias, NSDI 2019 (called sjf there)",
        assumes=frozenset({Need.CHECKPOINT}),
        build=preemptive("smallest", Smallest),
        knobs=(*common_knobs(walk="skip"), COMPAT),
    ),
    Policy(
        name="srtf",
        title="Shortest remaining time first, preempting.",
        paper="baseline of Gu et al., Tiresias, NSDI 2019 (called shortest there)",
        assumes=CLAIRVOYANT,
        build=preemptive("srtf", lambda: Remaining(Duration())),
        knobs=(*common_knobs(walk="skip"), COMPAT),
    ),
    Policy(
        name="srsf",
        title="Shortest remaining service (time × GPUs) first, preempting: the clairvoyant reference for average JCT.",
        paper="baseline of Gu et al., Tiresias, NSDI 2019 (called `shortest-gpu` there)",
        assumes=CLAIRVOYANT,
        build=preemptive("srsf", lambda: Remaining(Duration(), by_size=True)),
        knobs=(*common_knobs(walk="skip"), COMPAT),
    ),
)
