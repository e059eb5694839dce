"""Tiresias worked out by hand: queues by attained service, demotion, promotion, and the Gittins index."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.verify.play import finishes, play, starts

LONG, SHORT = (0, 300, 1), (50, 80, 1)


def test_a_job_is_demoted_at_the_limit_and_preempted_only_then() -> None:
    """Both are in the first queue until the long job has had 100 GPU-seconds."""
    assert starts(play("tiresias-l:queues=100", "1x1", [LONG, SHORT])) == (0, 100)
    assert finishes(play("tiresias-l:queues=100", "1x1", [LONG, SHORT])) == (380, 180)


def test_without_a_waiting_job_a_demoted_one_runs_on() -> None:
    run = play("tiresias-l:queues=100", "1x1", [LONG])
    assert finishes(run) == (300,)
    assert run.rows[0].preemptions == 0


def test_a_gang_reaches_the_limit_by_its_gpus() -> None:
    assert starts(play("tiresias-l:queues=100", "1x4", [(0, 300, 4), (5, 10, 1)])) == (0, 25)


def test_a_job_that_has_waited_long_enough_is_promoted() -> None:
    """The long job is demoted after 100 s. After another 100 s of waiting it is back in the first queue, before a job
    that comes later."""
    rows = [LONG, (50, 90, 1), (120, 90, 1), (250, 90, 1)]
    never, once = (play(f"tiresias-l:queues=100,promote={times}", "1x1", rows) for times in (0, 1))
    assert starts(never) == (0, 100, 190, 280)
    assert starts(once) == (0, 100, 190, 380)


def test_inside_a_queue_the_gittins_index_preempts_nobody(tmp_path: Path) -> None:
    """Services are 10 or 1000. A job that has passed 10 is likely to be long, but keeps its GPU until it is demoted."""
    samples = tmp_path / "services.csv"
    samples.write_text("service\n" + "10\n" * 9 + "1000\n")
    policy = f"tiresias-g:queues=500,samples={samples}"
    assert starts(play(policy, "1x1", [(0, 1000, 1), (15, 10, 1)])) == (0, 500)


@pytest.mark.parametrize("text", ["1\nx\n", "5\n", "", "-1\n2\n"])
def test_samples_that_are_not_services_are_refused(tmp_path: Path, text: str) -> None:
    samples = tmp_path / "services.csv"
    samples.write_text(text)
    with pytest.raises(InputError):
        play(f"tiresias-g:samples={samples}", "1x1", [(0, 10, 1)])
