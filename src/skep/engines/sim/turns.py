"""Turns of share groups played one by one, for tests of the closed form (`slices="exact"` of the simulator).

In a round every member has one turn of its weight times the quantum, and a switch is lost at its beginning. A member
that joins comes last, and the turn of one that leaves goes to the next. Turns are not reported: jobs are reported with
the rate of the closed form, and their work is computed from their turns when it is read.
"""

from __future__ import annotations

import heapq

from skep.engines.sim.task import SimTask, party_of
from skep.profiles.sharing import Sharing


class Round:
    """The members of a group in the order of their turns; the first has its turn now."""

    __slots__ = ("begins_s", "members", "number")

    def __init__(self) -> None:
        self.members: list[SimTask] = []
        self.begins_s = 0.0
        """When the first makes progress: after the switch."""
        self.number = 0
        """The number of the turn: the ends of earlier ones are stale."""


class Turns:
    """All groups."""

    def __init__(self, sharing: Sharing) -> None:
        self.sharing = sharing
        self.rounds: dict[str, Round] = {}
        self.ends: list[tuple[float, str, int]] = []
        """(at_s, group, number)"""

    def seat(self, group: str, there: list[SimTask], now_s: float) -> Round:
        """Start the round with the present members."""
        round_ = self.rounds.setdefault(group, Round())
        before = round_.members
        stay = [task for task in before if task in there]
        members = stay + [task for task in there if task not in before]
        if members != before:
            round_.members = members
            is_switch = bool(before) and members[0] is not before[0]
            if is_switch or len(before) <= 1 or len(members) == 1:
                self._begin(group, round_, now_s, is_switch=is_switch and len(members) > 1)
        return round_

    def next_s(self) -> float:
        """The time of the next end of a turn."""
        while self.ends and self.rounds[self.ends[0][1]].number != self.ends[0][2]:
            heapq.heappop(self.ends)
        return self.ends[0][0] if self.ends else float("inf")

    def end_first(self) -> tuple[float, SimTask, SimTask]:
        """A turn has ended: when, whose it was, and whose is next."""
        at_s, group, _ = heapq.heappop(self.ends)
        round_ = self.rounds[group]
        first = round_.members[0]
        round_.members = [*round_.members[1:], first]
        self._begin(group, round_, at_s, is_switch=True)
        return at_s, first, round_.members[0]

    def _begin(self, group: str, round_: Round, at_s: float, *, is_switch: bool) -> None:
        round_.number += 1
        round_.begins_s = at_s + self.sharing.costs.switch_s if is_switch else at_s
        if len(round_.members) > 1:
            parties = [party_of(task, group) for task in round_.members]
            turn_s = self.sharing.quantum_s(parties) * parties[0].terms.weight
            heapq.heappush(self.ends, (at_s + turn_s, group, round_.number))
