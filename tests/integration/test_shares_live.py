"""Short versions of `bench.shares`, with limits for a machine that has other work."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from bench.load import wait_until
from bench.shares import trials
from bench.shares.world import world

pytestmark = pytest.mark.slow
CORE = 0


def test_two_jobs_in_slices_get_half_each(tmp_path: Path) -> None:
    found = trials.slices(tmp_path, CORE, 12.0)
    assert 40 < found[0].seen < 60
    assert found[2].seen < 25


def test_the_kubeshare_jobs_hold_their_shares(tmp_path: Path) -> None:
    figures = trials.tokens(tmp_path, CORE, 12.0)
    assert figures
    assert all(figure.seen < 0.1 for figure in figures)


def test_a_guaranteed_job_is_hardly_slower_beside_an_opportunistic_one(tmp_path: Path) -> None:
    _, ratio, busy, _, left = trials.lend(tmp_path, CORE, 3.0, phases=3, steps=100)
    assert ratio.seen < 1.5
    assert busy.seen > 0.1
    assert left.seen > 50


def test_kills_of_the_server_leave_no_job_stopped(tmp_path: Path) -> None:
    stuck, lost, _ = trials.crashes(tmp_path, CORE, 4)
    assert (stuck.seen, lost.seen) == (0, 0)


def test_measured_shares_are_shown_and_scraped(tmp_path: Path) -> None:
    with world(tmp_path, CORE) as there:
        first, second = there.submit(trials.SLICE), there.submit(trials.SLICE)
        wait_until(lambda: there.job(first)["share"]["share"] is not None)
        assert there.job(second)["share"]["mode"] == "slice"
        url = there.server.url.removesuffix("/api/v1")
        wait_until(lambda: "skep_shared_gpus{" in httpx.get(f"{url}/metrics").text)  # when it has been logged
        line = next(line for line in httpx.get(f"{url}/metrics").text.splitlines() if "skep_shared_gpus{" in line)
        assert 'mode="slice",vc="default"' in line
        assert 0.4 < float(line.split()[-1]) <= 1.1
