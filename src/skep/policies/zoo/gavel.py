"""Gavel optimises shares of time on GPUs of different speeds, for any of several objectives."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import PROBE, make_place, placing_knobs
from skep.policies.gavel.planner import Gavel, GavelOptions
from skep.policies.registry import Knob, Knobs, Policy, Setting

PAPER = "Narayanan et al., Heterogeneity-Aware Cluster Scheduling Policies for Deep Learning Workloads, OSDI 2020"
MERGES = ("las", "throughput", "cost", "hierarchical")
"""Objectives for which equal jobs are one row."""
READS_LEFT = ("ftf", "makespan", "sjf", "cost-slo")
"""Objectives that depend on how much is left of jobs."""


def builder(objective: str) -> Callable[[Knobs, Setting], Planner]:
    def build(knobs: Knobs, setting: Setting) -> Planner:
        if not setting.round_s:
            raise InputError(f"gavel-{objective}: round_s=0: expected seconds, above 0")
        for name in ("compat", "strategy_proof"):
            if knobs["share"] and knobs.get(name):
                raise InputError(f"gavel-{objective}: share=true is not possible with {name}=true")
        uses_conic = knobs["compat"] or knobs["share"]
        for library in ("numpy", "scipy", "clarabel")[: 3 if uses_conic else 2 if objective == "hierarchical" else 1]:
            if importlib.util.find_spec(library) is None:
                raise InputError(f"gavel-{objective} needs {library}", hint="pip install 'skep[solvers]'")
        costs = knobs.get("costs", ())
        if any(not cost > 0 for cost in costs):
            raise InputError(f"gavel-{objective}: costs: expected numbers above 0, one for each GPU type")
        inside = knobs.get("inside", "fair")
        options = GavelOptions(
            objective=objective,
            merges=objective in MERGES and inside == "fair",
            reads_left=objective in READS_LEFT,
            is_aware=knobs["aware"],
            is_compat=knobs["compat"],
            is_strategy_proof=knobs.get("strategy_proof", False),
            completes=knobs["complete"],
            shares=knobs["share"] and Need.SHARE in setting.offers,
            seed=setting.seed,
            costs=costs,
            inside=inside,
            weights=setting.weights,
        )
        place = make_place(knobs, setting)
        return Gavel(name=f"gavel-{objective}", place=place, options=options, probe_s=knobs["probe"])

    return build


def needs(objective: str) -> Callable[[Knobs], frozenset[Need]]:
    def found(knobs: Knobs) -> frozenset[Need]:
        known = {Need.CHECKPOINT}
        reads = [knobs[name] for name in ("complete", "aware", "share", "probe", "compat")]
        if any(reads) or objective in READS_LEFT:
            known.add(Need.THROUGHPUT)
        if knobs["share"]:
            known.add(Need.SHARE)
        if objective in READS_LEFT:
            known.add(Need.ORACLE)
        if objective == "cost-slo":
            known.add(Need.DEADLINE)
        return frozenset(known)

    return found


KNOBS = (
    Knob("round_s", 360.0, "seconds of a round"),
    Knob("aware", True, "the speeds of jobs on each GPU type count; otherwise all types count as equal"),
    Knob("share", False, "two jobs may run on the same GPUs at once, by their known speeds beside each other"),
    Knob("complete", False, "unknown speeds on a type are estimated from models that are known on all types"),
    Knob("compat", False, "decide as Gavel's released simulator does"),
    PROBE,
    *placing_knobs(patience=()),
)
COSTS = Knob("costs", (), "what a GPU of each type costs, in the order of the cluster; the last one for all others")
OWN = {
    "las": (Knob("strategy_proof", False, "jobs gain nothing by lying about their speeds; some GPU time is lost"),),
    "cost": (COSTS,),
    "cost-slo": (COSTS,),
    "hierarchical": (
        Knob("inside", "fair", "how a virtual cluster divides its part among its jobs", ("fair", "fifo")),
    ),
}
TITLES = {
    "las": "Every job gets a share of the time of each GPU type; the smallest speed of all jobs, relative to an equal "
    "split, is largest.",
    "ftf": "Shares of time with which the worst finish-time fairness is best: the time to the end, relative to that on "
    "an equal part of the cluster.",
    "makespan": "Shares of time with which the last job ends as early as possible.",
    "fifo": "Shares of time for the jobs that were submitted first, on the types where they run fastest.",
    "sjf": "Shares of time for the jobs that end soonest, on the types where they run fastest.",
    "throughput": "Shares of time with which the jobs make the most progress in all.",
    "cost": "Shares of time with which the jobs make the most progress for the money.",
    "cost-slo": "Shares of time with the most progress for the money with which jobs meet their deadlines, if all can.",
    "hierarchical": "Virtual clusters share the time of all GPU types by weight, and divide it among their jobs; "
    "what one leaves is raised for the others, level by level (water filling).",
}

POLICIES = tuple(
    Policy(
        name=f"gavel-{objective}",
        title=title,
        paper=PAPER,
        assumes=needs(objective),
        build=builder(objective),
        knobs=(*KNOBS, *OWN.get(objective, ())),
    )
    for objective, title in TITLES.items()
)
