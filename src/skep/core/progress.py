"""Progress of jobs, and the rule by which reports are logged.

A job may report many times a second. The log gets the first and the last report of a run, and between them at most one
a minute, sooner if the speed changes by a tenth. Planners see only what was logged, so a replay sees the same. The
service and the simulator both use a `Gauge`.
"""

from __future__ import annotations

import math

import msgspec

from skep.core.history import Spread

EVERY_S = 60.0
"""The time between two log entries about one run."""
MOVED = 0.1
"""The relative change of speed that is logged at once."""
LOOK_S, LOOK_STEPS = 10.0, 100
"""A speed is measured over at least this many seconds and steps, and has changed if two measurements in a row say so:
jitter is not logged."""
EXCLUSIVE_S, EXCLUSIVE_STEPS = 60.0, 10
"""After this long, and this many steps, alone on its GPUs a job has shown its reference speed."""


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a job as it is logged."""

    step: float
    """Steps done, including those of earlier runs."""
    steps: float | None = None
    """The total number of steps."""
    epoch: float | None = None
    """Epochs done."""
    epochs: float | None = None
    """The total number of epochs."""
    steps_per_s: float | None = None
    """Measured since the last entry, on the present GPUs."""
    reference: float | None = None
    """Steps per second at its reference: from the profile, else from its own first minute alone."""
    series: dict[str, float] = {}
    """The latest value of each series: loss, batch size, gradient noise, …"""
    diverged: tuple[str, ...] = ()
    """Series whose latest value is not a finite number."""
    at_rungs: dict[int, float] = {}
    """Of a trial: the metric of its search at the latest rungs, by their numbers."""


class Tally(msgspec.Struct, array_like=True):
    """A running count, mean and deviation; values are never removed."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """The sum of squared differences from the mean (Welford)."""

    def add(self, value: float) -> None:
        self.count += 1
        off = value - self.mean
        self.mean += off / self.count
        self.squares += off * (value - self.mean)

    @property
    def spread(self) -> Spread:
        return Spread(self.count, self.mean, math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else 0.0)


class SeriesCourse(msgspec.Struct, array_like=True):
    """A series of a job from its beginning, thinned: at most `COURSE_MAX` points, evenly spaced by reports."""

    points: list[tuple[float, float]] = []
    """(step, value)"""
    every: int = 1
    """One of so many values is kept."""
    skipped: int = 0
    """Values since the last point that is kept."""

    def add(self, step: float, value: float) -> None:
        points = self.points
        while points and points[-1][0] >= step:  # it restarted from a checkpoint
            points.pop()
        self.skipped += 1
        if points and self.skipped < self.every:
            return
        self.skipped = 0
        points.append((step, value))
        if len(points) > COURSE_MAX:
            self.points = points[::2]
            self.every *= 2


COURSES = ("loss", "accuracy", "batch_size", "noise", "step_s")
"""The series of which the course is kept."""
COURSE_MAX = 64


class Progress(msgspec.Struct):
    """The logged progress of a job that has not ended."""

    at_s: float
    launch: int
    report: Report
    """The last report."""
    speeds: Tally = msgspec.field(default_factory=Tally)
    """Steps per second."""
    values: dict[str, Tally] = {}
    """Statistics of each series."""
    courses: dict[str, SeriesCourse] = {}
    """How some of them went (`COURSES`)."""

    @property
    def reference(self) -> float | None:
        return self.report.reference

    @property
    def speed(self) -> Spread | None:
        return self.speeds.spread if self.speeds.count else None

    def spread_of(self, series: str) -> Spread | None:
        tally = self.values.get(series)
        return None if tally is None else tally.spread

    def done_at(self, work_s: float) -> float | None:
        """The completed part of the job, 0 to 1, after this much work; None if the job does not report a total."""
        report = self.report
        if report.steps:
            step = report.step if report.reference is None else work_s * report.reference
            return min(step / report.steps, 1.0)
        if report.epochs and report.epoch is not None:
            return min(report.epoch / report.epochs, 1.0)
        return None

    def take_in(self, at_s: float, launch: int, report: Report) -> None:
        self.at_s, self.launch, self.report = at_s, launch, report
        if report.steps_per_s is not None:
            self.speeds.add(report.steps_per_s)
            if report.steps_per_s > 0:
                self.courses.setdefault("step_s", SeriesCourse()).add(report.step, 1 / report.steps_per_s)
        for name in COURSES if report.series else ():
            value = report.series.get(name)
            if value is not None:
                self.courses.setdefault(name, SeriesCourse()).add(report.step, value)
        for name, value in report.series.items():
            tally = self.values.get(name)
            if tally is None:
                if len(self.values) >= SERIES_MAX:
                    continue
                tally = self.values[name] = Tally()
            tally.add(value)


SERIES_MAX = 32
"""The number of series per job for which statistics are kept."""


Mark = tuple[float, float]
"""A time, and the step of the job at that time."""


class Gauge:
    """The reports of one run of a job: its speed, and when that is to be logged."""

    __slots__ = ("began", "launch", "logged_s", "logged_speed", "look", "mark", "moved", "place", "speed")

    def __init__(self, launch: int, place: object = None, logged_s: float | None = None) -> None:
        self.launch = launch
        self.place = place
        """Its neighbours: a speed is measured for one set of neighbours."""
        self.logged_s = logged_s
        """The time of the last log entry; None: there was none."""
        self.logged_speed: float | None = None
        self.speed: float | None = None
        """Steps per second since the last entry, with these neighbours."""
        self.began: Mark | None = None
        """Its first report with these neighbours."""
        self.mark: Mark | None = None
        """Start of the present speed measurement."""
        self.look: Mark | None = None
        """Start of the present comparison."""
        self.moved = 0
        """1 or -1 if the last comparison was above or below the logged speed."""

    def settle(self, place: object) -> None:
        """The neighbours have changed."""
        if place != self.place:
            self.place = place
            self.began = None

    def add(self, at_s: float, step: float) -> bool:
        """Process a report. True if it is to be logged."""
        if self.began is None or self.mark is None or step < self.mark[1]:  # or it restarted from a checkpoint
            self.began = self.mark = self.look = (at_s, step)
            self.speed, self.moved = None, 0
            return self.is_due(at_s, None)
        is_sure = self._looks_moved(at_s, step)
        self.speed = speed_since(self.mark, at_s, step)
        return self.is_due(at_s, self.speed if is_sure else None)

    def is_due(self, at_s: float, speed: float | None) -> bool:
        """The rule: log the first report, one a minute, and one as soon as the speed (if measured) has changed."""
        if self.logged_s is None or at_s - self.logged_s >= EVERY_S:
            return True
        return speed is not None and moves(self.logged_speed, speed) != 0

    def log(self, at_s: float, step: float) -> None:
        """Note that an entry was made."""
        self.logged_s = at_s
        if self.speed is not None:
            self.logged_speed = self.speed
        self.mark = self.look = (at_s, step)
        self.moved = 0

    def reference(self, at_s: float, step: float) -> float | None:
        """Steps per second with these neighbours, if measured for long enough."""
        began = self.began
        if began is None or at_s - began[0] < EXCLUSIVE_S or step - began[1] < EXCLUSIVE_STEPS:
            return None
        return speed_since(began, at_s, step)

    def _looks_moved(self, at_s: float, step: float) -> bool:
        """True if two comparisons in a row found another speed than the logged one; the speed is then measured since
        the first."""
        assert self.look is not None
        if at_s - self.look[0] < LOOK_S or step - self.look[1] < LOOK_STEPS:
            return False
        began, self.look = self.look, (at_s, step)
        before, self.moved = self.moved, moves(self.logged_speed, speed_since(began, at_s, step) or 0.0)
        if self.moved and not before:
            self.mark = began
        return self.moved != 0 and self.moved == before


SHARE_MOVED = 0.05
"""A change of the measured share by this much of a GPU is logged at once, a smaller one once a minute."""


class ShareGauge:
    """The measured shares of one run of a job, and which of them are to be logged."""

    __slots__ = ("logged", "logged_s")

    def __init__(self, logged: float | None = None, logged_s: float = -math.inf) -> None:
        self.logged = logged
        """The last logged share."""
        self.logged_s = logged_s

    def add(self, at_s: float, share: float) -> bool:
        """Process a measurement. True if it is to be logged, which is then assumed to happen."""
        moved = math.inf if self.logged is None else abs(share - self.logged)
        if moved < SHARE_MOVED and (at_s - self.logged_s < EVERY_S or moved < SHARE_MOVED / 10):
            return False
        self.logged, self.logged_s = share, at_s
        return True


def speed_since(mark: Mark, at_s: float, step: float) -> float | None:
    return (step - mark[1]) / (at_s - mark[0]) if at_s > mark[0] else None


def moves(before: float | None, now: float) -> int:
    """1 or -1 if a speed is more than a tenth above or below the earlier one."""
    if before is None or abs(now - before) <= MOVED * before:
        return 0
    return 1 if now > before else -1
