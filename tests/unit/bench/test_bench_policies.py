"""The benchmark of policies that fail at random, with few decisions."""

from __future__ import annotations

from pathlib import Path

from bench.policies import run


def test_nothing_is_lost_under_a_policy_that_fails_at_random(tmp_path: Path) -> None:
    found = run(tmp_path, decisions=500, chance=0.1, seed=1)
    assert found.is_good
    assert found.decisions >= 500
    assert found.failures >= 10
