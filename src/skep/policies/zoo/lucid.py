"""Lucid: new jobs are profiled for a short time, the least predicted service goes first, pairs share GPUs."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.base import Adjuster
from skep.policies.adjust.pairs import PackPairs
from skep.policies.adjust.profile import PredictedService, ProfilingPartition
from skep.policies.common import common_knobs, make_pipeline, make_place
from skep.policies.pipeline import SKIP, STRICT
from skep.policies.place.partition import Partition
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.zoo.shortest import ESTIMATES, KNOWN, by_estimate


def build(knobs: Knobs, setting: Setting) -> Planner:
    for name in ("nodes", "gpus"):
        if knobs[name] != int(knobs[name]):
            raise InputError(f"lucid: {name}={knobs[name]:g}: expected a whole number")
    if not knobs["limit"]:
        raise InputError("lucid: limit=0: expected seconds above 0", hint="nodes=0 switches profiling off")
    shares = knobs["share"] and Need.SHARE in setting.offers
    knobs = {**knobs, "walk": SKIP if shares else STRICT}
    place = Partition(make_place(knobs, setting), nodes=int(knobs["nodes"]), gpus_max=int(knobs["gpus"]))
    estimate = ESTIMATES[knobs["estimate"]]()
    adjust: tuple[Adjuster, ...] = (ProfilingPartition(place, limit_s=knobs["limit"]),)
    if shares:
        adjust += (PackPairs(place, quiet=knobs["quiet"]),)
    order = PredictedService(estimate, place)
    return make_pipeline("lucid", knobs, setting, order=order, estimate=estimate, adjust=adjust, place=place)


def assumes(knobs: Knobs) -> frozenset[Need]:
    sharing = {Need.SHARE, Need.THROUGHPUT} if knobs["share"] else set()
    return by_estimate(knobs) | sharing


POLICIES = (
    Policy(
        name="lucid",
        title="Small jobs first run for a short time on a profiling partition; then least predicted duration × GPUs "
        "first, without preemption. Two jobs share GPUs if they slow each other down little.",
        paper="Hu et al., Lucid: A Non-intrusive, Scalable and Interpretable Scheduler for Deep Learning Training "
        "Jobs, ASPLOS 2023",
        assumes=assumes,
        build=build,
        knobs=(
            *common_knobs(walk=SKIP)[1:],
            Knob("estimate", "history", KNOWN.help, KNOWN.choices),
            Knob(
                "nodes",
                2.0,
                "nodes for profiling, one more while many jobs wait, at most half of all; 0: no profiling",
            ),
            Knob("limit", 80.0, "seconds that a new job may run there"),
            Knob("gpus", 4.0, "GPUs of the largest job that is profiled"),
            Knob("share", True, "let pairs of jobs share GPUs; without, no job passes one before it that does not fit"),
            Knob("quiet", 0.0, "make no pairs while fewer jobs come in ten minutes, by the last hour; 0: always"),
        ),
    ),
)
