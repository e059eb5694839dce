"""E-LAS: attained service together with epoch progress, so that a job near its end is finished, not preempted."""

from __future__ import annotations

import math
from typing import NamedTuple

from skep.core.job import JobState
from skep.core.knowledge import Knowledge, KnowledgeView
from skep.core.view import JobView, View
from skep.policies.estimate.progress import EpochStanding, standing_of, whole_epochs
from skep.policies.order.base import RISES, Drift, Order

FORMS = ("sum", "product", "remaining")

STEP = 1e-6
"""Keys are rounded to this part of the lead, so that jobs which were preempted at the same level stay level."""
SLACK = 0.01
"""Tolerance for rounding, as a part of a step: a job within it of the lead counts as having reached it."""

INSTANT_S = 1e-6
"""A key that would reach its goal so shortly before the end of an epoch does not: within the tolerance both are at the
same instant, and the epoch lowers the key."""

GRAIN = 0.1
"""As a part of the lead."""


class Course(NamedTuple):
    """Service and progress of a job while both grow linearly."""

    service: float
    gpus: float
    done: float
    """The completed part of its work, 0 to 1."""
    rate: float
    """The growth of that part per second."""

    def after(self, passed_s: float) -> Course:
        service, gpus, done, rate = self
        return Course(service + gpus * passed_s, gpus, min(done + rate * passed_s, 1.0), rate)


