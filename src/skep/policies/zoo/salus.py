"""Salus: several jobs on a GPU, in lanes of memory."""

from __future__ import annotations

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_pipeline, make_place
from skep.policies.order.simple import Fifo
from skep.policies.place.lanes import Lanes
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting

WITHIN = Knob(
    "within",
    "rr",
    "fifo: one job of a GPU at a time; pack: all whose memory fits; rr: jobs of a lane in equal turns; fair: in turns "
    "that make memory × time equal",
    ("fifo", "rr", "fair", "pack"),
)


def build(knobs: Knobs, setting: Setting) -> Planner:
    place = make_place(knobs, setting)
    if Need.SHARE in setting.offers:
        place = Lanes(place, knobs["within"])
    return make_pipeline("salus", knobs, setting, order=Fifo(), place=place)


POLICIES = (
    Policy(
        name="salus",
        title="First come, first served; jobs of one GPU share it where their memory fits: those of a lane take turns, "
        "lanes run at once.",
        paper="Yu and Chowdhury, Salus: Fine-Grained GPU Sharing Primitives for Deep Learning Applications, MLSys 2020",
        assumes=frozenset({Need.SHARE}),
        build=build,
        acts_on=ActsOn(
            "one GPU and its memory (gpu_mem_gib, or persistent_gib and ephemeral_gib)",
            lambda job: job.shapes[0].gpus == 1 and job.shapes[0].roles[0].gpu_mem_gib > 0,
            "no two jobs share a GPU, and it runs like fifo:walk=skip",
        ),
        knobs=(*common_knobs(walk="skip"), WITHIN),
    ),
)
