"""One self-contained HTML page that compares policies: it opens offline, prints, and supports light and dark.

All numbers are computed here and reduced (see `sample`); the script on the page only shows values under the pointer,
hides policies and sorts tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from operator import attrgetter
from typing import Any

from skep.metrics.run import Run
from skep.report.charts import Chart, Curve, cdf_chart, is_uneven, queue_chart, utilization_chart
from skep.report.gantt import BARS_MOST, HUES, SIZES, draw_gantt, pick_nodes, spans_within, vc_numbers
from skep.report.groups import tally_rows
from skep.report.markup import clip, escape, script_json, swatch, tag
from skep.report.sample import (
    BUCKETS,
    Reach,
    RunCourse,
    anyone_waits,
    busiest_window,
    cdf_points,
    course_of,
    horizon,
)
from skep.report.sections import comparison, glossary, legend, section, size_table, vc_table, waiting_table
from skep.report.units import format_count, format_duration, format_instant
from skep.report.verdict import masthead, oracle_badge, tiles, warnings

Data = dict[str, Any]
"""The data of the script, by chart."""
Courses = Sequence[RunCourse | None]


def render_report(runs: Sequence[Run], *, title: str, facts: Sequence[tuple[str, str]] = (), command: str = "") -> str:
    """The page as text. `runs` are policies on the same trace; the others are compared with the first one.

    `facts` (name, value) describe how they were made, `command` how to make them again.
    """
    data: Data = {"policies": [clip(run.summary.policy, 60) for run in runs], "charts": {}, "gantts": []}
    body = masthead(runs, title=title, facts=facts)
    if runs:
        body += "".join(_sections(runs, data))
    body += tag("footer", "Written by skep" + (f": {tag('code', escape(clip(command, 2000)))}" if command else "."))
    return page(title, body, data)


def _sections(runs: Sequence[Run], data: Data) -> list[str]:
    tallies = [tally_rows(run.rows) for run in runs]
    courses = [course_of(run) for run in runs]
    has_vcs = len({vc for tally in tallies for vc, _ in tally}) > 1
    return [
        tiles(runs),
        warnings(runs),
        comparison(runs),
        legend([run.summary.policy for run in runs], badges=[oracle_badge(run) for run in runs]),
        _distributions(runs, data),
        _over_time(runs, courses, data),
        waiting_table(runs, tallies),
        size_table(runs, tallies) if any(tallies) else "",
        vc_table(runs, tallies) if has_vcs else "",
        _busiest(runs, courses, data),
        glossary(runs),
    ]


def page(title: str, body: str, data: Data, *, style: str = "") -> str:
    """The whole document around a body, with the data of the script; `style` is added to the style sheet."""
    head = (
        tag("meta", charset="utf-8")
        + tag("meta", name="viewport", content="width=device-width, initial-scale=1")
        + tag("meta", name="color-scheme", content="light dark")
        # A later run recognises by this that it may replace the page.
        + tag("meta", name="generator", content="skep")
        + tag("title", escape(title))
        + tag("style", _resource("report.css") + style)
    )
    scripts = tag("script", script_json(data), type="application/json", id="data")
    scripts += tag("script", _resource("report.js"))
    whole = tag("head", head) + tag("body", tag("main", body) + scripts)
    return f"<!doctype html>\n{tag('html', whole, lang='en')}\n"


def _resource(name: str) -> str:
    return resources.files("skep.report").joinpath(name).read_text("utf-8")


def _distributions(runs: Sequence[Run], data: Data) -> str:
    kinds = (
        ("jct", "Job completion time", "share of jobs that complete within this time", "jct_s"),
        ("waiting", "Waiting", "share of jobs that wait at most this long", "queue_s"),
    )
    policies = [run.summary.policy for run in runs]
    figures = []
    for name, heading, note, field in kinds:
        chart = cdf_chart(name, [_curve(run, field) for run in runs], what=heading, policies=policies)
        data["charts"][name] = chart.data
        figures.append(figure(escape(heading), chart.drawings[0], note=note))
    note = "Shares of all jobs: a curve that ends below 100% left some unfinished. The time axis is logarithmic."
    return section("distributions", "Distributions", tag("div", "".join(figures), class_="pair"), note=note)


def _curve(run: Run, field: str) -> Curve:
    known = sorted([seconds for seconds in map(attrgetter(field), run.rows) if seconds is not None])
    return cdf_points(known, total=len(run.rows))


def figure(caption: str, drawing: str, *, note: str = "", series: int | None = None) -> str:
    """A drawing under its name; `caption` is ready markup."""
    quiet = tag("span", escape(note), class_="quiet") if note else ""
    return tag("figure", tag("figcaption", caption + quiet) + drawing, data_p=series)


def _over_time(runs: Sequence[Run], courses: Courses, data: Data) -> str:
    reach = horizon(courses)
    if reach is None:
        return section("time", "Over time", tag("p", "No history was kept, or no time passed.", class_="note"))
    charts = {"queue": ("Pending jobs", queue_chart("queue", runs, courses, reach))}
    if all(run.gpu_total for run in runs):
        charts["utilization"] = ("Busy GPUs", utilization_chart("utilization", runs, courses, reach))
    body = ""
    for name, (heading, chart) in charts.items():
        data["charts"][name] = chart.data
        body += tag("div", tag("h3", heading) + _panels(runs, chart))
    bucket = format_duration(reach.length_s / BUCKETS)
    note = (
        f"Time since the start, in steps of {escape(bucket)}: means weighted by time; "
        "the faint line is the highest number of pending jobs in each step."
    )
    if is_uneven(courses):
        note += " The queues differ so much that their axis is logarithmic."
    # A single policy leaves space for its two drawings side by side.
    return section("time", "Over time", tag("div", body, class_="pair" if len(runs) == 1 else None), note=note)


def _panels(runs: Sequence[Run], chart: Chart) -> str:
    figures = [
        figure(_policy(run, index), drawing, note=note, series=index)
        for index, (run, drawing, note) in enumerate(zip(runs, chart.drawings, chart.notes, strict=True))
    ]
    return tag("div", "".join(figures), class_="panels")


def _policy(run: Run, index: int) -> str:
    name = run.summary.policy
    return tag("span", swatch(index) + escape(clip(name, 80)), class_="name", title=clip(name))


def _busiest(runs: Sequence[Run], courses: Courses, data: Data) -> str:
    reach, window = horizon(courses), busiest_window(courses)
    if reach is None or window is None:
        return ""
    spans = [spans_within(run, window) for run in runs]
    nodes = pick_nodes(runs, spans)
    if not nodes:
        return ""
    most = max(BARS_MOST // len(runs), 100)
    gantts = [
        draw_gantt(run, held, nodes, window, most=most, base_s=reach.start_s)
        for run, held in zip(runs, spans, strict=True)
    ]
    data["gantts"] = [gantt.jobs for gantt in gantts]
    figures = []
    for index, (run, gantt) in enumerate(zip(runs, gantts, strict=True)):
        note = f"the longest {format_count(gantt.bars)} of {format_count(gantt.bars + gantt.left_out)} bars"
        caption = _policy(run, index)
        figures.append(figure(caption, gantt.drawing, note=note if gantt.left_out else "", series=index))
    body = _colouring(runs) + tag("div", "".join(figures), class_="pair wide")
    body = tag("div", body, class_="gantts", data_by="size")
    heading = "Jobs on GPUs" if window == reach else f"The busiest {format_duration(window.length_s)}"
    note = f"{_when(courses, reach, window)}; {_which(runs, nodes)}. A row is a GPU, a bar a job that holds it."
    return section("busiest", heading, body, note=note)


def _when(courses: Courses, reach: Reach, window: Reach) -> str:
    if window == reach:
        return "The whole run"
    since, until = (format_instant(at_s - reach.start_s) for at_s in (window.start_s, window.end_s))
    why = "most jobs were pending" if anyone_waits(courses) else "most GPUs were busy"
    return f"From {since} to {until} after the start, when {why}"


def _which(runs: Sequence[Run], nodes: Sequence[int]) -> str:
    total = max(sum(1 for gpus in run.node_gpus if gpus) for run in runs)
    if len(nodes) == total:
        return "all nodes"
    return f"{len(nodes)} of {format_count(total)} nodes, evenly picked from those in use"


def _colouring(runs: Sequence[Run]) -> str:
    """Buttons that choose what the colours of the bars mean, and the legends of each choice."""
    vcs = list(vc_numbers(runs[0]))
    choices = [("size", "size"), *([("vc", "virtual cluster")] if len(vcs) > 1 else []), ("job", "job")]
    buttons = [
        tag("button", name, type="button", data_colour=key, aria_pressed="true" if key == "size" else "false")
        for key, name in choices
    ]
    sizes = [_key(f"z{size}", name) for size, (_, name) in enumerate(SIZES)]
    named = [_key(f"v{number}", clip(name, 30)) for number, name in enumerate(vcs[:HUES])]
    if len(vcs) > HUES:
        named.append(tag("span", f"and {len(vcs) - HUES} more in the same colours"))
    keys = tag("span", "GPUs of the job: " + "".join(sizes), class_="of-size")
    keys += tag("span", "".join(named), class_="of-vc")
    keys += tag("span", "neighbouring jobs differ; the same colour is not the same job", class_="of-job")
    return tag("p", tag("span", "Colour by " + "".join(buttons)) + keys + _key("idle", "idle"), class_="keys")


def _key(look: str, name: str) -> str:
    return tag("span", tag("i", class_=f"key {look}") + escape(name))
