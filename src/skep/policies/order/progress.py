"""E-LAS: attained service together with epoch progress, so that a job near its end is finished, not preempted."""

from __future__ import annotations

import math
from typing import NamedTuple

from skep.core.knowledge import Knowledge, KnowledgeView
from skep.core.plan import Plan
from skep.core.view import JobView, View
from skep.policies.estimate.progress import standing_of, whole_epochs
from skep.policies.order.base import RISES, Order

FORMS = ("sum", "product", "remaining")

STEP = 1e-4
"""Keys are rounded to this part of the lead, so that jobs which were preempted at one level stay level."""
SLACK = 0.01
"""Tolerance for rounding, as a part of a step: a job within it of the lead counts as having reached it."""


class Course(NamedTuple):
    """Service and progress of a job while both grow evenly."""

    service: float
    gpus: float
    done: float
    """The part of its work, 0 to 1."""
    rate: float
    """By which that part grows per second."""

    def after(self, passed_s: float) -> Course:
        service, gpus, done, rate = self
        return Course(service + gpus * passed_s, gpus, min(done + rate * passed_s, 1.0), rate)


class ProgressAndService(Order):
    """Little service and much progress go first. In the form `remaining` the key of a job that works only falls, so
    it is enough to look when jobs come and go."""

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
        self.passing: dict[int, tuple[tuple[object, ...], float]] = {}
        """What was last asked about each job, by seq, and when it passes that key if it goes on as it did."""

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
        progress = self.known.progress.get(job.id) if self.known.progress else None
        asked = (key, job.state, job.rate, job.held_since_s, job.progress_since_s, progress and progress.at_s)
        known = self.passing.get(job.seq)
        if known is None or known[0] != asked or known[1] <= now_s:
            known = self.passing[job.seq] = (asked, self._passes(job, key, now_s))
        return known[1]

    def _passes(self, job: JobView, key: float, now_s: float) -> float:
        """Service lifts the key and progress lowers it. Three stretches of time, in each of which both grow evenly: the
        rest of a restart, the work, and what comes after the work that was expected.

        How fast a job goes that is only about to start is not known yet: without progress it passes soonest, so we look
        again then.
        """
        goal = key + self.lead - self.step * SLACK / 2
        gpus = job.allocation.gpus if job.allocation else 0.0
        done, rate, epochs = standing_of(job, self.known, now_s)
        restart_s = max(job.progress_since_s - now_s, 0.0) if rate else 0.0
        at_s = now_s
        course = Course(job.service_at(now_s), gpus, done, 0.0)
        for lasts_s, slope in ((restart_s, 0.0), ((1 - done) / rate if rate else 0.0, rate), (math.inf, 0.0)):
            if not lasts_s:
                continue
            course = Course(course.service, gpus, course.done, slope)
            found_s = self._first(course, epochs, goal, lasts_s)
            if found_s <= lasts_s:
                return at_s + found_s
            at_s += lasts_s
            course = course.after(lasts_s)
        return math.inf

    def _first(self, course: Course, epochs: float, goal: float, lasts_s: float) -> float:
        """After how long the key is at the goal while service and progress grow evenly, if before `lasts_s`."""
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
        """When the key is at the goal: with service and progress linear in time, a quadratic."""
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
