"""The knobs that every pipeline has, and the parts they select."""

from __future__ import annotations

import math

from skep.core.errors import InputError
from skep.policies.adjust.base import Adjuster, Preemption, usable
from skep.policies.adjust.deflate import Deflate, Spare
from skep.policies.adjust.named import ADJUSTERS, NONE, named_adjusters
from skep.policies.estimate.duration import Duration
from skep.policies.order.base import Order
from skep.policies.pipeline import EASY, SKIP, STRICT, Pipeline
from skep.policies.place import PLACES, Place, Relaxed, build_place
from skep.policies.registry import Knob, Knobs, Setting

COMPAT = Knob("compat", False, "imitate the paper's released simulator to the letter, ties too (place=any, walk=skip)")

PROBE = Knob(
    "probe",
    0.0,
    "seconds for which a preemptible job runs on a GPU type where the speed of its model is not known, to measure it; "
    "0: never",
)


def common_knobs(*, walk: str, place: str = "consolidate", patience: tuple[float, ...] = ()) -> tuple[Knob, ...]:
    return (
        Knob(
            "walk",
            walk,
            "strict: stop at the first job that does not fit; skip: go on; easy: others may pass it if they do not "
            "delay it (not for policies that preempt)",
            (STRICT, SKIP, EASY),
        ),
        Knob("place", place, "which GPUs a job gets", tuple(PLACES)),
        Knob(
            "patience",
            patience,
            "seconds a job waits for that placement before it accepts to be spread: within a rack + anywhere, or one "
            "number for anywhere; none: for ever",
        ),
        Knob(
            "borrow",
            "auto",
            "in a virtual cluster: whether a job that does not fit there may borrow idle cells of other VCs",
            ("auto", "never"),
        ),
        Knob(
            "adjust",
            NONE,
            f"change running jobs too, beside what the policy does: none, or some of {', '.join(ADJUSTERS)}, joined "
            "by +",
        ),
    )


def placing_knobs(place: str = "consolidate", patience: tuple[float, ...] = (0.0,)) -> tuple[Knob, ...]:
    """Those of a planner that has no line of jobs to walk."""
    found = common_knobs(walk=SKIP, place=place, patience=patience)
    return tuple(knob for knob in found if knob.name in ("place", "patience"))


def make_pipeline(
    name: str,
    knobs: Knobs,
    setting: Setting,
    *,
    order: Order,
    preempt: Preemption | None = None,
    adjust: tuple[Adjuster, ...] = (),
    estimate: Duration | None = None,
    place: Place | None = None,
) -> Pipeline:
    own = {adjuster.name for adjuster in adjust}
    added = named_adjusters(knobs["adjust"])
    if twice := ", ".join(adjuster.name for adjuster in added if adjuster.name in own):
        raise InputError(f"{name}: adjust={knobs['adjust']}: the policy has {twice} already")
    if any(isinstance(adjuster, Deflate) for adjuster in added):
        preempt = Spare(preempt)
    if knobs["walk"] == EASY and preempt is not None and preempt.preempts:
        raise InputError(f"{name}: walk=easy is for policies that do not preempt", hint="use walk=skip")
    return Pipeline(
        name=name,
        estimate=estimate,
        order=order,
        place=place or make_place(knobs, setting),
        preempt=preempt,
        adjust=usable((*adjust, *added), setting.offers),
        walk=knobs["walk"],
        borrows=knobs["borrow"] == "auto",
    )


def make_place(knobs: Knobs, setting: Setting) -> Place:
    place = build_place(knobs["place"], seed=setting.seed, typical=setting.typical)
    if len(knobs["patience"]) > 2:
        raise InputError("patience: expected one number, or two: within a rack + anywhere", hint="patience=60+120")
    patience = tuple(step_s for step_s in knobs["patience"] if step_s < math.inf)
    return Relaxed(place, patience) if patience else place
