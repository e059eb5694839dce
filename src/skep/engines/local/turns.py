"""Which members of a share group run next. Standard library only, no clock: the turn keeper and tests pass the time in.

A member has a request (a promised fraction), a limit (the most it may use) and a weight, and needs all its lanes, one
for each GPU, at once. At the end of a turn the next holders are chosen: no member above its limit; among those below
their request the one furthest below; then the one that has used least for its weight. Use is measured over a sliding
window, or since the group last changed if that is less: a new member does not make up for the time before it came. A
member in mode `slice` has no request.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WINDOW_S, WINDOW_TURNS = 10.0, 20
"""The window is the longer of this many seconds and this many turns for each member."""
FULL = 0.9995
"""A limit from here on means no limit."""


class Member:
    """A job of a share group, and the turns it had within the window."""

    __slots__ = (
        "_done_s",
        "_spans",
        "ended_s",
        "held_since_s",
        "key",
        "lanes",
        "limit",
        "request",
        "since_s",
        "weight",
    )

    def __init__(
        self,
        key: str,
        lanes: Iterable[str],
        *,
        request: float = 0.0,
        limit: float = 1.0,
        weight: float = 1.0,
        now_s: float = 0.0,
    ) -> None:
        self.key = key
        self.lanes = frozenset(lanes)
        self.request = request
        self.limit = limit
        self.weight = weight
        self.since_s = now_s
        """When the group last changed."""
        self.ended_s = now_s
        """When it last had a turn."""
        self.held_since_s: float | None = None
        """When its present turn began; None: it is paused."""
        self._spans: deque[tuple[float, float]] = deque()
        self._done_s = 0.0

    @property
    def is_running(self) -> bool:
        return self.held_since_s is not None

    def begin(self, now_s: float) -> None:
        if self.held_since_s is None:
            self.held_since_s = now_s

    def end(self, now_s: float) -> None:
        if self.held_since_s is not None:
            self._spans.append((self.held_since_s, now_s))
            self._done_s += now_s - self.held_since_s
            self.held_since_s, self.ended_s = None, now_s

    def turn_s(self, now_s: float) -> float:
        """The total time that it has held its GPUs since it joined."""
        return self._done_s + (now_s - self.held_since_s if self.held_since_s is not None else 0.0)

    def used(self, now_s: float, window_s: float = WINDOW_S) -> float:
        """The fraction of the window in which it had its turn."""
        since_s = max(now_s - window_s, self.since_s)
        while self._spans and self._spans[0][1] <= since_s:
            self._spans.popleft()
        held_s = sum(end - max(begin, since_s) for begin, end in self._spans)
        if self.held_since_s is not None:
            held_s += now_s - max(self.held_since_s, since_s)
        return held_s / (now_s - since_s) if now_s > since_s else 0.0


def window_of(quantum_s: float, members: int) -> float:
    return max(WINDOW_S, WINDOW_TURNS * quantum_s * members)


def choose(members: Sequence[Member], now_s: float, window_s: float = WINDOW_S) -> list[Member]:
    """The members with the next turn: several only if they need different GPUs. Ties go to the one that has waited
    longest."""
    used = {member.key: member.used(now_s, window_s) for member in members}

    def place(member: Member) -> tuple[bool, float, float]:
        missing = member.request - used[member.key]
        last_s = now_s if member.is_running else member.ended_s
        return (False, -missing, last_s) if missing > 0 else (True, used[member.key] / member.weight, last_s)

    may_run = [member for member in members if member.limit >= FULL or used[member.key] < member.limit]
    taken: set[str] = set()
    chosen = []
    for member in sorted(may_run, key=place):
        if not member.lanes & taken:
            taken |= member.lanes
            chosen.append(member)
    return chosen
