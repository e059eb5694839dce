"""The part of the time in which an opportunistic job may run beside a guaranteed one. Standard library only, no clock.

The guaranteed job's own step times decide, as in AntMan. First its step time alone is learned, with the neighbour
paused. Then the neighbour's part of the time (its duty) grows by a constant at each report of steps and is halved when
steps take longer than tolerated. While the guaranteed job is idle the neighbour runs all the time.
"""

from __future__ import annotations

REPORTS = 3
"""The number of reports of the guaranteed job alone after which its step time counts as known."""
TOLERANCE = 1.05
"""The tolerated step time as a multiple of its step time alone."""
LEAST = 0.03
"""The smallest duty: a neighbour that stays paused frees none of the memory it holds."""
INCREASE, DECREASE = 0.05, 0.5
HOPELESS = 10
"""The number of reports of slow steps at the smallest duty after which the step time alone is learned again, because
the job itself has changed."""
FOLLOWS = 0.1
"""The weight with which the known step time follows faster steps."""


class DutyControl:
    def __init__(self) -> None:
        self.alone_s: float | None = None
        """The guaranteed job's step time alone."""
        self.busy_duty = LEAST
        """The duty while the guaranteed job is busy."""
        self.step_s: float | None = None
        """Its last step time."""
        self._learned: list[float] = []
        self._slow = 0

    @property
    def is_learning(self) -> bool:
        """True while the neighbour must be paused: the guaranteed job has begun to report its steps."""
        return self.alone_s is None and self.step_s is not None

    def duty(self, *, is_busy: bool) -> float:
        if not is_busy:
            return 1.0
        return 0.0 if self.is_learning else self.busy_duty

    def hear(self, step_s: float, duty: float) -> None:
        """The mean step time of the guaranteed job since its last report, and the neighbour's duty meanwhile."""
        is_first, self.step_s = self.step_s is None, step_s
        if self.alone_s is None:
            if not is_first and duty == 0.0:
                self._learn(step_s)
            return
        if step_s > TOLERANCE * self.alone_s:
            self._slow_down()
        else:
            self.busy_duty = min(self.busy_duty + INCREASE, 1.0)
            self._slow = 0
            if step_s < self.alone_s:
                self.alone_s += FOLLOWS * (step_s - self.alone_s)

    def _learn(self, step_s: float) -> None:
        self._learned.append(step_s)
        if len(self._learned) >= REPORTS:
            self.alone_s = sorted(self._learned)[len(self._learned) // 2]
            self._learned = []

    def _slow_down(self) -> None:
        if self.busy_duty > LEAST:
            self.busy_duty = max(self.busy_duty * DECREASE, LEAST)
            return
        self._slow += 1
        if self._slow >= HOPELESS:
            self.alone_s, self._slow = None, 0
