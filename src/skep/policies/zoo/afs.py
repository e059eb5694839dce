"""AFS-L: assigns the GPUs of elastic jobs one by one, by the gain of each."""

from __future__ import annotations

from skep.core.needs import Need
from skep.core.ports import Planner
from skep.policies.afs import Afs
from skep.policies.allocate.elastic import ElasticSizes
from skep.policies.common import make_place, placing_knobs
from skep.policies.pipeline import SKIP, STRICT
from skep.policies.registry import Knob, Knobs, Policy, Setting


def build(knobs: Knobs, setting: Setting) -> Planner:
    return Afs(
        name="afs-l",
        place=make_place(knobs, setting),
        allocate=ElasticSizes(can_resize=Need.RESIZE in setting.offers),
        is_strict=knobs["walk"] == STRICT,
        restart_s=knobs["restart"],
        horizon_s=knobs["horizon"],
    )


WALK = Knob(
    "walk",
    SKIP,
    "strict: no job starts after one whose smallest size does not fit; skip: go on",
    (STRICT, SKIP),
)

POLICIES = (
    Policy(
        name="afs-l",
        title="Apathetic future share with known lengths: elastic jobs get GPUs one by one, each where it shortens the "
        "sum of completion times of two jobs most; jobs without a range get what they ask for, the shortest first, "
        "preempting.",
        paper="Hwang et al., Elastic Resource Sharing for Distributed Deep Learning (AFS), NSDI 2021",
        assumes=frozenset({Need.ORACLE, Need.CHECKPOINT, Need.RESIZE, Need.THROUGHPUT}),
        build=build,
        knobs=(
            WALK,
            *placing_knobs(),
            Knob("restart", 30.0, "seconds a change of size costs: it must bring more than that"),
            Knob("horizon", 600.0, "seconds for which a change is expected to last, at most the job's own end"),
        ),
    ),
)
