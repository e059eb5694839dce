"""Packing by trial (Gandiva, OSDI'18): two jobs that take turns run at the same time for a while; the measured gain
decides.

Only under oversubscription: candidates are the two members of a seat in mode `slice`, those with the lowest GPU use
first. If the sum of their speeds, each relative to its speed alone, is above that of taking turns (1), they stay
packed; otherwise they take turns again. The verdict applies to their models, GPU type and number of GPUs: pairs with a
good one are packed at once, pairs with a bad one never. An unknown pair is tried on one seat at a time.
"""

from __future__ import annotations

import msgspec

from skep.core.cluster import WHOLE
from skep.core.memory import Of, Slot
from skep.core.needs import Need
from skep.core.plan import Plan
from skep.core.view import JobView, Trigger, View
from skep.policies.adjust.base import Walked
from skep.policies.adjust.effects import Effects, is_settled, solo_speed, speed_of
from skep.policies.adjust.slices import on_turns
from skep.policies.seats import Seats, SharedSeat

PACK = "pack"


class PairVerdict(msgspec.Struct, frozen=True):
    """The verdict about a pair of models on one GPU type and number of GPUs."""

    since_s: float
    """When the trial began, or the verdict was reached."""
    speed: float | None = None
    """The sum of both speeds, each relative to its speed alone; None: the trial is in progress."""


class Verdicts(msgspec.Struct, frozen=True):
    pairs: dict[str, PairVerdict] = {}


VERDICTS = Slot("pack verdicts", Verdicts, Of.ALL)


class PackTrials:
    """Pairs stay packed if they are together more than `gain` times as fast as when they take turns."""

    name = "pack"
    needs = frozenset({Need.SHARE})

    def __init__(
        self, *, gain: float = 1.0, trial_s: float = 300.0, quantum_s: float = 60.0, cool_down_s: float = 600.0
    ) -> None:
        self.gain = gain
        self.quantum_ms = int(quantum_s * 1000)
        self.trial_s = trial_s
        self.effects = Effects(self.name, cool_down_s=cool_down_s, settle_s=trial_s)

    def attach(self, view: View) -> None:
        self.effects.attach(view)

    def adjust(self, view: View, plan: Plan, trigger: Trigger, walked: Walked) -> float:
        known = VERDICTS.get(view.memory) or Verdicts()
        self.pairs = dict(known.pairs)
        for job, noted in self.effects.due(view):
            measured = self._judge(view, plan, walked.seats, job)
            self.effects.settle(plan, job, noted, measured)
        for seat in sorted(walked.seats.pairs.values(), key=lambda seat: (total_use(view, seat), seat.key)):
            self._try(view, plan, walked.seats, seat)
        if self.pairs != known.pairs:
            plan.remember(VERDICTS, "", Verdicts(self.pairs))
        return self.effects.next_s(view)

    def _try(self, view: View, plan: Plan, seats: Seats, seat: SharedSeat) -> None:
        if not all(is_settled(job) and self.effects.is_cool(view, job) for job in seat.members):
            return
        one, other = (job.spec for job in seat.members)
        if not view.knowledge.standstills.go_together(one, other, type_of(view, seat)):
            return
        pair = pair_of(view, seat)
        verdict = self.pairs.get(pair)
        if verdict is None or (verdict.speed is None and view.now_s > verdict.since_s + 2 * self.trial_s):
            self.pairs[pair] = PairVerdict(view.now_s)  # or the jobs of the last trial ended before the trial did
        elif verdict.speed is None or verdict.speed <= self.gain:
            return
        changes = [
            (job, job.allocation.on_terms(mode=PACK, milli=0, limit=WHOLE))
            for job in seat.members
            if job.allocation is not None
        ]
        plan.reshare_all(changes)
        predicted = predicted_speed(view, seat)
        self.effects.note(view, plan, seat.members[0], PACK, predicted, together=predicted)
        for job in list(seat.members):
            seats.add(job)

    def _judge(self, view: View, plan: Plan, seats: Seats, job: JobView) -> float | None:
        """The trial of this job and its neighbour is over. Returns the sum of their speeds; None: one of them has left,
        or their speeds are not known."""
        seat = next((each for each in seats.crowded() if job in each.members), None)
        if seat is None or seat.mode != PACK:
            return None
        speeds = [speed_of(view, member) for member in seat.members]
        gpu_type = type_of(view, seat)
        parts = [
            speed / solo_speed(view, member, gpu_type)
            for member, speed in zip(seat.members, speeds, strict=True)
            if speed is not None
        ]
        total = sum(parts) if len(parts) == len(speeds) else None
        verdict = PairVerdict(view.now_s, 0.0 if total is None else round(total, 6))
        self.pairs[pair_of(view, seat)] = verdict
        if verdict.speed is None or verdict.speed <= self.gain:
            self._undo(plan, seats, seat)
        return total

    def _undo(self, plan: Plan, seats: Seats, seat: SharedSeat) -> None:
        """Let them take turns again."""
        changes = [
            (job, on_turns(job, job.allocation, seat.name, self.quantum_ms))
            for job in seat.members
            if job.allocation is not None
        ]
        plan.reshare_all(changes)
        for job in list(seat.members):
            seats.add(job)


def type_of(view: View, seat: SharedSeat) -> str:
    return view.cluster.nodes[seat.key[0][0]].pool.gpu_type


def pair_of(view: View, seat: SharedSeat) -> str:
    """The key of a verdict."""
    models = "+".join(sorted(job.spec.model for job in seat.members))
    return f"{models} on {seat.gpus} {type_of(view, seat)}"


def predicted_speed(view: View, seat: SharedSeat) -> float:
    """The sum of the speeds as far as known; otherwise 1, as when taking turns."""
    total, gpu_type = 0.0, type_of(view, seat)
    for job in seat.members:
        others = [other.spec for other in seat.members if other is not job]
        known = view.knowledge.rate(job.spec, job.shapes[0], gpu_type, others)
        total += 1 / len(seat.members) if known is None else known / solo_speed(view, job, gpu_type)
    return total


def total_use(view: View, seat: SharedSeat) -> float:
    """The compute of a GPU that all members use; an unknown one counts as all of it."""
    uses = [view.knowledge.use(job.spec.model) for job in seat.members]
    return sum(1.0 if use is None else use.sm for use in uses)
