"""Dominant resource fairness and its variants."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_pipeline, make_place
from skep.policies.entitled import AMF, HUG, NC_DRF, Entitled
from skep.policies.order.shares import DominantShare
from skep.policies.registry import Knob, Knobs, Policy, Setting

DRF = "drf"
ALONE = {"walk": "skip", "adjust": "none", "borrow": "auto"}
"""Knobs of the pipeline, which only the mode `drf` is."""


def build(knobs: Knobs, setting: Setting) -> Planner:
    mode = knobs["mode"]
    if mode == DRF:
        return make_pipeline("drf", knobs, setting, order=DominantShare(setting.weights))
    for name, default in ALONE.items():
        if knobs[name] != default:
            raise InputError(f"drf: {name}={knobs[name]} is not possible with mode={mode}", hint=f"{name}={default}")
    return Entitled(name="drf", place=make_place(knobs, setting), mode=mode, weights=setting.weights)


POLICIES = (
    Policy(
        name="drf",
        title="Dominant resource fairness over users (VCs where no user is named), by their weights: the one with the "
        "smallest share of the resource it uses most goes next.",
        paper="Ghodsi et al., Dominant Resource Fairness, NSDI 2011; modes: Chowdhury et al., HUG, NSDI 2016; Wang and "
        "Wang, Fair Coflow Scheduling without Prior Knowledge (NC-DRF), ICDCS 2018; Guan et al., On Max-min Fair "
        "Resource Allocation for Distributed Job Execution (AMF), ICPP 2019",
        build=build,
        knobs=(
            *common_knobs(walk="skip"),
            Knob(
                "mode",
                DRF,
                "hug: users progress evenly over GPUs, CPUs and memory, and no user gets more than that level of any "
                "of them; nc-drf: the same by the number of jobs that need each; amf: the GPUs of a user on all types "
                "together are max-min fair, where jobs need certain types",
                (DRF, HUG, NC_DRF, AMF),
            ),
        ),
    ),
)
