"""Damaged at random, a store is refused in one line, or everything that can be asked of it is answered."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from bench.damage import KINDS, damage, outcome
from live_world import LiveWorld, request

from skep.service.commands import hold, tag

QUICK, MANY = 4, 40
"""Seeds of each kind."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a crashed server leaves it: some of it in the store, some still in the journal."""
    folder = tmp_path_factory.mktemp("whole")
    world = LiveWorld(folder)
    for number in range(30):
        (job,) = world.submit(request(f"job-{number}", 1 + number % 3), key=f"key-{number}")
        world.settle()
        if number % 3 == 0:
            world.end(job, code=number % 2)
        if number % 10 == 9:
            world.writer.save_snapshot()
        if number == 20:
            world.store.checkpoint()
    world.ask(tag("30", ("a", "b"), "ann"))
    world.ask(hold("30", True, "ann"))
    copy = folder / "copy"
    copy.mkdir()
    for name in ("skep.db", "skep.db-wal"):
        shutil.copy(folder / name, copy)
    (copy / "jobs" / "1").mkdir(parents=True)
    world.store.close()
    return copy


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_store_is_refused_or_serves(whole: Path, tmp_path: Path, kind: str) -> None:
    for seed in range(QUICK):
        check(whole, tmp_path, kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_damaged_stores_are_refused_or_serve(whole: Path, tmp_path: Path, kind: str) -> None:
    found = Counter(check(whole, tmp_path, kind, QUICK + seed) for seed in range(MANY))
    assert found.total() == MANY


def check(whole: Path, tmp_path: Path, kind: str, seed: int) -> str:
    folder = tmp_path / f"{kind}-{seed}"
    shutil.copytree(whole, folder)
    damage(folder, kind, seed)
    found = outcome(folder, 5000.0)
    assert found in ("refused", "serves"), found
    shutil.rmtree(folder)
    return found


def test_a_whole_store_serves(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    shutil.copytree(whole, folder)
    assert outcome(folder, 5000.0) == "serves"


@pytest.mark.parametrize("kind", ["lose-store", "empty-store", "another-database", "not-a-database"])
def test_what_is_no_store_is_always_refused(whole: Path, tmp_path: Path, kind: str) -> None:
    assert check(whole, tmp_path, kind, 0) == "refused"
