"""When some tasks decide for all."""

from __future__ import annotations

import pytest

from skep.engines.local.run import Outcome, outcome
from skep.jobs.request import Completion, Request, TaskRole


def job(*, failed: int | None = 1, succeeded: int | None = None) -> Request:
    worker = TaskRole(count=3, command="x", completion=Completion(failed, succeeded))
    return Request("a", {"worker": worker, "ps": TaskRole(command="y")})


W0, W1, W2, PS = ("worker", 0), ("worker", 1), ("worker", 2), ("ps", 0)


@pytest.mark.parametrize(
    ("request_", "exits", "expected"),
    [
        (job(), {}, None),
        (job(), {W0: 0, W1: 0, W2: 0}, None),
        (job(), {W0: 0, W1: 0, W2: 0, PS: 0}, Outcome(True, 0, "")),
        (job(), {W0: 0, W2: 3}, Outcome(False, 3, "worker-2")),
        (job(), {PS: 137}, Outcome(False, 137, "ps-0")),
        (job(failed=2), {W0: 1}, None),
        (job(failed=2), {W0: 1, W1: 0, W2: 2}, Outcome(False, 2, "worker-2")),
        (job(failed=None), {W0: 1, W1: 1, W2: 1}, None),
        (job(failed=None), {W0: 1, W1: 1, W2: 1, PS: 0}, Outcome(True, 0, "")),
        (job(succeeded=1), {W1: 0}, Outcome(True, 0, "worker-1")),
        (job(succeeded=2), {W1: 0}, None),
        (job(succeeded=2), {W1: 0, W0: 0}, Outcome(True, 0, "worker-0")),
        (job(succeeded=1), {W1: 0, W0: 5}, Outcome(True, 0, "worker-1")),
        (job(succeeded=1), {W0: 5, W1: 0}, Outcome(False, 5, "worker-0")),
    ],
)
def test_outcome(request_: Request, exits: dict[tuple[str, int], int], expected: Outcome | None) -> None:
    assert outcome(request_, exits) == expected


def test_a_job_that_shrank_is_over_when_those_that_are_left_are() -> None:
    exits = {W0: 0, PS: 0}
    assert outcome(job(), exits) is None
    assert outcome(job(), exits, counts={"worker": 1, "ps": 1}) == Outcome(True, 0, "")
