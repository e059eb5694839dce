"""E-LAS: attained service together with epoch progress, so that a job near its end is finished, not preempted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from skep.core.knowledge import Knowledge, KnowledgeView
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.estimate.progress import standing_of, whole_epochs
from skep.policies.order.base import RISES, Ceiling, Order

FORMS = ("sum", "product", "remaining")

STEP = 1e-4
"""Keys are rounded to this part of the lead, so that jobs which were preempted at the same level stay level."""
SLACK = 0.01
"""Tolerance for rounding, as a part of a step: a job within it of the lead counts as having reached it."""


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
    """Jobs with little service and much progress go first. In the form `remaining` the key of a running job only falls,
    so it is enough to examine keys when jobs come and go."""

    moves = RISES

    def __init__(self, *, form: str, weight: float, scale: float, lead: float) -> None:
        self.form = form
        self.weight = weight
        self.scale = scale
        self.lead = lead
        self.step = lead * STEP
        self.known: KnowledgeView = Knowledge()

    def attach(self, view: View) -> None:
        self.known = view.knowledge
        self.passing: dict[int, Ceiling] = {}
        """By seq: the last question about each job, and its service and progress then."""

    def ended(self, job: JobView, plan: Plan, now_s: float) -> None:
        self.passing.pop(job.seq, None)

    def key(self, job: JobView, now_s: float) -> float:
        value = self._value(job, now_s)
        return round(value / self.step) * self.step if self.step else value

    def _value(self, job: JobView, now_s: float) -> float:
        service = job.service_at(now_s)
        left = 1.0 - standing_of(job, self.known, now_s).counted
        if self.form == "sum":
            return self.weight * service / (service + self.scale) + (1 - self.weight) * left
        if self.form == "product" or left == 1.0:
            return service * left
        return service * left / (1.0 - left)

    def running_key(self, job: JobView, now_s: float) -> float:
        value = self._value(job, now_s) - self.lead
        return (math.floor(value / self.step + SLACK) + 0.5) * self.step if self.step else value

    def reaches(self, job: JobView, key: float, now_s: float) -> float:
        if self.form == "remaining":
            return math.inf
        known, course = self.passing.get(job.seq), self._course(job)
        if known is None or known[0] != (job.rank, key) or known[1] <= now_s or known[3] != course:
            goal = key + self.lead
            at_s, before_s = self._passes(job, (goal - self.step * SLACK / 2, goal - self.step * SLACK * 2), now_s)
            known = self.passing[job.seq] = ((job.rank, key), at_s, before_s, course)
        return known[1]

    def surely_behind(self, job: JobView) -> float:
        known = self.passing.get(job.seq)
        return math.inf if known is None else known[2]

    def ceilings(self, entries: Iterable[tuple[int, float, int, JobView]], now_s: float) -> dict[int, Ceiling]:
        passing, reported = self.passing, self.known.progress
        found = {}
        for rank, _, seq, job in entries:
            known = passing.get(seq)
            if known is not None and known[2] > now_s:
                since_s, rate, state, held_s, _ = known[3]
                if since_s != job.progress_since_s or rate != job.rate or held_s != job.held_since_s:
                    continue
                if state is job.state and known[0][0] == rank and (not reported or known[3] == self._course(job)):
                    found[seq] = known
        return found

    def _course(self, job: JobView) -> tuple[object, ...]:
        """As long as this is unchanged, service and progress grow as before."""
        progress = self.known.progress.get(job.id) if self.known.progress else None
        return (job.progress_since_s, job.rate, job.state, job.held_since_s, progress and progress.at_s)

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
        return min(begun_s + self._solve(standing, goal), ends_s)

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
