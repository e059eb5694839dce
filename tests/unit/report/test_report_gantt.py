"""Who is drawn where in the picture of the busiest hours."""

from __future__ import annotations

import re

from report_runs import make_row, make_run

from skep.metrics.run import Run, RunHistory, Span
from skep.report.gantt import draw_gantt, pick_nodes, spans_within
from skep.report.sample import Reach

WINDOW = Reach(0.0, 100.0)


def span(job: int = 0, *, node: int = 0, gpus: int = 1, start_s: float = 0.0, end_s: float = 100.0) -> Span:
    return Span(job=job, node=node, gpus=gpus, start_s=start_s, end_s=end_s)


def run_with(spans: list[Span], *, node_gpus: list[int] | None = None) -> Run:
    rows = [make_row(f"job-{index}", gpus=float(index + 1)) for index in range(12)]
    return make_run(rows, node_gpus=node_gpus or [8], history=RunHistory(spans=spans))


def bars(run: Run, *, most: int = 100) -> list[dict[str, float]]:
    """Place and size of the bars drawn."""
    spans = spans_within(run, WINDOW)
    drawing = draw_gantt(run, spans, pick_nodes([run], [spans]), WINDOW, most=most, base_s=0.0).drawing
    found = re.findall(r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)" height="([^"]+)" class="job', drawing)
    return [dict(zip("xywh", map(float, numbers), strict=True)) for numbers in found]


def test_neighbouring_gpus_are_one_bar() -> None:
    assert len(bars(run_with([span(gpus=0b1111_0000)]))) == 1
    assert len(bars(run_with([span(gpus=0b1011_0001)]))) == 3


def test_jobs_on_one_gpu_in_turn_use_its_full_height_and_sharing_jobs_a_part() -> None:
    in_turn = bars(run_with([span(0, end_s=50.0), span(1, start_s=50.0)]))
    shared = bars(run_with([span(0), span(1), span(2, gpus=0b10)]))
    assert in_turn[0]["h"] == in_turn[1]["h"]
    assert shared[0]["h"] < in_turn[0]["h"] == shared[2]["h"]
    assert shared[0]["y"] != shared[1]["y"]


def test_what_lies_outside_the_window_or_holds_no_gpu_is_not_drawn() -> None:
    spans = [span(start_s=100.0, end_s=200.0), span(start_s=-50.0, end_s=0.0), span(gpus=0)]
    assert spans_within(run_with(spans), WINDOW) == []


def test_bars_are_cut_at_the_window() -> None:
    (bar,) = bars(run_with([span(start_s=-500.0, end_s=500.0)]))
    (whole,) = bars(run_with([span()]))
    assert bar == whole


def test_only_the_longest_bars_are_drawn_and_the_rest_is_counted() -> None:
    run = run_with([span(job, gpus=1 << job, end_s=10.0 * (job + 1)) for job in range(8)])
    gantt = draw_gantt(run, run.history.spans, [0], WINDOW, most=3, base_s=0.0)
    assert (gantt.bars, gantt.left_out) == (3, 5)
    assert [job[0] for job in gantt.jobs] == ["job-7", "job-6", "job-5"]


def test_tooltips_tell_job_gpus_and_times() -> None:
    run = run_with([span(3, start_s=3600.0, end_s=90_000.0)])
    gantt = draw_gantt(run, run.history.spans, [0], WINDOW, most=3, base_s=0.0)
    assert gantt.jobs == [["job-3", "default", 4.0, "01:00", "1 d 01:00", 86_400.0]]


def test_nodes_are_evenly_picked_among_the_used_ones() -> None:
    run = run_with([span(node=node) for node in range(0, 100, 2)], node_gpus=[8] * 100)
    nodes = pick_nodes([run], [run.history.spans])
    assert len(nodes) == 8
    assert all(node % 2 == 0 for node in nodes)
    assert nodes[-1] > 80
