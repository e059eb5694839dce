"""`/metrics` for Prometheus. Labels are states, causes, nodes and VCs, never jobs or users."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from skep.server.schemas import STATES
from skep.service.live import Live
from skep.service.spent import NOTHING

log = logging.getLogger(__name__)
HTTP_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400
JOB_BUCKETS = (
    *(1, 10, MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 4 * HOUR_S, 12 * HOUR_S),
    *(DAY_S, 3 * DAY_S, 7 * DAY_S),
)


class ServerMetrics:
    """A separate registry, so that two servers in one process (tests) do not interfere."""

    def __init__(self, live: Live) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_LiveCollector(live))
        self._times = _JobTimes(live, self._registry)
        self.requests = Counter(
            "skep_http_requests", "Requests answered.", ("method", "route", "status"), registry=self._registry
        )
        self.seconds = Histogram(
            "skep_http_request_seconds", "Until the answer began.", registry=self._registry, buckets=HTTP_BUCKETS
        )

    def text(self) -> bytes:
        self._times.observe()
        return generate_latest(self._registry)


class _JobTimes:
    """How long jobs waited and ran, while this server is up; updated at each scrape."""

    def __init__(self, live: Live, registry: CollectorRegistry) -> None:
        self._live = live
        self._lock = threading.Lock()
        self._wait = Histogram(
            "skep_job_wait_seconds", "From submission to first start.", registry=registry, buckets=JOB_BUCKETS
        )
        self._run = Histogram(
            "skep_job_run_seconds",
            "Running, all attempts together; of jobs that have ended.",
            registry=registry,
            buckets=JOB_BUCKETS,
        )
        self._ended_s = live.clock()  # what ended before is not ours
        self._started = {seq for seq, *_ in live.times(self._ended_s)}
        """Open jobs whose waiting has been counted."""

    def observe(self) -> None:
        with self._lock:
            rows = self._live.times(self._ended_s)
            had = self._live.spent(seq for seq, _, _, finish_s in rows if finish_s is not None)
            for seq, submit_s, start_s, finish_s in rows:
                if seq not in self._started:
                    self._wait.observe(start_s - submit_s)
                if finish_s is not None:
                    self._run.observe(had.get(seq, NOTHING).ran_s)
                    self._ended_s = max(self._ended_s, finish_s)
            self._started = {seq for seq, _, _, finish_s in rows if finish_s is None}


class _LiveCollector:
    """Queries the service at each scrape, so that nothing is counted in two places."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        stats = self._live.stats()
        jobs = GaugeMetricFamily("skep_jobs", "Jobs by state.", labels=["state"])
        for state in STATES:
            jobs.add_metric([state], stats["jobs"].get(state, 0))
        yield jobs
        yield GaugeMetricFamily("skep_jobs_pending", "Jobs that wait for GPUs.", stats["jobs"].get("pending", 0))
        yield from _gpus(self._live)
        now = self._live.sample()
        yield GaugeMetricFamily("skep_gpus_lent", "GPUs that jobs have beyond the guarantee of their VC.", now.lent)
        yield GaugeMetricFamily("skep_gpus_bad", "GPUs of lost nodes.", now.bad)
        yield GaugeMetricFamily("skep_gpus_drained", "GPUs of drained nodes.", now.drained)
        unused = self._live.idle()
        yield GaugeMetricFamily("skep_gpus_idle", "Idle GPUs and parts of GPUs.", unused.gpus)
        yield GaugeMetricFamily(
            "skep_gpus_fragments", "Of these, the part that typical jobs cannot use.", unused.fragments
        )
        waiting = GaugeMetricFamily("skep_jobs_waiting", "Waiting jobs by cause of their refusal.", labels=["cause"])
        for cause, count in sorted(stats.get("waiting", {}).items()):
            waiting.add_metric([cause], count)
        yield waiting
        said = "GPUs' worth of time that jobs in share modes get, as measured, by VC and mode."
        shared = GaugeMetricFamily("skep_shared_gpus", said, labels=["vc", "mode"])
        for (vc, mode), gpus in sorted(stats["shared"].items()):
            shared.add_metric([vc, mode], gpus)
        yield shared
        turns = stats["turns"]
        yield SummaryMetricFamily("skep_decision_seconds", "Deciding, by turn of the writer.", turns, stats["decide_s"])
        yield SummaryMetricFamily("skep_commit_seconds", "Writing, by turn of the writer.", turns, stats["commit_s"])
        failures, longest_s = stats["policy_failures"], stats["policy_longest_s"]
        yield CounterMetricFamily("skep_policy_failures", "Policies that failed and were replaced.", failures)
        yield GaugeMetricFamily(
            "skep_policies_replaced", "Of these, those that are still replaced.", stats["policies_replaced"]
        )
        yield CounterMetricFamily(
            "skep_solver_failures", "Questions of policies that had no answer.", stats["solver_failures"]
        )
        age = GaugeMetricFamily("skep_solver_answer_age_seconds", "Age of the answer in force, by VC.", labels=["vc"])
        for each in stats["solvers"]:
            if each.answered_s is not None:
                age.add_metric([each.vc], max(self._live.clock() - each.answered_s, 0.0))
        yield age
        yield GaugeMetricFamily("skep_decision_longest_seconds", "The longest time a policy took to decide.", longest_s)
        yield CounterMetricFamily("skep_decisions", "Number of decisions.", stats["decisions"])
        yield CounterMetricFamily("skep_events", "Events written to the log.", stats["events"])
        ahead = "Seconds that the wall clock is ahead of the time that is logged, since it was set; else 0."
        yield GaugeMetricFamily("skep_clock_ahead_seconds", ahead, stats["clock_off_s"])
        yield CounterMetricFamily("skep_clock_steps", "Times that the wall clock was set.", stats["clock_steps"])
        yield from _forecasts(self._live)


def _forecasts(live: Live) -> Iterator[Metric]:
    """Nothing while there is no forecast."""
    made = live.foresight
    if made is None:
        return
    age_s = max(live.clock() - made.made_s, 0.0)
    yield GaugeMetricFamily("skep_forecast_age_seconds", "Since the last forecast was made.", age_s)
    yield GaugeMetricFamily("skep_forecast_samples", "Samples of the last forecast.", made.samples)
    labels = ["what", "lengths"]
    judged = GaugeMetricFamily("skep_forecasts_judged", "Kept forecasts whose time has come.", labels=labels)
    held = GaugeMetricFamily("skep_forecasts_held", "Of these, those between P10 and P90.", labels=labels)
    for each in made.judged:
        judged.add_metric([each.what, each.lengths], each.count)
        held.add_metric([each.what, each.lengths], each.held)
    yield judged
    yield held


def _gpus(live: Live) -> Iterator[Metric]:
    for place, rows in (("node", live.nodes()), ("vc", live.vcs())):
        total = GaugeMetricFamily(f"skep_{place}_gpus", f"GPUs by {place}.", labels=[place])
        used = GaugeMetricFamily(f"skep_{place}_gpus_used", f"GPUs held by jobs, by {place}.", labels=[place])
        for row in rows:
            total.add_metric([row["name"]], row["gpus"])
            used.add_metric([row["name"]], row["used"])
        yield total
        yield used
