"""Tiresias: least attained GPU service in queues, without (L) or with (G) knowledge of the distribution."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.files.text import Texts
from skep.policies.adjust.preempt import Preempt
from skep.policies.common import COMPAT, common_knobs, make_pipeline
from skep.policies.estimate.gittins import Gittins
from skep.policies.order.queues import Queues
from skep.policies.registry import Knob, Knobs, Policy, Setting
from skep.policies.replica import GittinsTable, QueuesReplica, check_compat
from skep.policies.zoo.las import check_limits

PAPER = "Gu et al., Tiresias: A GPU Cluster Manager for Distributed Deep Learning, NSDI 2019"

KNOBS = (
    *common_knobs(walk="skip", place="skew-gated"),
    Knob("queues", (3250.0, 7200.0), "limits of the queues in GPU-seconds"),
    COMPAT,
)


def build_l(knobs: Knobs, setting: Setting) -> Planner:
    limits = check_limits(knobs["queues"])
    if knobs["compat"]:
        check_compat(knobs)
        return QueuesReplica("tiresias-l", limits, by_size=True, promote=knobs["promote"])
    order = Queues(limits, promote=knobs["promote"])
    return make_pipeline("tiresias-l", knobs, setting, order=order, preempt=Preempt())


def build_g(knobs: Knobs, setting: Setting) -> Planner:
    limits = check_limits(knobs["queues"])
    samples = read_samples(knobs["samples"], setting.texts) if knobs["samples"] != "finished" else None
    if knobs["compat"]:
        check_compat(knobs)
        if samples is None:
            raise InputError("tiresias-g: compat=true needs samples=FILE, one service in GPU-seconds a line")
        return QueuesReplica("tiresias-g", limits, by_size=True, gittins=GittinsTable(samples))
    order = Queues(limits, gittins=Gittins(samples))
    return make_pipeline("tiresias-g", knobs, setting, order=order, preempt=Preempt())


def read_samples(name: str, texts: Texts) -> tuple[float, ...]:
    """One number per line; a first line that is not a number is a heading."""
    numbers = []
    lines = texts.load(name, what="services in GPU-seconds, one a line").split()
    for number, line in enumerate(lines, start=1):
        try:
            numbers.append(float(line))
        except ValueError as error:
            if number > 1:
                message = f"{name}:{number}: '{line[:40]}' is not a number of GPU-seconds"
                raise InputError(message) from error
    if len(numbers) < 2 or not all(0 <= value < 1e18 for value in numbers):
        raise InputError(f"{name}: expected at least two services in GPU-seconds, one a line")
    return tuple(numbers)


POLICIES = (
    Policy(
        name="tiresias-l",
        title="Least attained GPU service in discrete queues, preempting only from deeper queues; which jobs are kept "
        "together goes by the names of their models.",
        paper=PAPER,
        assumes=frozenset({Need.CHECKPOINT}),
        build=build_l,
        knobs=(
            *KNOBS,
            Knob(
                "promote",
                0.0,
                "a job that has waited so many times what it has run returns to the first queue; 0: never",
            ),
        ),
    ),
    Policy(
        name="tiresias-g",
        title="As tiresias-l, but inside a queue by the Gittins index of the distribution of services.",
        paper=PAPER,
        assumes=lambda knobs: frozenset({Need.CHECKPOINT, *({Need.HISTORY} if knobs["samples"] == "finished" else ())}),
        build=build_g,
        knobs=(
            *KNOBS,
            Knob(
                "samples",
                "finished",
                "finished: the jobs finished so far, counted again when they are a twentieth more; or a file with one "
                "service in GPU-seconds a line",
                ("finished",),
                is_file=True,
            ),
        ),
    ),
)