class ProgressAndService(Order):
    """Jobs with little service and much progress go first. In the form `remaining` the key of a running job rises only
    while it makes no progress that counts; keys are examined when jobs come and go."""

    moves = RISES

    def __init__(self, *, form: str, weight: float, scale: float, lead: float) -> None:
        self.form = form
        self.weight = weight
        self.scale = scale
        self.lead = lead
        self.step = lead * STEP
        self.grain = 0.0 if form == "remaining" else lead * GRAIN
        self.blur = self.step * 1.1
        self.known: KnowledgeView = Knowledge()

    def attach(self, view: View) -> None:
        self.known = view.knowledge

    def key(self, job: JobView, now_s: float) -> float:
        value = self._value(job.service_at(now_s), standing_of(job, self.known, now_s))
        return round(value / self.step) * self.step if self.step else value

    def _value(self, service: float, standing: EpochStanding) -> float:
        left = 1.0 - standing.counted
        if self.form == "sum":
            return self.weight * service / (service + self.scale) + (1 - self.weight) * left
        if self.form == "product" or left == 1.0:
            return service * left
        return service * left / (1.0 - left)

    def running_key(self, job: JobView, now_s: float) -> float:
        return self._with_lead(job.service_at(now_s), standing_of(job, self.known, now_s))

    def _with_lead(self, service: float, standing: EpochStanding) -> float:
        value = self._value(service, standing) - self.lead
        return (math.floor(value / self.step + SLACK) + 0.5) * self.step if self.step else value

    def drift(self, job: JobView, now_s: float) -> Drift:
        """Service raises the value, less and less. Progress lowers it until all is done; in jumps, if whole epochs
        count."""
        service, standing = job.service_at(now_s), standing_of(job, self.known, now_s)
        done, rate, epochs = standing
        key = self._with_lead(service, standing)
        if not self.grain:
            return Drift(key, math.inf, math.inf)
        gpus = job.allocation.gpus if job.allocation else 0.0
        gain = self._gain(service, gpus, 1.0 - standing.counted)
        if epochs or job.state is not JobState.RUNNING:  # else its speed is known
            return Drift(key, gain, math.inf)
        if not rate or done >= 1.0:
            return Drift(key, gain, 0.0)
        restart_s = max(job.progress_since_s - now_s, 0.0)
        lasts_s = restart_s + (1.0 - done) / rate
        service_then = service + gpus * lasts_s
        loss = rate * (1 - self.weight if self.form == "sum" else service)
        falls = rate * (1 - self.weight if self.form == "sum" else service_then)
        then = self._with_lead(service_then, EpochStanding(1.0, 0.0, 0)) + self.blur
        rises = gain if restart_s else gain - loss
        return Drift(key, rises, falls, now_s + lasts_s, then, self._gain(service_then, gpus, 0.0))

    def _gain(self, service: float, gpus: float, left: float) -> float:
        """How fast service alone raises the value."""
        return self.weight * gpus * self.scale / (service + self.scale) ** 2 if self.form == "sum" else gpus * left

    def reaches(self, job: JobView, key: float, now_s: float) -> float:
        return self.passes(job, key, now_s)[0]

    def passes(self, job: JobView, key: float, now_s: float) -> tuple[float, float]:
        if self.form == "remaining":
            return math.inf, math.inf
        goal = key + self.lead
        at_s, before_s = self._passes(job, (goal - self.step * SLACK / 2, goal - self.step * SLACK * 2), now_s)
        return at_s, before_s

    def _passes(self, job: JobView, goals: tuple[float, float], now_s: float) -> list[float]:
        """When the value of a running job reaches each of the goals. Service raises it and progress lowers it. Both
        grow linearly within three periods: the rest of a restart, the work, and the time after the expected work.

        The speed of a job that is launching is not known yet: without progress it passes earliest, so the key is
        examined again then.
        """
        gpus = job.allocation.gpus if job.allocation else 0.0
        done, rate, epochs = standing_of(job, self.known, now_s)
        restart_s = max(job.progress_since_s - now_s, 0.0) if rate else 0.0
        at_s = now_s
        course = Course(job.service_at(now_s), gpus, done, 0.0)
        periods = []
        for lasts_s, slope in ((restart_s, 0.0), ((1 - done) / rate if rate else 0.0, rate), (math.inf, 0.0)):
            if lasts_s:
                course = Course(course.service, gpus, course.done, slope)
                periods.append((at_s, lasts_s, course))
                at_s += lasts_s
                course = course.after(lasts_s)
        return [self._passes_in(periods, epochs, goal) for goal in goals]

    def _passes_in(self, periods: list[tuple[float, float, Course]], epochs: float, goal: float) -> float:
        for at_s, lasts_s, course in periods:
            found_s = self._first(course, epochs, goal, lasts_s)
            if found_s <= lasts_s:
                return at_s + found_s
        return math.inf

    def _first(self, course: Course, epochs: float, goal: float, lasts_s: float) -> float:
        """The time after which the key reaches the goal while service and progress grow linearly, if before
        `lasts_s`."""
        if not epochs:
            return self._solve(course, goal)
        if not course.rate:
            return self._solve(course._replace(done=whole_epochs(course.done, epochs)), goal)
        # Whole epochs count, so less than one is missing: nothing happens before it would to a job one epoch behind.
        soonest_s = self._solve(course._replace(done=course.done - 1 / epochs), goal)
        if soonest_s > lasts_s:
            return math.inf
        epoch = whole_epochs(course.after(soonest_s).done, epochs)
        begun_s = max((epoch - course.done) / course.rate, 0.0)
        ends_s = (epoch + 1 / epochs - course.done) / course.rate
        standing = course.after(begun_s)._replace(done=epoch, rate=0.0)
        found_s = begun_s + self._solve(standing, goal)
        return found_s if found_s < ends_s - INSTANT_S else ends_s

    def _solve(self, course: Course, goal: float) -> float:
        """When the key reaches the goal: with service and progress linear in time, a quadratic equation."""
        service, gpus, done, rate = course
        left = 1.0 - done
        if self.form == "sum":
            above, falls, total = (1 - self.weight) * left - goal, (1 - self.weight) * rate, service + self.scale
            return first_root(
                -falls * gpus, (self.weight + above) * gpus - falls * total, self.weight * service + above * total
            )
        return first_root(-gpus * rate, gpus * left - rate * service, service * left - goal)


def first_root(square: float, slope: float, start: float) -> float:
    """The first t >= 0 at which square·t² + slope·t + start is not below 0; square is not above 0."""
    if start >= 0:
        return 0.0
    inside = slope * slope - 4 * square * start
    if slope <= 0 or inside < 0:
        return math.inf
    return -2 * start / (slope + math.sqrt(inside))
