"""AntMan: opportunistic jobs use what guaranteed ones leave of their GPUs."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.classes import EvictGuests, Upgrade
from skep.policies.common import common_knobs, make_pipeline, make_place
from skep.policies.order.classes import NO_QUOTAS, Classes
from skep.policies.order.shares import EQUAL
from skep.policies.place.lend import Lend
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting
from skep.policies.zoo.yarn_cs import quotas


def build(knobs: Knobs, setting: Setting) -> Planner:
    per_gpu = knobs["per_gpu"]
    if per_gpu != int(per_gpu):
        raise InputError(f"antman: per_gpu={per_gpu:g}: expected a whole number of jobs")
    kind = knobs["quotas"]
    order = Classes(kind if kind == NO_QUOTAS else quotas(kind, setting), setting.vcs)
    place = Lend(
        make_place(knobs, setting),
        order,
        per_gpu=int(per_gpu),
        busy=knobs["busy"],
        is_sharing=Need.SHARE in setting.offers,
    )
    return make_pipeline(
        "antman", knobs, setting, order=order, preempt=EvictGuests(place), adjust=(Upgrade(order),), place=place
    )


POLICIES = (
    Policy(
        name="antman",
        title="Guaranteed jobs have quota and run as if alone; opportunistic ones (by claim, or of negative priority) "
        "run beside them on the least used GPUs; those that claim `auto` become guaranteed when there is quota.",
        paper="Xiao et al., AntMan: Dynamic Scaling on GPU Clusters for Deep Learning, OSDI 2020",
        assumes=frozenset({Need.THROUGHPUT, Need.SHARE, Need.CHECKPOINT}),
        build=build,
        acts_on=ActsOn(
            "a claim to what others leave (claim, or a negative priority)",
            lambda job: job.priority < 0 or (job.share is not None and job.share.claim != "guaranteed"),
            "it runs like fifo:walk=skip",
        ),
        knobs=(
            *common_knobs(walk="skip"),
            Knob(
                "quotas",
                NO_QUOTAS,
                "GPUs that the guaranteed jobs of each VC may have. none: all that there are, in a virtual cluster all "
                "of its cells; equal: the same for all; FILE: a CSV of `vc,gpus`",
                (NO_QUOTAS, EQUAL),
                is_file=True,
            ),
            Knob("per_gpu", 1.0, "opportunistic jobs on one GPU at most"),
            Knob("busy", 0.8, "a GPU that is used as much, or more, takes no opportunistic job"),
        ),
    ),
)
