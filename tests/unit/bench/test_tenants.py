"""The comparison of four ways to share: what it counts, and what fails it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from skep.metrics.run import JobRow
from skep.testing import job, trace

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
    bench._case = bench.Case(trace(*jobs), {"a": 1, "b": 1}, 0)
    result = bench.run_one("skip", "numbers")
    assert result.broken == {"whole"}
    assert [row.start_s for row in result.rows if row.job_id == "whole"] == [1001]
    private, cells = bench.run_one("skip", "private"), bench.run_one("skip", "cells")
    bench.check_same(private, cells)
    assert [row.start_s for row in cells.rows if row.job_id == "whole"] == [100]
    with pytest.raises(SystemExit, match="job whole starts at 100"):
        bench.check_same(private, result)


def test_quick_makes_tables_page_and_picture(bench: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    made = bench.made_trace()
    case = bench.make_case(made)
    results = bench.measure(case)
    bench.print_tables(case, results)
    assert "fifo:walk=strict, by number against private" in capsys.readouterr().out
    text = bench.page(case, results, "a machine")
    assert "Made on a machine." in text
    assert "{" not in text
    drawn = bench.picture(case.nodes, bench.waits(results, "skip"))
    assert all(vc in drawn for vc in case.nodes)
    rows: list[JobRow] = results["skip", "cells"].rows
    assert len(rows) == len(case.trace.jobs)
