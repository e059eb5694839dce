"""Pollux divides GPUs by goodput: how fast jobs learn for what they hold, at the batch size that suits."""

from __future__ import annotations

import importlib.util

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import make_place, placing_knobs
from skep.policies.goodput_planner import PlannerOptions
from skep.policies.pollux.planner import Pollux, SearchOptions
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting

POPULATION, GENERATIONS = 40.0, 60.0
"""A hundred of each in the paper, which takes three times as long with 100 jobs on 64 nodes."""


def build(knobs: Knobs, setting: Setting) -> Planner:
    if not setting.round_s:
        raise InputError("pollux: round_s=0: expected seconds, above 0")
    for name in ("population", "generations"):
        if not 2 <= knobs[name] <= 1000:
            raise InputError(f"pollux: {name}={knobs[name]:g}: expected 2 to 1000")
    need_solvers("pollux")
    search = SearchOptions(
        power=-1.0 if knobs["objective"] == "mean" else 0.0,
        seed=setting.seed,
        population=int(knobs["population"]),
        generations=int(knobs["generations"]),
    )
    return Pollux(name="pollux", place=make_place(knobs, setting), options=options_of(knobs, setting), search=search)


def need_solvers(name: str) -> None:
    for library in ("numpy", "scipy"):
        if importlib.util.find_spec(library) is None:
            raise InputError(f"{name} needs {library}", hint="pip install 'skep[solvers]'")


def options_of(knobs: Knobs, setting: Setting) -> PlannerOptions:
    offers = setting.offers
    return PlannerOptions(knobs["restart"], Need.RESIZE in offers, Need.MIGRATE in offers, Need.TUNE in offers)


POLICIES = (
    Policy(
        name="pollux",
        title="In every round a seeded genetic search divides the GPUs so that jobs learn fastest for what they hold, "
        "by the goodput that each is expected to have from what it has shown; it sets their batch sizes too. At most "
        "one job of several nodes sits on a node.",
        paper="Qiao et al., Pollux: Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning, OSDI 2021",
        assumes=frozenset({Need.THROUGHPUT, Need.CHECKPOINT, Need.RESIZE, Need.MIGRATE, Need.TUNE}),
        build=build,
        knobs=(
            Knob("round_s", 60.0, "decide at multiples of so many seconds"),
            *placing_knobs(),
            Knob(
                "objective",
                "mean",
                "what the search makes large: `mean`, the power mean of speed-ups with power -1, or `sum`, their sum",
                choices=("mean", "sum"),
            ),
            Knob(
                "restart",
                30.0,
                "seconds a change costs: the speed-up of a changed job counts less, that of a young one least",
            ),
            Knob("population", POPULATION, "divisions of the GPUs that are kept from generation to generation"),
            Knob("generations", GENERATIONS, "at most so many of them in a round"),
        ),
        acts_on=ActsOn(
            "a range of GPUs (min_gpus, max_gpus)",
            lambda spec: spec.gpu_range is not None,
            "it then only chooses where jobs of fixed sizes run",
        ),
    ),
)
