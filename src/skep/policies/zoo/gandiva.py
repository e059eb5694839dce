"""Gandiva: jobs start at once, taking turns if necessary, and running jobs are improved continuously."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.adjust.base import Adjuster
from skep.policies.adjust.grow import GrowShrink
from skep.policies.adjust.migrate import Migrate
from skep.policies.adjust.named import needs_of_adjusters
from skep.policies.adjust.pack import PackTrials
from skep.policies.adjust.rebalance import Rebalance
from skep.policies.adjust.slices import Slices
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.simple import Fifo
from skep.policies.registry import Knob, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    height = knobs["height"]
    if height != int(height) or height < 1:
        raise InputError(f"gandiva: height={height:g}: expected a whole number of jobs, at least 1")
    adjust = adjusters(knobs, int(height))
    return make_pipeline("gandiva", knobs, setting, order=Fifo(), adjust=adjust)


def adjusters(knobs: Knobs, height: int) -> tuple[Adjuster, ...]:
    """The adjusters that are switched on. Jobs that grew shrink before others must take turns, and jobs stop taking
    turns as soon as there are free GPUs to move to."""
    cool_down_s = knobs["cool_down"]
    found: list[Adjuster] = []
    if knobs["grow"]:
        found.append(GrowShrink(cool_down_s=cool_down_s))
    if knobs["migrate"]:
        found.append(Migrate(threshold=knobs["threshold"], cool_down_s=cool_down_s))
    if knobs["slices"]:
        found.append(Slices(height=height, quantum_s=knobs["quantum"]))
        if knobs["migrate"]:
            found.append(Rebalance(cool_down_s=cool_down_s))
        if knobs["pack"]:
            trial_s, quantum_s = knobs["trial"], knobs["quantum"]
            found.append(PackTrials(gain=knobs["gain"], trial_s=trial_s, quantum_s=quantum_s, cool_down_s=cool_down_s))
    return tuple(found)


def assumes(knobs: Knobs) -> frozenset[Need]:
    return needs_of_adjusters(adjusters(knobs, 1))


POLICIES = (
    Policy(
        name="gandiva",
        title="Nodes host jobs of one size; a job that finds no free GPUs takes turns with jobs of its size, two are "
        "packed if a trial shows a gain, jobs move to reduce fragmentation, elastic ones use idle GPUs of their node.",
        paper="Xiao et al., Gandiva: Introspective Cluster Scheduling for Deep Learning, OSDI 2018",
        assumes=assumes,
        build=build,
        knobs=(
            *common_knobs(walk="skip", place="affinity", patience=(0.0,)),
            Knob("slices", True, "jobs of one size take turns on the same GPUs when none are free"),
            Knob("height", 2.0, "how many jobs take turns on one GPU at most"),
            Knob("quantum", 60.0, "seconds of a turn, at least 1", least=1.0),
            Knob("pack", True, "two jobs that take turns run at once if a trial shows that both together are faster"),
            Knob("trial", 300.0, "seconds of a trial"),
            Knob(
                "gain", 1.0, "a pair stays packed if its speeds, each relative to that alone, add up to more than this"
            ),
            Knob(
                "migrate",
                True,
                "when a job leaves, others move: gangs onto one node, jobs that share a GPU to a free one",
            ),
            Knob("threshold", 0.75, "a node is emptied for others if so much of its GPUs is free"),
            Knob("grow", True, "elastic jobs use idle GPUs of their node, and give them up when a job arrives"),
            Knob("cool_down", 600.0, "seconds between two adjustments of one kind of a job"),
        ),
    ),
)
