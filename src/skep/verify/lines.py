"""Checks of first come, first served, and of the three ways to walk a line."""

from __future__ import annotations

from skep.verify.check import Check, Finding, same
from skep.verify.play import Rows, finishes, play, row_names, starts

BLOCKED: Rows = ((0, 100, 3), (10, 100, 2), (20, 50, 1))
"""On 4 GPUs: b does not fit beside a, c would."""

DELAYED: Rows = ((0, 100, 3), (10, 100, 4), (20, 50, 1), (20, 200, 1))
"""On 4 GPUs: b needs all of them, c would be gone when a is, d would not."""

BESIDE: Rows = ((0, 100, 2), (10, 100, 3), (20, 200, 1))
"""On 4 GPUs: c outlasts a, but b does not need its GPU."""


def strict() -> list[Finding]:
    run = play("fifo", "1x4", BLOCKED)
    return [same(f"starts of {row_names(run)}", (0.0, 100.0, 100.0), starts(run))]


def skip() -> list[Finding]:
    run = play("fifo:walk=skip", "1x4", BLOCKED)
    return [same(f"starts of {row_names(run)}", (0.0, 100.0, 20.0), starts(run))]


def easy() -> list[Finding]:
    run = play("fifo:walk=easy", "1x4", DELAYED)
    loose = play("fifo:walk=skip", "1x4", DELAYED)
    return [
        same(f"starts of {row_names(run)}", (0.0, 100.0, 20.0, 200.0), starts(run)),
        same("start of b with skip", 270.0, starts(loose)[1]),
    ]


def easy_beside() -> list[Finding]:
    run = play("fifo:walk=easy", "1x4", BESIDE)
    return [
        same(f"starts of {row_names(run)}", (0.0, 100.0, 20.0), starts(run)),
        same(f"ends of {row_names(run)}", (100.0, 200.0, 220.0), finishes(run)),
    ]


CHECKS = (
    Check(
        name="fifo-strict",
        policy="fifo",
        title="A head that does not fit holds up everyone behind it",
        source="by hand: a leaves 1 of 4 GPUs until 100, b needs 2, c needs 1 and stays behind b",
        ask=strict,
    ),
    Check(
        name="fifo-skip",
        policy="fifo",
        title="With walk=skip the next that fits goes",
        source="by hand: the same jobs; c takes the GPU that b cannot use as soon as it comes, at 20",
        ask=skip,
    ),
    Check(
        name="fifo-easy",
        policy="fifo",
        title="EASY backfilling does not delay the head",
        source="Lifka, JSSPP 1995, by hand: b is due at 100; c is gone by 70 and may pass, d would hold a GPU until "
        "220 and may not. With skip c and d pass, and b starts when d ends, at 70 + 200",
        ask=easy,
    ),
    Check(
        name="fifo-easy-beside",
        policy="fifo",
        title="EASY backfilling lets a long job pass on GPUs the head does not need",
        source="Lifka, JSSPP 1995, by hand: at 100 there are 4 GPUs for b's 3, so c may keep the fourth until 220",
        ask=easy_beside,
    ),
)
