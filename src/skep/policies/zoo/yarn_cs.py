"""YARN's capacity scheduler as Philly used it: quotas per VC, gangs, locality first and given up with time."""

from __future__ import annotations

from skep.core.errors import InputError
from skep.core.needs import Need
from skep.core.ports import Planner
from skep.files.text import Texts
from skep.policies.adjust.preempt import ByPriority
from skep.policies.adjust.quota import TakeBack
from skep.policies.common import common_knobs, make_pipeline
from skep.policies.order.shares import EQUAL, USAGE, CapacityQueues
from skep.policies.registry import Knob, Knobs, Policy, Setting, parse_number


def build(knobs: Knobs, setting: Setting) -> Planner:
    order = CapacityQueues(quotas(knobs["quotas"], setting), setting.vcs)
    preempt = TakeBack(knobs["take_back"]) if knobs["take_back"] <= 1 else ByPriority()
    return make_pipeline("yarn-cs", knobs, setting, order=order, preempt=preempt)


def assumes(knobs: Knobs) -> frozenset[Need]:
    by_use = {Need.HISTORY} if knobs["quotas"] == USAGE else set()
    return frozenset(by_use | {Need.CHECKPOINT} if knobs["take_back"] <= 1 else by_use)


def quotas(kind: str, setting: Setting) -> str | dict[str, float]:
    """The kind of quotas, or the GPUs of each VC from a file."""
    if kind in (EQUAL, USAGE):
        return kind
    found = read_quotas(kind, setting.texts)
    missing = [vc for vc in setting.vcs if vc not in found]
    if missing:
        raise InputError(f"{kind}: no quota for VC {', '.join(missing)}", hint="one line a VC: vc,gpus")
    return found


def read_quotas(name: str, texts: Texts) -> dict[str, float]:
    rows = [line.split(",") for line in texts.load(name, what="quotas: lines of vc,gpus").splitlines()]
    found: dict[str, float] = {}
    for number, row in enumerate(rows, start=1):
        if row == [""] or (number == 1 and [cell.strip() for cell in row] == ["vc", "gpus"]):
            continue
        if len(row) != 2 or row[0].strip() in found:
            raise InputError(f"{name}:{number}: expected vc,gpus with each VC once")
        found[row[0].strip()] = parse_number(f"{name}:{number}", row[1])
    if not found:
        raise InputError(f"{name}: no quotas", hint="one line a VC: vc,gpus")
    return found


POLICIES = (
    Policy(
        name="yarn-cs",
        title="Capacity queues: the VC that uses least of its quota goes first, FIFO within it; idle quota is lent, "
        "and taken back from the newest jobs above theirs. With walk=skip this is delay scheduling: a job that waits "
        "for locality lets others of its VC pass.",
        paper="Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters, ATC 2019; delay scheduling: Zaharia et "
        "al., EuroSys 2010",
        assumes=assumes,
        build=build,
        knobs=(
            *common_knobs(walk="strict", patience=(120.0,)),
            Knob(
                "quotas",
                EQUAL,
                "GPUs of each VC. equal: the same for all; usage: in proportion to the GPU-seconds each has used up to "
                "now (a VC without any counts as an average one); FILE: a CSV of `vc,gpus`",
                (EQUAL, USAGE),
                is_file=True,
            ),
            Knob(
                "take_back",
                0.9,
                "preempt jobs above their quota for one within its own when so much of the cluster is busy; 2: never",
            ),
        ),
    ),
)
