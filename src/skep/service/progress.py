"""Progress reports of running jobs (`skep.train`), coalesced into the few events that are logged.

This module keeps the latest reports, logged or not; `core/progress.py` has the rule by which they are logged. Logged
events contain work and rate in seconds, so a replay needs neither this memory nor the profile.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.core.actions import Setting
from skep.core.cluster import Cluster
from skep.core.events import Event, NodeChanged, NodeJoined, ProgressReported
from skep.core.fold.searches import awaits
from skep.core.job import Job, in_proportion
from skep.core.knowledge import (
    UNKNOWN,
    GpuUse,
    ProfileFigures,
    Training,
    TrainingFigures,
    TrialFigures,
    neighbours_of,
)
from skep.core.model import JobSpec, Shape
from skep.core.progress import SERIES_MAX, Gauge, Report, ShareGauge
from skep.core.standstill import Standstills
from skep.core.state import State
from skep.core.view import JobView

Measure = Callable[[Cluster], ProfileFigures]
"""The speeds that are known on a cluster: those of a profile."""


def nobody_measured(cluster: Cluster) -> ProfileFigures:
    return UNKNOWN


class PresentFigures:
    """The speeds that are known on the present cluster: the state of a server and its copies are given this object, and
    never written when the cluster changes."""

    def __init__(self, measure: Measure = nobody_measured) -> None:
        self.measure = measure
        self.known: ProfileFigures = UNKNOWN

    def see(self, cluster: Cluster) -> None:
        self.known = self.measure(cluster)

    def foresee(self, cluster: Cluster, events: Sequence[Event], changed: Cluster | None) -> None:
        """These events will change the nodes of the cluster, perhaps to those of a new file."""
        joined = {event.spec.name: event.spec for event in events if isinstance(event, NodeJoined | NodeChanged)}
        if changed is not None:
            self.see(changed)
        elif joined:
            self.see(Cluster([*(spec for spec in cluster.specs if spec.name not in joined), *joined.values()]))

    def rate(self, job: JobSpec, shape: Shape, gpu_type: str, neighbours: Sequence[JobSpec] = ()) -> float | None:
        return self.known.rate(job, shape, gpu_type, neighbours)

    @property
    def standstills(self) -> Standstills:
        return self.known.standstills

    def steps_per_s(self, model: str, gpu_type: str, gpus: int) -> float | None:
        return self.known.steps_per_s(model, gpu_type, gpus)

    def models(self) -> frozenset[str]:
        return self.known.models()

    def training(self, job: JobSpec) -> Training | None:
        return self.known.training(job)

    def shown(self, job: JobView, now_s: float) -> TrainingFigures | None:
        return self.known.shown(job, now_s)

    def trial(self, job: JobSpec, gpu_type: str) -> TrialFigures | None:
        return self.known.trial(job, gpu_type)

    def use(self, model: str) -> GpuUse | None:
        return self.known.use(model)


OWN = ("step", "steps", "epoch", "epochs", "checkpoint_step", "left", "done", "at_s", "diverged", "rungs")
"""Keys of `skep.train`; every other number is a series."""
RUNGS_MAX = 20
NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")
MOST = 1e15
"""The largest valid number of steps."""
LATE_S, EARLY_S = 30.0, 5.0
"""A job whose clock differs by more than this is assumed to report at the time of receipt."""


class LatestReport(msgspec.Struct):
    """The latest report of a job."""

    at_s: float
    report: Report
    saved_step: float | None


class Reports:
    """The reporting jobs, by id."""

    def __init__(self) -> None:
        self.gauges: dict[str, Gauge] = {}
        self.unlogged: dict[str, LatestReport] = {}
        self.shares: dict[str, ShareGauge] = {}

    def receive(self, state: State, job: Job, values: Mapping[str, Setting], now_s: float) -> ProgressReported | None:
        """An event, if this report is to be logged."""
        latest = read_report(values, now_s)
        if latest is None or job.seq not in state.held_jobs or job.is_halted:
            return None
        gauge = self._gauge(state, job)
        self.unlogged[job.id] = latest
        is_due = gauge.add(latest.at_s, latest.report.step)
        is_awaited = job.spec.group is not None and awaits(state, job, latest.report)
        return self._log(state, job, gauge) if is_due or is_awaited else None

    def receive_share(self, state: State, job: Job, share: float, now_s: float) -> ProgressReported | None:
        """An event, if the engine's measurement of the job is to be logged."""
        if job.seq not in state.held_jobs or job.is_halted or not 0 <= share <= 1:
            return None
        gauge = self.shares.get(job.id)
        if gauge is None:
            gauge = self.shares[job.id] = ShareGauge(job.share)
        return ProgressReported(job.id, launch=job.held_launch, share=share) if gauge.add(now_s, share) else None

    def last(self, state: State, job: Job) -> ProgressReported | None:
        """The job's run has ended: its latest report, if that was not logged."""
        gauge = self.gauges.pop(job.id, None)
        self.shares.pop(job.id, None)
        is_news = job.id in self.unlogged and gauge is not None and job.seq in state.held_jobs and not job.is_halted
        found = self._log(state, job, gauge) if is_news and gauge is not None else None
        self.unlogged.pop(job.id, None)
        return found

    def _gauge(self, state: State, job: Job) -> Gauge:
        beside = tuple(other.seq for other in neighbours_of(job, state.held_jobs, state.cluster))
        place = (job.held_since_s, beside)
        gauge = self.gauges.get(job.id)
        if gauge is None or gauge.launch != job.held_launch:
            gauge = self.gauges[job.id] = Gauge(job.held_launch, place)
            logged = state.known.progress.get(job.id)
            if logged is not None and logged.launch == job.held_launch:  # by the previous server
                gauge.logged_s, gauge.logged_speed = logged.at_s, logged.report.steps_per_s
        gauge.settle(place)
        return gauge

    def _log(self, state: State, job: Job, gauge: Gauge) -> ProgressReported:
        latest = self.unlogged.pop(job.id)
        step, speed = latest.report.step, gauge.speed
        reference = self._reference(state, job, gauge, latest)
        gauge.log(latest.at_s, step)
        report = msgspec.structs.replace(latest.report, steps_per_s=speed, reference=reference)
        if reference is None:
            return ProgressReported(job.id, report=report, launch=job.held_launch)
        return ProgressReported(
            job.id,
            work_s=step / reference,
            rate=None if speed is None else speed / reference,
            saved_s=None if latest.saved_step is None else latest.saved_step / reference,
            report=report,
            launch=job.held_launch,
        )

    def _reference(self, state: State, job: Job, gauge: Gauge, latest: LatestReport) -> float | None:
        """Steps per second in its first shape, alone: as found before, from the profile, or as shown by the job itself
        in its first exclusive minute."""
        known = state.known.progress.get(job.id)
        if known is not None and known.reference is not None:
            return known.reference
        asked = job.spec.shapes[0]
        gpu_type = asked.gpu_types[0] if asked.gpu_types else ""
        measured = state.known.steps_per_s(job.spec.model, gpu_type, asked.gpus) if job.spec.model else None
        if measured:
            return measured
        assert job.held is not None
        is_alone = not neighbours_of(job, state.held_jobs, state.cluster)
        shown = gauge.reference(latest.at_s, latest.report.step) if is_alone else None
        return shown / in_proportion(job.spec, job.held) / self._rate_there(state, job) if shown else None

    def _rate_there(self, state: State, job: Job) -> float:
        """What its GPU type does for its speed, as far as that is known; 1 if it is not."""
        assert job.held is not None
        types = {state.cluster.nodes[node].pool.gpu_type for node, _ in job.held.masks()}
        found = state.known.rate(job.spec, job.spec.shapes[0], types.pop()) if len(types) == 1 else None
        return found or 1.0


