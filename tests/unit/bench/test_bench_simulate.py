"""The benchmark itself: what it makes, what it counts, what fails it."""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[3] / "bench" / "simulate.py"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_simulate", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def load(trace: Path, *, span_s: float) -> float:
    with trace.open(newline="") as lines:
        return sum(float(row["duration_s"]) * int(row["gpus"]) for row in csv.DictReader(lines)) / (448 * span_s)


def test_twice_the_jobs_are_the_same_jobs_once_more_at_the_same_load(bench: ModuleType, tmp_path: Path) -> None:
    made, one, two = tmp_path / "made.csv", tmp_path / "one.csv", tmp_path / "two.csv"
    made.write_text("job_id,submit_s,duration_s,gpus\na,0,1000000,8\nb,50,60,1\nc,1000,600,2\n")
    bench.repeat(made, one, times=1, longest_s=21600.0)
    bench.repeat(made, two, times=2, longest_s=21600.0)
    rows = list(csv.DictReader(two.read_text().splitlines()))
    assert [row["job_id"] for row in rows] == ["a-0", "b-0", "c-0", "a-1", "b-1", "c-1"]
    assert rows[0]["duration_s"] == "21600.0"
    span_s = float(rows[3]["submit_s"])
    assert load(one, span_s=span_s) == pytest.approx(bench.GROWTH_LOAD, rel=1e-3)
    assert load(two, span_s=2 * span_s) == pytest.approx(bench.GROWTH_LOAD, rel=1e-3)


def test_growth_is_twice_against_once_without_the_warm_up(bench: ModuleType) -> None:
    assert bench.growth([2.0, 5.0], 0) == 2.5
    assert bench.growth([2.0, 5.0, 8.0], 1) == 2.0


@pytest.mark.parametrize(
    ("seen_s", "ratio", "is_within", "is_ok"),
    [(5.0, 40.0, True, True), (7.0, 40.0, False, True), (5.0, 60.0, True, False)],
    ids=["fast enough", "a slow machine is said and fails nothing", "too slow against the loop fails"],
)
def test_only_ratios_fail(bench: ModuleType, seen_s: float, ratio: float, is_within: bool, is_ok: bool) -> None:
    row = bench.Row("x", seen_s, limit_s=6.0, ratio=ratio, ratio_max=48.0)
    assert (row.is_within, row.is_ok) == (is_within, is_ok)


def test_a_command_costs_what_the_system_counted_for_it(bench: ModuleType) -> None:
    used = bench.spend([sys.executable, "-c", "print(sum(i * i for i in range(300_000)))"])
    assert used.out == "8999955000050000\n"
    assert used.cpu_s > 0
    assert used.peak_mib > 1


@pytest.mark.slow
def test_the_quick_benchmark_runs() -> None:
    line = [sys.executable, str(FILE), "--quick", "--rounds", "1", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a busy machine may break a gate, which is not the question here
    rows = json.loads(done.stdout)["rows"]
    assert len(rows) == 15
    assert all(row["seen_s"] > 0 for row in rows)
