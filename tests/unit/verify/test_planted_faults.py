"""`skep verify` finds faults: each is planted in a policy, and a check of that policy must differ.

Every fault breaks one rule of a paper or of its published code, and nothing else: the policy still runs every trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from skep.policies.adjust.migrate import Migrate
from skep.policies.adjust.pack import PackTrials
from skep.policies.adjust.pairs import PackPairs
from skep.policies.adjust.preempt import Preempt
from skep.policies.adjust.profile import ProfilingPartition
from skep.policies.adjust.quota import TakeBack
from skep.policies.adjust.rotate import Rotate
from skep.policies.adjust.slices import Slices
from skep.policies.estimate.gittins import Gittins
from skep.policies.order.classes import Classes
from skep.policies.order.deficits import Deficits
from skep.policies.order.progress import ProgressAndService
from skep.policies.order.promises import Promises
from skep.policies.order.queues import Queues
from skep.policies.order.shares import CapacityQueues, DominantShare
from skep.policies.order.simple import LeastAttained, Remaining
from skep.policies.place import labelled
from skep.policies.place.beside import Verdict
from skep.policies.place.lend import Lend
from skep.policies.place.packing import LeastUtilised
from skep.policies.seats import Seats
from skep.verify.check import perform
from skep.verify.registry import select

Patch = pytest.MonkeyPatch
Fault = Callable[[Patch], None]

LONG = ("ranking",)


def with_value(kind: type, name: str, value: object) -> Fault:
    """Every object of this class has this value, whatever it was made with."""

    def plant(patch: Patch) -> None:
        # A property that swallows what the class itself sets.
        patch.setattr(kind, name, property(lambda self: value, lambda self, given: None), raising=False)

    return plant


def with_method(kind: Any, name: str, method: Callable[..., object]) -> Fault:
    return lambda patch: patch.setattr(kind, name, method)


def no_anti_affinity(one: Any, other: Any) -> bool:
    return bool(one.exclusion == other.exclusion)


def no_exclusion(one: Any, other: Any) -> bool:
    return not one.anti_affinity or one.anti_affinity != other.anti_affinity


def below_quota(self: TakeBack, view: Any, running: Any, surplus: dict[object, float]) -> list[Any]:
    jobs = [entry[3] for entry in running.entries if surplus[entry[3].spec.vc] > 0]
    return sorted(jobs, key=lambda job: (-job.held_since_s, -job.seq))


def oldest(self: TakeBack, view: Any, running: Any, surplus: dict[object, float]) -> list[Any]:
    return below_quota(self, view, running, surplus)[::-1]


def from_anyone(self: Preempt, view: Any, order: Any, running: Any, entry: Any) -> Any:
    return iter([each[3] for each in running.entries])


def most_loaded(self: Seats, gpus: int, members_max: int, *, found: Any = Seats.least_loaded) -> Any:
    return iter(list(found(self, gpus, members_max))[::-1])


def worst_fit(self: Any, job: Any, role: Any, node: Any, gpu: int, *, found: Any = labelled.Labelled.judge) -> Any:
    verdict = found(self, job, role, node, gpu)
    return verdict and Verdict((verdict.rank[0], -verdict.rank[1]), verdict.group, verdict.slot)


def worst_served(self: Deficits, deficit_s: float, now_s: float, *, found: Any = Deficits.ahead_of) -> Any:
    return iter(list(found(self, deficit_s, now_s))[::-1])


FAULTS: dict[str, tuple[str, Fault]] = {
    "a busy GPU takes opportunistic jobs": ("antman", with_value(Lend, "busy", 9.0)),
    "no GPU takes opportunistic jobs beside others": ("antman", with_value(Lend, "busy", 0.0)),
    "any number of opportunistic jobs on a GPU": ("antman", with_value(Lend, "per_gpu", 99)),
    "the use of all jobs is the same": ("antman", with_method(Lend, "_use", lambda self, tenant: 0.1)),
    "quotas are ignored": ("antman", with_method(Classes, "is_within", lambda self, job: True)),
    "services of a pair in any ratio": ("lucid", with_value(PackPairs, "ratio", math.inf)),
    "services of a pair in the ratio 1": ("lucid", with_value(PackPairs, "ratio", 1.0)),
    "scores add up to anything": (
        "lucid",
        with_method(PackPairs, "_go_together", lambda self, view, walked, seat, job, scores: True),
    ),
    "profiling takes twice the time": ("lucid", with_value(ProfilingPartition, "limit_s", 160.0)),
    "VCs fall below their quota": ("yarn-cs", with_method(TakeBack, "_newest_above_quota", below_quota)),
    "the oldest is taken back first": ("yarn-cs", with_method(TakeBack, "_newest_above_quota", oldest)),
    "taken back while GPUs are idle": ("yarn-cs", with_value(TakeBack, "busy", 0.0)),
    "never taken back": ("yarn-cs", with_value(TakeBack, "busy", 2.0)),
    "VCs by their use alone": ("yarn-cs", with_method(CapacityQueues, "group_key", CapacityQueues.used_by)),
    "VCs in any order": ("yarn-cs", with_method(CapacityQueues, "group_key", lambda self, group: 0.0)),
    "nodes are emptied from half on": ("gandiva", with_value(Migrate, "threshold", 0.5)),
    "nodes are never emptied": ("gandiva", with_value(Migrate, "threshold", 2.0)),
    "the most loaded node is oversubscribed": ("gandiva", with_method(Seats, "least_loaded", most_loaded)),
    "no turns": ("gandiva", with_value(Slices, "height", 1)),
    "three jobs take turns": ("gandiva", with_value(Slices, "height", 3)),
    "packs without a gain": ("gandiva", with_value(PackTrials, "gain", 0.0)),
    "basic jobs take no turns": ("singularity", with_method(Rotate, "_replace", lambda *given: False)),
    "basic jobs take turns twice as long": ("singularity", with_value(Rotate, "turn_s", 1800.0)),
    "the worst served job gives way": ("singularity", with_method(Deficits, "ahead_of", worst_served)),
    "promises are never due": ("singularity", with_method(Promises, "is_due", lambda self, job, now_s: False)),
    "what is booked counts as used": (
        "least-utilised",
        with_method(LeastUtilised, "_use", lambda self, tenant: tenant.milli),
    ),
    "parts go where most is left": ("kubeshare", with_method(labelled.Labelled, "judge", worst_fit)),
    "anti-affinity is ignored": (
        "kubeshare",
        lambda patch: patch.setattr(labelled, "go_together", no_anti_affinity),
    ),
    "exclusion is ignored": ("kubeshare", lambda patch: patch.setattr(labelled, "go_together", no_exclusion)),
    "affinity is ignored": ("kubeshare", with_method(labelled.Labelled, "_homes", lambda self, cluster, label: set())),
    "jobs are never demoted": ("tiresias-l", with_value(Queues, "limits", ())),
    "an index without a quantum": (
        "tiresias-g",
        lambda patch: patch.setattr(
            Gittins, "index", lambda self, attained, quantum, found=Gittins.index: found(self, attained, math.inf)
        ),
    ),
    "no lead": ("las", with_method(LeastAttained, "running_key", LeastAttained.key)),
    "service without the GPUs": ("las", with_value(LeastAttained, "by_size", False)),
    "progress does not count": ("e-las", with_value(ProgressAndService, "weight", 1.0)),
    "remaining time without the GPUs": ("srsf", with_value(Remaining, "by_size", False)),
    "anyone is preempted": ("srsf", with_method(Preempt, "candidates", from_anyone)),
    "shares are ignored": ("drf", with_method(DominantShare, "group_key", lambda self, group: 0.0)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str, monkeypatch: Patch) -> None:
    policy, plant = FAULTS[name]
    checks = [check for check in select((policy,)) if check.name not in LONG]
    plant(monkeypatch)
    assert not all(perform(check, 60.0).holds for check in checks), (
        f"none of {[check.name for check in checks]} differs"
    )