def read_report(values: Mapping[str, Setting], now_s: float) -> LatestReport | None:
    """Reads a report, whose content is not trusted. None if it has no step: its progress is then unknown."""
    step = amount(values.get("step"))
    if step is None:
        return None
    at_s = number(values.get("at_s"))
    names = sorted(name for name in values if name not in OWN and NAME.fullmatch(name))
    series = {name: found for name in names if (found := number(values[name])) is not None}
    report = Report(
        step,
        amount(values.get("steps")),
        amount(values.get("epoch")),
        amount(values.get("epochs")),
        series=dict(list(series.items())[:SERIES_MAX]),
        diverged=names_in(values.get("diverged")),
        at_rungs=rungs_in(values.get("rungs")),
    )
    is_right = at_s is not None and now_s - LATE_S <= at_s <= now_s + EARLY_S
    return LatestReport(at_s if at_s is not None and is_right else now_s, report, amount(values.get("checkpoint_step")))


def names_in(value: object) -> tuple[str, ...]:
    """Names of series, with spaces between them."""
    names = value[: 64 * SERIES_MAX].split()[:SERIES_MAX] if isinstance(value, str) else ()
    return tuple(name for name in names if NAME.fullmatch(name))


def rungs_in(value: object) -> dict[int, float]:
    """Numbers of rungs and values: `0:0.5 1:0.25`."""
    pairs = [pair.partition(":") for pair in value[: 64 * RUNGS_MAX].split()] if isinstance(value, str) else ()
    found = {}
    for rung, _, text in pairs[-RUNGS_MAX:]:
        with contextlib.suppress(ValueError):
            if rung.isdecimal() and len(rung) < 10 and (known := number(float(text))) is not None:
                found[int(rung)] = known
    return found


def number(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -1e300 < value < 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def amount(value: object) -> float | None:
    found = number(value)
    return found if found is not None and 0 <= found <= MOST else None
