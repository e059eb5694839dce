"""The comparison of four ways to share: what it counts, and what fails it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.support import job, trace

from skep.metrics.run import JobRow

FILE = Path(__file__).resolve().parents[3] / "bench" / "tenants.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_tenants", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_quotas_are_a_share_of_the_average_use_in_nodes(bench: ModuleType) -> None:
    jobs = trace(job(8, work=100, vc="a"), job(4, work=50, vc="b"), job(16, work=1, vc="b", at=100))
    assert bench.quotas(jobs, 1.5) == {"a": 2, "b": 1}
    case = bench.make_case(jobs)
    assert case.left_out == 1
    assert len(case.trace.jobs) == 2


def test_a_broken_promise_is_noticed(bench: ModuleType) -> None:
    """b's r goes beside a's p; a then has eight gpus left and no whole node, which private hardware would be."""
    jobs = (
        job(6, vc="a", id="p"),
        job(6, vc="b", at=1, work=1000, id="q"),
        job(2, vc="b", at=2, work=1000, id="r"),
        job(8, vc="a", at=100, id="whole"),
    )
    bench._cases[bench.WHOLE] = bench.Case(trace(*jobs), {"a": 1, "b": 1}, 0)
    packed = bench.Setting("consolidate", "skip")
    result = bench.run_one(packed, "numbers")
    assert result.broken == {"whole"}
    assert [row.start_s for row in result.rows if row.job_id == "whole"] == [1001]
    private, cells = bench.run_one(packed, "private"), bench.run_one(packed, "cells")
    bench.check_same(private, cells)
    assert [row.start_s for row in cells.rows if row.job_id == "whole"] == [100]
    with pytest.raises(SystemExit, match="job whole starts at 100"):
        bench.check_same(private, result)


def test_least_loaded_takes_the_last_idle_node_and_packing_does_not(bench: ModuleType) -> None:
    """b's r goes to the idle node unless it is packed beside q; then a's whole starts when it comes."""
    jobs = (
        job(1, vc="b", work=1000, id="q"),
        job(1, vc="b", at=1, work=1000, id="r"),
        job(8, vc="a", at=2, id="whole"),
    )
    bench._cases[bench.WHOLE] = bench.Case(trace(*jobs), {"a": 1, "b": 1}, 0)
    results = {
        place: bench.run_one(bench.Setting(place, "skip"), "numbers") for place in ("least-loaded", "consolidate")
    }
    starts = {place: [row.start_s for row in result.rows] for place, result in results.items()}
    assert starts == {"least-loaded": [0, 1, 1000], "consolidate": [0, 1, 2]}
    assert [result.broken for result in results.values()] == [{"whole"}, set()]


@pytest.mark.slow
def test_quick_makes_tables_page_and_picture(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    case = bench.make_case(bench.made_trace())
    cases = {bench.WHOLE: case}
    results = bench.measure(cases, bench.SETTINGS)
    bench.print_tables(cases, results)
    assert "by number against private, all settings" in capsys.readouterr().out
    bench.check_numbers(case, results)
    text = bench.page(cases, results, "a machine")
    assert "Made on a machine." in text
    assert "{" not in text
    drawn = bench.picture(bench.tenants(case, results[bench.MAIN]))
    assert all(vc in drawn for vc in case.nodes)
    rows: list[JobRow] = results[bench.MAIN]["cells"].rows
    assert len(rows) == len(case.trace.jobs)


def test_numbers_that_break_no_promise_fail_the_run(bench: ModuleType) -> None:
    case = bench.make_case(trace(job(8, work=100, vc="a"), job(1, at=100, vc="a")))
    settings = (bench.MAIN, bench.Setting(bench.MAIN.place, "strict"))
    results = bench.measure({bench.WHOLE: case}, settings)
    with pytest.raises(SystemExit, match="no promise is broken"):
        bench.check_numbers(case, results)
