"""The numbers as tables: by policy, by virtual cluster, by size, and the waiting by cause."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from skep.metrics.run import Run
from skep.report.charts import waiting_bar
from skep.report.columns import Column, best_of, best_of_rivals, columns_for, rivals
from skep.report.groups import GroupTally, Tallies, by_size, by_vc, size_name, waiting_by_cause
from skep.report.markup import Head, TableCell, TextLine, clip, data_table, escape, swatch, tag
from skep.report.table import faster_note
from skep.report.units import HOUR_S, format_count, format_duration
from skep.report.verdict import ORACLE_NOTE, oracle_badge, policy_name

VCS_MOST = 60
Key = TypeVar("Key", bound=Hashable)
Measure = Callable[[GroupTally], float | None]


def section(name: str, heading: str, body: str, *, note: str = "") -> str:
    """One card of the page; `note` is ready markup."""
    head = tag("h2", escape(heading), id=name) + (tag("p", note, class_="note") if note else "")
    return tag("section", tag("header", head) + body, class_="card", aria_labelledby=name)


def legend(names: Sequence[str], *, badges: Sequence[str] = (), what: str = "Policies") -> str:
    """A button per policy that hides it on the whole page; `badges` are ready markup."""
    buttons = [
        tag(
            "button",
            swatch(index) + tag("span", escape(clip(name, 80)), class_="name") + (badges[index] if badges else ""),
            type="button",
            aria_pressed="true",
            data_toggle=index,
            title=f"Show or hide {clip(name)}",
        )
        for index, name in enumerate(names)
    ]
    return tag("nav", "".join(buttons), class_="legend", aria_label=f"{what} shown") if len(names) > 1 else ""


def comparison(runs: Sequence[Run]) -> str:
    """All numbers of all policies."""
    columns = columns_for(runs)
    best = [best_of_rivals(runs, column) for column in columns]
    heads = [Head("policy", is_text=True)]
    heads += [Head(column.label, group=column.group, note=column.note) for column in columns]
    lines = []
    for index, run in enumerate(runs):
        cells = [_summary_cell(run, column, index in best[at]) for at, column in enumerate(columns)]
        lines.append(TextLine(run.summary.policy, cells, series=index, badge=oracle_badge(run)))
    note = "The best of each column is framed. Click a heading to sort." if len(runs) > 1 else ""
    if any(run.is_oracle for run in runs):
        note += f" {oracle_badge()} {ORACLE_NOTE}"
    if runs and runs[0].summary.measured_jobs:
        note += f" {escape(faster_note(runs[0]))}."
    return section("policies", "Policies", data_table(heads, lines, caption="Policies compared"), note=note)


def _summary_cell(run: Run, column: Column, is_best: bool) -> TableCell:
    value = column.value(run)
    exact = f"{value:,.1f} s" if column.show is format_duration and value is not None else ""
    return TableCell(column.show(value), value, is_best, note=exact)


def waiting_table(runs: Sequence[Run], tallies: Sequence[Tallies]) -> str:
    """Stacked bars with their numbers beside them."""
    waits = [waiting_by_cause(tally) for tally in tallies]
    longest_s = max((wait.total_s for wait in waits if wait), default=0.0)
    rows = []
    for index, (run, wait) in enumerate(zip(runs, waits, strict=True)):
        times = (wait.quota_s, wait.fragmentation_s, wait.other_s, wait.total_s) if wait else (None,) * 4
        name = tag("span", swatch(index) + escape(clip(run.summary.policy, 80)), class_="name")
        cells = tag("th", name, scope="row", title=clip(run.summary.policy))
        cells += tag("td", waiting_bar(wait, longest_s) if wait else "", class_="bars")
        cells += "".join(tag("td", escape(format_duration(seconds))) for seconds in times)
        rows.append(tag("tr", cells, data_p=index))
    keys = [("quota", "quota"), ("fragmentation", "fragmentation"), ("other", "capacity or order")]
    names = "".join(tag("th", tag("i", class_=f"key {cause}") + escape(text), scope="col") for cause, text in keys)
    head = tag("th", "policy", scope="col", class_="text") + tag("td") + names + tag("th", "total", scope="col")
    caption = tag("caption", "Waiting by cause", class_="unseen")
    table = tag("table", caption + tag("thead", tag("tr", head)) + tag("tbody", "".join(rows)), class_="waiting")
    note = (
        "Average waiting of a finished job. <em>Quota</em>: the share of its virtual cluster was used up. "
        "<em>Fragmentation</em>: enough GPUs were free, but in no acceptable shape."
    )
    return section("causes", "Waiting by cause", tag("div", table, class_="scroll"), note=note)


def vc_table(runs: Sequence[Run], tallies: Sequence[Tallies]) -> str:
    """A row per virtual cluster, the largest first."""
    grouped = [by_vc(tally) for tally in tallies]
    names = _keys(grouped)
    ranked = sorted(names, key=lambda name: (-_first(grouped, name).service_gpu_s, name))
    kinds: list[tuple[str, Measure]] = [
        ("JCT", lambda tally: tally.jct_avg_s),
        ("waiting", lambda tally: tally.queue_avg_s),
    ]
    heads = [
        Head("virtual cluster", is_text=True),
        Head("jobs"),
        Head("gpu-hours", note=f"Held under {clip(runs[0].summary.policy)}"),
    ]
    heads += _policy_heads(runs, [kind for kind, _ in kinds])
    lines = []
    for name in ranked[:VCS_MOST]:
        first = _first(grouped, name)
        hours = first.service_gpu_s / HOUR_S
        cells = [TableCell(format_count(first.jobs), first.jobs), TableCell(format_count(round(hours)), hours)]
        lines.append(TextLine(name, cells + _policy_cells(runs, grouped, name, [value for _, value in kinds])))
    note = f"Averages of the finished jobs; GPU-hours are those held under {policy_name(runs[0])}."
    if len(ranked) > VCS_MOST:
        note += f" The {VCS_MOST} largest of {format_count(len(ranked))} are listed."
    return section("vcs", "Virtual clusters", data_table(heads, lines, caption="Virtual clusters"), note=note)


def size_table(runs: Sequence[Run], tallies: Sequence[Tallies]) -> str:
    """A row per class of requested GPUs, smallest first."""
    grouped = [by_size(tally) for tally in tallies]
    heads = [Head("GPUs per job", is_text=True), Head("jobs")]
    heads += [Head(run.summary.policy, note=clip(run.summary.policy), series=index) for index, run in enumerate(runs)]
    lines = []
    for size in sorted(_keys(grouped)):
        count = _first(grouped, size).jobs
        cells = [
            TableCell(format_count(count), count),
            *_policy_cells(runs, grouped, size, [lambda tally: tally.jct_avg_s]),
        ]
        lines.append(TextLine(size_name(size), cells))
    note = "Average JCT of the finished jobs" + ("; the best of each row is framed." if len(runs) > 1 else ".")
    table = data_table(heads, lines, caption="JCT by job size")
    return section("sizes", "JCT by job size", table, note=note)


def _policy_heads(runs: Sequence[Run], kinds: Sequence[str]) -> list[Head]:
    return [Head(kind, group=run.summary.policy, series=index) for index, run in enumerate(runs) for kind in kinds]


def _policy_cells(
    runs: Sequence[Run], grouped: Sequence[dict[Key, GroupTally]], key: Key, kinds: Sequence[Measure]
) -> list[TableCell]:
    """The times of one group under each policy, the best of each kind marked."""
    tallies = [group.get(key, GroupTally()) for group in grouped]
    best = [best_of(rivals(runs, [kind(tally) for tally in tallies]), "low", format_duration) for kind in kinds]
    return [
        TableCell(format_duration(kind(tally)), kind(tally), index in winners, series=index)
        for index, tally in enumerate(tallies)
        for kind, winners in zip(kinds, best, strict=True)
    ]


def _keys(grouped: Sequence[dict[Key, GroupTally]]) -> list[Key]:
    return list(dict.fromkeys(key for group in grouped for key in group))


def _first(grouped: Sequence[dict[Key, GroupTally]], key: Key) -> GroupTally:
    return next(group[key] for group in grouped if key in group)


def glossary(runs: Sequence[Run]) -> str:
    """The terms and abbreviations of the page."""
    words = [
        ("JCT", "Job completion time: from submission to end."),
        ("Waiting", "The part of the JCT in which the job holds no GPUs, also between two runs of it."),
        ("First p90", "Of the time from submission to the first start: nine of ten jobs have no more."),
        ("Utilization", "GPU-seconds held ÷ GPU-seconds there were, from the first submission to the last end."),
        ("Busy", "The same without restarts and the copying of memory."),
        (
            "Arriving",
            "Utilization from the first submission to the last. At the end of a trace only the longest jobs run.",
        ),
        (
            "Useful (fre)",
            "GPU-seconds of useful work ÷ GPU-seconds there were: work that was kept, in seconds at the job's "
            "reference, at most the time in which it ran. Always useful ≤ busy ≤ utilization.",
        ),
        (
            "Unfairness (ρ)",
            "Finish-time fairness: the JCT of a job ÷ the time it would take alone on an even share of the cluster, "
            "shared with as many jobs as were present on average. Above 1 the job did worse than that.",
        ),
        ("Jain", "Jain's index over users (VCs where jobs name no user) of the mean of 1 ÷ ρ: 1 is even treatment."),
        ("Fragmented", "Free GPUs, on average over the run, while a job waited that needed them in another shape."),
    ]
    if any(run.is_oracle for run in runs):
        words.append(("Knows durations", ORACLE_NOTE))
    listed = "".join(tag("div", tag("dt", escape(word)) + tag("dd", escape(text))) for word, text in words)
    return section("words", "Words", tag("dl", listed, class_="glossary"))
