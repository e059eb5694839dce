"""Singularity: jobs are promised a part of the GPU time of every hour, by tiers; all other work gives way."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.give_way import GiveWay
from skep.policies.adjust.promised import AffordableSplice, LendHomes, SparePromised
from skep.policies.adjust.rotate import Rotate
from skep.policies.common import common_knobs, make_place
from skep.policies.order.promises import Promises
from skep.policies.pipeline import SKIP
from skep.policies.place.homes import Homes
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting
from skep.policies.tiers import TierPipeline


def build(knobs: Knobs, setting: Setting) -> Planner:
    tiers = {tier: milli_of(tier, knobs[tier]) for tier in ("premium", "standard")}
    depth = knobs["depth"]
    if depth != int(depth) or depth < 1:
        raise InputError(f"singularity: depth={depth:g}: expected a whole number of workers, at least 1")
    order = Promises(tiers, restart_s=knobs["restart"], lend_s=knobs["lend"], round_s=setting.round_s)
    beneath = make_place(knobs, setting)
    place = Homes(beneath, order)
    splice = AffordableSplice(order, depth=int(depth), cool_down_s=knobs["cool_down"])
    moves = Need.MIGRATE in setting.offers
    return TierPipeline(
        name="singularity",
        order=order,
        place=place,
        give_way=GiveWay(order, splice, place, cool_down_s=knobs["cool_down"], moves=moves),
        preempt=SparePromised(order),
        adjust=(splice, Rotate(order, turn_s=knobs["turn"]), LendHomes(order, splice, place, moves=moves)),
        walk=SKIP,
        borrows=knobs["borrow"] == "auto",
    )


def milli_of(tier: str, part: float) -> int:
    if not 0 <= part <= 1:
        raise InputError(f"singularity: {tier}={part:g}: expected a part of an hour, 0 to 1")
    return round(part * 1000)


POLICIES = (
    Policy(
        name="singularity",
        title="Jobs of the tiers premium and standard are promised a part of the GPU time of every hour; a promise "
        "that does not fit is refused. When one is due, others are scaled down, moved or stopped, in that order, jobs "
        "without a promise first; these take turns, the most under-served first.",
        paper="Shukla et al., Singularity: Planet-Scale, Preemptive and Elastic Scheduling of AI Workloads, 2022",
        assumes=frozenset({Need.CHECKPOINT, Need.MIGRATE}),
        build=build,
        acts_on=ActsOn(
            "a promise (tier, or promise_milli)",
            lambda job: job.share is not None and (job.share.tier != "basic" or job.share.promise_milli > 0),
            "all jobs are of the tier basic, which is promised nothing",
        ),
        knobs=(
            *(knob for knob in common_knobs(walk=SKIP) if knob.name not in ("walk", "adjust")),
            Knob("premium", 0.95, "the part of every hour that premium jobs are promised"),
            Knob("standard", 0.7, "the part of every hour that standard jobs are promised"),
            Knob("restart", 60.0, "seconds that a start may take, together with the stops before it"),
            Knob("depth", 4.0, "workers of one job on one GPU at most; 1: no job is scaled down"),
            Knob(
                "turn",
                900.0,
                "a job without a promise gives way to one that has had so many seconds less than it, at least 1",
                least=1.0,
            ),
            Knob(
                "lend", 900.0, "a promised job that can spare its GPUs for so many seconds gives them to one that waits"
            ),
            Knob("cool_down", 600.0, "seconds between two moves, or two changes of size, of a job"),
        ),
    ),
)
