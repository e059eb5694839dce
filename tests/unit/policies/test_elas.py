"""E-LAS worked out by hand: service raises the key of a running job, progress lowers it."""

from __future__ import annotations

import pytest
from tests.support import job

from skep.core.errors import InputError
from skep.verify.play import play, play_jobs


def start_of_b(policy: str, epochs: int | None = None) -> float | None:
    jobs = [job(id="a", work=100_000.0, epochs=epochs), job(id="b", at=10.0, work=100.0)]
    return next(row.start_s for row in play_jobs(policy, "1x1", jobs).rows if row.job_id == "b")


def test_the_sum_gives_way_when_its_key_passes_that_of_a_waiting_job() -> None:
    """0.5·t/(t + 7200) - 0.5·t/100000 is 0.1, the lead, at 2034.9."""
    assert start_of_b("e-las") == pytest.approx(2034.9, abs=0.01)


@pytest.mark.parametrize(("epochs", "start_s"), [(None, 725.26), (4, 720.0), (1000, 725.08)])
def test_the_product_gives_way_too(epochs: int | None, start_s: float) -> None:
    """t·(1 - t/100000), or with the progress in whole epochs, is 720."""
    assert start_of_b("e-las:form=product", epochs) == pytest.approx(start_s, abs=0.01)


@pytest.mark.parametrize("knobs", ["weight=2", "scale=0", "lead=0", "form=none"])
def test_knobs_that_make_no_order_are_refused(knobs: str) -> None:
    with pytest.raises(InputError):
        play(f"e-las:{knobs}", "1x1", [(0, 10, 1)])
