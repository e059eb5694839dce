"""The logged time: it never goes backward, and it advances no faster than real time.

It follows the machine's monotonic clock, which cannot be set. It is slowly corrected towards the wall clock while the
difference is small. A large difference means that the wall clock was set: that is reported and otherwise ignored at
first. If it persists, a clock that was set forward is adopted by one step, which is logged (`ClockStepped`), so that no
limit expires and no time is counted that did not pass; if the clock was set back, the logged time runs slightly slower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

NEAR_S = 2.0
"""A wall clock that differs by more than this was set."""
SLEW = 0.01
"""How much faster or slower the logged time runs to approach the wall clock."""
SETTLED_S = 600.0
"""A wall clock that was set is adopted after this long."""
GAP_S = 86400.0
"""A longer time between two boots may be due to a wrong clock; it does not age anything."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(msgspec.Struct):
    """The positions of the clocks, stored with every write: the next server of this boot continues from there."""

    boot: str
    steady_s: float
    at_s: float
    jumps: list[tuple[float, float]] = []
    """(when, by how much): steps of the clock, during which no time passed for jobs."""


class Tick(msgspec.Struct):
    at_s: float
    stepped_s: float = 0.0
    """By how much the logged time was set forward since the last tick, without any time having passed."""
    texts: list[str] = []


class Clock:
    """Calling it returns the time, from any thread; `tick` is for the writer's thread only."""

    def __init__(
        self,
        wall: Callable[[], float],
        steady: Callable[[], float],
        *,
        boot: str = "",
        mark: Mark | None = None,
    ) -> None:
        self._wall, self._steady, self._boot = wall, steady, boot
        self._lock = threading.Lock()
        self._news: list[str] = []
        self.jumps = list(mark.jumps) if mark is not None else []
        self._ticked_s = steady()
        self._offset_s = self._begin(mark) - self._ticked_s
        self._since_s = 0.0
        self.off_s = 0.0
        """The difference between the wall clock and the logged time, if the former was set; 0: they agree."""
        self.steps = 0
        """How often the wall clock was set."""

    def _begin(self, mark: Mark | None) -> float:
        wall_s = self._wall()
        if mark is None:
            return wall_s
        if self._boot and mark.boot == self._boot:
            return mark.at_s + max(self._ticked_s - mark.steady_s, 0.0)
        gap_s = wall_s - mark.at_s
        if gap_s > GAP_S:
            self.jumps.append((wall_s, gap_s))
            self._news.append(f"the last boot of this machine was {shown(gap_s)} ago, if its clock is right")
        return max(wall_s, mark.at_s)

    def __call__(self) -> float:
        return self._steady() + self._offset_s

    def mark(self) -> Mark:
        steady_s = self._steady()
        return Mark(self._boot, steady_s, steady_s + self._offset_s, self.jumps)

    @property
    def problem(self) -> str:
        """The problem to show to admins; empty: the wall clock agrees."""
        if not self.off_s:
            return ""
        return f"the wall clock is {shown(abs(self.off_s))} {'ahead' if self.off_s > 0 else 'behind'}"

    def tick(self) -> Tick:
        with self._lock:
            steady_s = self._steady()
            passed_s, self._ticked_s = steady_s - self._ticked_s, steady_s
            off_s = self._wall() - (steady_s + self._offset_s)
            stepped_s = self._compare(off_s, passed_s, steady_s)
            texts, self._news = self._news, []
            return Tick(steady_s + self._offset_s, stepped_s, texts)

    def _compare(self, off_s: float, passed_s: float, steady_s: float) -> float:
        """Follow the wall clock. Returns by how much the logged time was set."""
        if abs(off_s) <= NEAR_S:
            if self.off_s:
                self._news.append("the wall clock agrees again")
            self.off_s = 0.0
            self._slew(off_s, passed_s)
        elif abs(off_s - self.off_s) > NEAR_S:
            self.steps += 1
            self.off_s, self._since_s = off_s, steady_s
            self._news.append(f"{self.problem}: it was set; the logged time follows the monotonic clock")
        elif steady_s - self._since_s < SETTLED_S:
            self.off_s = off_s
        elif off_s < 0:
            self.off_s = off_s
            self._slew(off_s, passed_s)
        else:
            return self._take_over(off_s, steady_s)
        return 0.0

    def _slew(self, off_s: float, passed_s: float) -> None:
        most_s = SLEW * passed_s
        self._offset_s += max(-most_s, min(most_s, off_s))

    def _take_over(self, off_s: float, steady_s: float) -> float:
        self._offset_s += off_s
        self.off_s = 0.0
        self.jumps.append((steady_s + self._offset_s, off_s))
        self._news.append(f"the wall clock stayed {shown(off_s)} ahead and is adopted: dates continue from there")
        return off_s

    def old_before(self, keep_s: float) -> float:
        """What ended before this time is older than `keep_s`. Steps of the clock do not count."""
        now_s = self()
        unseen_s = sum(by_s for _, by_s in self.jumps)
        self.jumps = [(at_s, by_s) for at_s, by_s in self.jumps if at_s >= now_s - keep_s - unseen_s]
        return now_s - keep_s - sum(by_s for _, by_s in self.jumps)


def machine_clock(kept: str | None) -> Clock:
    """The clock of this machine; `kept` is the stored position of the previous server, as JSON."""
    mark = msgspec.json.decode(kept, type=Mark) if kept else None
    return Clock(time.time, steady, boot=boot_id(), mark=mark)  # noqa: TID251 (here time enters)


def steady() -> float:
    """Seconds of a clock that cannot be set and runs while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def shown(seconds: float) -> str:
    for size, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
