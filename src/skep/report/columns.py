"""The numbers by which policies are compared: their names, their format, and which end is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from skep.metrics.run import Run
from skep.report.units import format_count, format_duration, format_number, format_percent

Better = Literal["low", "high"]


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One number of the summary."""

    key: str
    """Field of `Summary`."""
    group: str
    label: str
    note: str
    show: Callable[[float | None], str]
    better: Better
    is_rare: bool = False
    """Left out where it is zero for all."""
    brief: str = ""
    """Its heading in the terminal, which has space for few narrow columns; empty: not shown."""

    def value(self, run: Run) -> float | None:
        value: float | None = getattr(run.summary, self.key)
        return value


def _duration(key: str, group: str, label: str, note: str, *, brief: str = "") -> Column:
    return Column(key=key, group=group, label=label, note=note, show=format_duration, better="low", brief=brief)


def _count(key: str, group: str, label: str, note: str, *, brief: str, is_rare: bool = True) -> Column:
    return Column(
        key=key,
        group=group,
        label=label,
        note=note,
        show=format_count,
        better="high" if key == "finished" else "low",
        is_rare=is_rare,
        brief=brief,
    )


WAITING = "time without GPUs from submission to end, also after preemptions"
FIRST_WAIT = "time from submission to the first start"

COLUMNS = (
    _count("finished", "Jobs", "finished", "Jobs that ran to their end", brief="jobs\ndone", is_rare=False),
    _count("unfinished", "Jobs", "unfinished", "Jobs that had not ended when the run did", brief="not\ndone"),
    _count("unrunnable", "Jobs", "unrunnable", "Jobs that this cluster can never run", brief="un-\nrun"),
    _duration("jct_avg_s", "JCT", "avg", "Average time from submission to end", brief="JCT\navg"),
    _duration("jct_p50_s", "JCT", "p50", "Half of the jobs complete within this time", brief="JCT\np50"),
    _duration("jct_p90_s", "JCT", "p90", "Nine of ten jobs complete within this time"),
    _duration("jct_p99_s", "JCT", "p99", "99 of 100 jobs complete within this time", brief="JCT\np99"),
    Column(
        key="slowdown_avg",
        group="JCT",
        label="slowdown",
        note="Average of JCT ÷ the time the job needs alone; jobs below 10 s count as 10 s",
        show=format_number,
        better="low",
    ),
    _duration("queue_avg_s", "Waiting", "avg", f"Average {WAITING}", brief="wait\navg"),
    _duration("queue_p50_s", "Waiting", "p50", f"Half of the jobs have no more than this {WAITING}", brief="wait\np50"),
    _duration("queue_p90_s", "Waiting", "p90", f"Nine of ten jobs have no more {WAITING}", brief="wait\np90"),
    _duration("queue_p99_s", "Waiting", "p99", f"99 of 100 jobs have no more {WAITING}"),
    _duration(
        "first_wait_p90_s", "Waiting", "first p90", f"Nine of ten jobs have no more {FIRST_WAIT}", brief="1st\np90"
    ),
    _duration("first_wait_avg_s", "Waiting", "first avg", f"Average {FIRST_WAIT}"),
    _duration("makespan_s", "Cluster", "makespan", "From first submission to last end", brief="make-\nspan"),
    Column(
        key="utilization",
        group="Cluster",
        label="utilization",
        note="GPU-seconds that jobs held, out of all there were",
        show=format_percent,
        better="high",
        brief="held",
    ),
    Column(
        key="busy",
        group="Cluster",
        label="busy",
        note="The same without restarts and the copying of memory: GPU-seconds in which jobs ran",
        show=format_percent,
        better="high",
        brief="busy",
    ),
    Column(
        key="fre",
        group="Cluster",
        label="useful (fre)",
        note="GPU-seconds of work that was kept, at the speed of the jobs' reference, at most those in which they ran",
        show=format_percent,
        better="high",
        brief="use-\nful",
    ),
    Column(
        key="arrival_utilization",
        group="Cluster",
        label="arriving",
        note="GPU-seconds held from the first submission to the last: without the end, where only the longest jobs run",
        show=format_percent,
        better="high",
    ),
    Column(
        key="fragmented_gpus",
        group="Cluster",
        label="fragmented",
        note="Free GPUs, on average, that a waiting job could not use in the shape they had",
        show=format_number,
        better="low",
        is_rare=True,
    ),
    Column(
        key="fragment_gpus",
        group="Cluster",
        label="fragments",
        note="Idle GPUs, on average, that typical jobs of the trace could not use where they were",
        show=format_number,
        better="low",
        is_rare=True,
    ),
    _count(
        "preemptions",
        "Changes",
        "preempted",
        "How often a running job was preempted",
        brief="pre-\nempted",
        is_rare=False,
    ),
    _count("migrations", "Changes", "migrated", "How often a running job was moved", brief="moved"),
    _count("resizes", "Changes", "resized", "How often a running job got more or fewer GPUs", brief="re-\nsized"),
    Column(
        key="ftf_max",
        group="Unfairness",
        label="max",
        note="Finish-time fairness: JCT against that in an even share of the cluster; above 1 is worse",
        show=format_number,
        better="low",
    ),
    Column(
        key="ftf_avg",
        group="Unfairness",
        label="avg",
        note="Average finish-time fairness",
        show=format_number,
        better="low",
    ),
    Column(
        key="jain",
        group="Unfairness",
        label="Jain",
        note="Jain's index over users of how fast their jobs were against an even share; 1 is even",
        show=format_number,
        better="high",
    ),
    _count("deadline_misses", "Jobs", "late", "Jobs that ended after their deadline", brief="late"),
)


def columns_for(runs: Sequence[Run]) -> list[Column]:
    """The columns that are not empty for these runs."""
    return [column for column in COLUMNS if not column.is_rare or any(column.value(run) for run in runs)]


def best_of_rivals(runs: Sequence[Run], column: Column) -> set[int]:
    """Where the best value of a column is. A policy that knows durations is a bound and never the best."""
    return best_of(rivals(runs, [column.value(run) for run in runs]), column.better, column.show)


def rivals(runs: Sequence[Run], values: Sequence[float | None]) -> list[float | None]:
    """The values without those of policies that know durations."""
    return [None if run.is_oracle else value for run, value in zip(runs, values, strict=True)]


def best_of(values: Sequence[float | None], better: Better, show: Callable[[float | None], str]) -> set[int]:
    """Where the best value is: everywhere it reads the same, and nowhere if all read the same."""
    known = [value for value in values if value is not None]
    texts = [show(value) for value in values]
    if len({show(value) for value in known}) < 2:
        return set()
    best = show(min(known) if better == "low" else max(known))
    return {index for index, text in enumerate(texts) if text == best}
