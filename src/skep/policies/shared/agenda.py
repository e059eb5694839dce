"""Which VCs' planners are called: those of VCs with new events, and those whose wake-up is due."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import msgspec

from skep.core.memory import Memory, Of, Slot
from skep.core.plan import Plan
from skep.core.view import Trigger
from skep.policies.shared.vc import Vc


class Wake(msgspec.Struct, frozen=True, array_like=True):
    """When a VC wants to be called again."""

    at_s: float


WAKE = Slot("wake", Wake, Of.VC)


class Agenda:
    """The cost of a decision does not grow with the number of VCs: no step iterates over all of them."""

    def __init__(self) -> None:
        self.touched: dict[int, Vc] = {}
        """By number: VCs with possible changes since their last call."""
        self.wakes: list[tuple[float, int, Vc]] = []
        """Wake-ups of VCs; an entry is valid as long as its VC has that wake-up."""
        self.rewoken: dict[int, Vc] = {}
        """By number: VCs whose wake-up differs from the memory."""
        self.retries: dict[int, Vc] = {}
        """By number: VCs that may fit something when others release cells while nodes are bad: no healthy cell was left
        to bind their free cells to, or another job is first in line since their last call."""

    def take_up(self, vc: Vc, memory: Memory) -> None:
        self.retries[vc.number] = vc
        kept = WAKE.get(memory, vc.key)
        self.set_wake(vc, None if kept is None else kept.at_s)

    def trigger(self, vc: Vc) -> Trigger:
        """The trigger of the VC, which collects its events."""
        self.touched[vc.number] = vc
        return vc.view.trigger

    def retry(self) -> None:
        """Something was released while nodes are bad."""
        self.ask_waiting(self.retries.values())

    def ask_waiting(self, vcs: Iterable[Vc]) -> None:
        """Those of them with pending jobs are called as if their nodes had changed."""
        for vc in vcs:
            if vc.pipeline is None or vc.pipeline.pending.entries:
                self.trigger(vc).nodes_changed = True

    def asked(self, vc: Vc, trigger: Trigger) -> None:
        """The VC's planner was called with this; if it examined all its lines, another call is not needed."""
        if vc.pipeline is None or vc.books.is_refused:
            self.retries[vc.number] = vc
        elif trigger.nodes_changed or trigger.ended:
            self.retries.pop(vc.number, None)

    def set_wake(self, vc: Vc, at_s: float | None) -> None:
        wake_s = math.inf if at_s is None else at_s
        if wake_s != vc.wake_s:
            vc.wake_s = wake_s
            self.rewoken[vc.number] = vc
            if wake_s < math.inf:
                heapq.heappush(self.wakes, (wake_s, vc.number, vc))

    def due(self, now_s: float) -> list[Vc]:
        """The VCs to call now, in order."""
        while self.wakes and self.wakes[0][0] <= now_s:
            at_s, _, vc = heapq.heappop(self.wakes)
            if vc.wake_s == at_s:
                self.trigger(vc).is_timer = True
                self.set_wake(vc, None)
        touched = self.touched
        if not touched:
            return []
        self.touched = {}
        return list(touched.values()) if len(touched) == 1 else [touched[number] for number in sorted(touched)]

    def next_wake(self, memory: Memory, plan: Plan) -> float | None:
        """When the first of them wants to be called; changes are remembered."""
        if self.rewoken:
            for vc in self.rewoken.values():
                kept = WAKE.get(memory, vc.key)
                if vc.wake_s != (math.inf if kept is None else kept.at_s):
                    plan.remember(WAKE, vc.key, Wake(vc.wake_s) if vc.wake_s < math.inf else None)
            self.rewoken = {}
        while self.wakes and self.wakes[0][2].wake_s != self.wakes[0][0]:
            heapq.heappop(self.wakes)
        return self.wakes[0][0] if self.wakes else None
