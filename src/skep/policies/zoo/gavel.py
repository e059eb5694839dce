"""Gavel optimises shares of time on GPUs of different speeds, for any of several objectives."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import common_knobs, make_place
from skep.policies.gavel.planner import Gavel, Options
from skep.policies.pipeline import SKIP
from skep.policies.registry import Knob, Knobs, Policy, Setting

PAPER = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020"
MERGES = ("las", "throughput", "cost", "hierarchical")
"""Objectives for which equal jobs are one row."""
READS_LEFT = ("ftf", "makespan", "sjf", "cost-slo")
"""Objectives that depend on how much is left of jobs."""


def builder(objective: str) -> object:
    def build(knobs: Knobs, setting: Setting) -> Planner:
        if not setting.round_s:
            raise InputError(f"gavel-{objective}: round_s=0: expected seconds, above 0")
        options = Options(
            objective=objective,
            merges=objective in MERGES,
            reads_left=objective in READS_LEFT,
            is_aware=knobs["aware"],
            is_compat=knobs["compat"],
            is_strategy_proof=False,
            seed=setting.seed,
            costs=(),
            inside="fair",
            weights=setting.weights,
        )
        return Gavel(name=f"gavel-{objective}", place=make_place(knobs, setting), options=options)

    return build


PLACED = tuple(knob for knob in common_knobs(walk=SKIP, patience=()) if knob.name in ("place", "patience"))

KNOBS = (
    Knob("round_s", 360.0, "seconds of a round"),
    Knob("aware", True, "the speeds of jobs on each GPU type count; otherwise all types count as equal"),
    Knob("compat", False, "decide as Gavel's released simulator does"),
    *PLACED,
)


def needs(objective: str) -> object:
    def found(knobs: Knobs) -> frozenset[Need]:
        known = {Need.CHECKPOINT}
        if knobs["aware"] or objective in READS_LEFT:
            known.add(Need.THROUGHPUT)
        if objective in READS_LEFT:
            known.add(Need.ORACLE)
        return frozenset(known)

    return found


TITLES = {
    "las": "Every job gets a share of the time of each GPU type; the smallest speed of all jobs, relative to an equal "
    "split, is largest.",
    "ftf": "Shares of time with which the worst finish-time fairness is best: the time to the end, relative to that on "
    "an equal part of the cluster.",
    "makespan": "Shares of time with which the last job ends as early as possible.",
    "throughput": "Shares of time with which the jobs make the most progress in all.",
}

POLICIES = tuple(
    Policy(
        name=f"gavel-{objective}",
        title=title,
        paper=PAPER,
        assumes=needs(objective),  # type: ignore[arg-type]
        build=builder(objective),  # type: ignore[arg-type]
        knobs=KNOBS,
    )
    for objective, title in TITLES.items()
)
