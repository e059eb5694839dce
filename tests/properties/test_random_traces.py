"""Random tiered and shared traces under every policy that shares: a few of those of `python -m bench.random_traces`."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[2] / "bench" / "random_traces.py"
SEEDS = int(30 * float(os.environ.get("SKEP_EXAMPLES", "1")))


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_random_traces", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("tenth", range(10))
def test_every_policy_that_shares_runs_them_without_an_error(bench: ModuleType, tenth: int) -> None:
    failed = [line for seed in range(tenth, SEEDS, 10) for line in bench.failures_of(seed)]
    assert not failed


def test_the_home_of_a_job_that_is_being_stopped_is_kept(bench: ModuleType) -> None:
    """In this one a job is stopped at the moment at which another one, which would fit there, is promised a home."""
    assert not bench.failures_of(5746, ("singularity",))


def test_a_seed_draws_the_same_trace_again(bench: ModuleType) -> None:
    one, other = bench.draw(3), bench.draw(3)
    assert (one.trace, one.options, one.outages, one.knobs) == (other.trace, other.options, other.outages, other.knobs)


def test_a_fault_is_found(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(made: object, name: str) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(bench, "run_one", fail)
    (line,) = bench.failures_of(0, ("gandiva",))
    assert "seed 0 gandiva" in line
    assert "ZeroDivisionError" in line
