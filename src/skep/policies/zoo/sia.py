"""Sia gives each job GPUs of the type and in the number that make all jobs learn fastest together."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.common import make_place, placing_knobs
from skep.policies.registry import ActsOn, Knob, Knobs, Policy, Setting
from skep.policies.sia.planner import Sia
from skep.policies.zoo.pollux import need_solvers, options_of


def build(knobs: Knobs, setting: Setting) -> Planner:
    power, waiting = knobs["power"], knobs["waiting"]
    if not setting.round_s:
        raise InputError("sia: round_s=0: expected seconds, above 0")
    if not power or not -10 <= power <= 1:
        raise InputError(f"sia: power={power:g}: expected -10 to 1, and not 0")
    if waiting <= 1:
        raise InputError(f"sia: waiting={waiting:g}: expected more than 1, else a job may cost less if it gets nothing")
    need_solvers("sia")
    place, options = make_place(knobs, setting), options_of(knobs, setting)
    return Sia(name="sia", place=place, options=options, power=power, waiting=waiting)


POLICIES = (
    Policy(
        name="sia",
        title="In every round an integer program chooses a configuration for each job: a GPU type and a number of "
        "GPUs, within a node 1, 2, 4 .. or whole nodes, by the goodput that the job is expected to have there; it sets "
        "batch sizes too. Jobs of one size choose the type only.",
        paper="Jayaram Subramanya et al., Sia: Heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP 2023",
        assumes=frozenset({Need.THROUGHPUT, Need.CHECKPOINT, Need.RESIZE, Need.MIGRATE, Need.TUNE}),
        build=build,
        knobs=(
            Knob("round_s", 60.0, "decide at multiples of so many seconds"),
            *placing_knobs(),
            Knob("power", -0.5, "of the value of a job in the sum over all jobs: the lower, the more equal"),
            Knob("waiting", 1.1, "what a job without GPUs costs in this sum, where one with the fewest costs 1"),
            Knob(
                "restart",
                30.0,
                "seconds a change costs: the goodput of a changed job counts less, that of a young one least",
            ),
        ),
        acts_on=ActsOn(
            "a range of GPUs (min_gpus, max_gpus)",
            lambda spec: spec.gpu_range is not None,
            "it then only chooses the GPU types of jobs of fixed sizes",
        ),
    ),
)
