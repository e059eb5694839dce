"""KubeShare: parts of GPUs with a request, a limit and labels."""

from __future__ import annotations

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_pipeline, make_place
from skep.policies.order.simple import Fifo
from skep.policies.place.labelled import Labelled
from skep.policies.registry import ActsOn, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    place = make_place(knobs, setting)
    if Need.SHARE in setting.offers:
        place = Labelled(place, is_simulated=Need.INSTANT in setting.offers)
    return make_pipeline("kubeshare", knobs, setting, order=Fifo(), place=place)


POLICIES = (
    Policy(
        name="kubeshare",
        title="First come, first served; jobs that ask for parts of GPUs share them by tokens with a request and a "
        "limit, or in the mode that they name, kept together or apart by labels.",
        paper="Yeh et al., KubeShare: A Framework to Manage GPUs as First-Class and Shared Resources in Container "
        "Cloud, HPDC 2020",
        assumes=frozenset({Need.SHARE}),
        build=build,
        acts_on=ActsOn(
            "a part of a GPU (gpu_milli)",
            lambda job: job.shapes[0].gpu_milli < 1000,
            "no two jobs share a GPU, and it runs like fifo:walk=skip",
        ),
        knobs=common_knobs(walk="skip"),
    ),
)
