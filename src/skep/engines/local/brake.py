"""Slows a job on a GPU type with a declared speed: it rests for a part of the time in which it has its GPUs. Standard
library only, no clock: the turn keeper and tests pass the time in.

A job of speed s that has run for a while owes (1 - s) / s of that time. It rests as soon as it owes a short rest. What
it owes when its turn ends it rests in the next one, so its speed is right in the long run, with turns and without.
"""

from __future__ import annotations

import math

REST_S = 0.05
"""The length of a rest. Short, so that a job looks slow rather than stuck; long beside what a pause takes."""
FULL = 0.9995
"""A speed from here on needs no rests."""


class Brake:
    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self.owed_s = 0.0
        self.is_resting = False
        self._since_s: float | None = None
        """When the present run or rest began; None: it has not its turn."""

    def begin(self, now_s: float) -> None:
        """Its turn begins, if it has not begun yet."""
        if self._since_s is None:
            self._since_s = now_s

    def end(self, now_s: float) -> None:
        self._count(now_s)
        self._since_s = None

    def turn(self, now_s: float) -> bool:
        """Choose between run and rest. True if that changed."""
        self._count(now_s)
        was_resting = self.is_resting
        if self._since_s is not None:
            self.is_resting = self.owed_s > 1e-9 if was_resting else self.owed_s >= REST_S - 1e-9
        return self.is_resting != was_resting

    @property
    def next_s(self) -> float:
        """When to choose again."""
        if self._since_s is None or self.speed >= FULL:
            return math.inf
        left_s = self.owed_s if self.is_resting else (REST_S - self.owed_s) * self.speed / (1.0 - self.speed)
        return self._since_s + max(left_s, 0.0)

    def _count(self, now_s: float) -> None:
        if self._since_s is not None:
            past_s = now_s - self._since_s
            self.owed_s += -past_s if self.is_resting else past_s * (1.0 - self.speed) / self.speed
            self.owed_s = max(self.owed_s, 0.0)
            self._since_s = now_s
