"""Checks of first come, first served, and of the three ways to walk a line."""

from __future__ import annotations

from skep.verify.check import Check
from skep.verify.play import Case, Rows, compare

BLOCKED: Rows = ((0, 100, 3), (10, 100, 2), (20, 50, 1))
"""On 4 GPUs: b does not fit beside a, c would."""

DELAYED: Rows = ((0, 100, 3), (10, 100, 4), (20, 50, 1), (20, 200, 1))
"""On 4 GPUs: b needs all of them, c would be gone when a is, d would not."""

BESIDE: Rows = ((0, 100, 2), (10, 100, 3), (20, 200, 1))
"""On 4 GPUs: c outlasts a, but b does not need its GPU."""

CHECKS = (
    Check(
        name="fifo-strict",
        policy="fifo",
        title="A head that does not fit holds up everyone behind it",
        source="by hand: a leaves 1 of 4 GPUs until 100, b needs 2, c needs 1 and stays behind b",
        ask=compare(Case("fifo", "1x4", BLOCKED, {"starts": (0, 100, 100)})),
    ),
    Check(
        name="fifo-skip",
        policy="fifo",
        title="With walk=skip the next that fits goes",
        source="by hand: the same jobs; c takes the GPU that b cannot use as soon as it comes, at 20",
        ask=compare(Case("fifo:walk=skip", "1x4", BLOCKED, {"starts": (0, 100, 20)})),
    ),
    Check(
        name="fifo-easy",
        policy="fifo",
        title="EASY backfilling does not delay the head",
        source="Lifka, JSSPP 1995, by hand: b is due at 100; c is gone by 70 and may pass, d would hold a GPU until "
        "220 and may not. With skip c passes, then d at 70, and b starts when d ends, at 70 + 200",
        ask=compare(
            Case("fifo:walk=easy", "1x4", DELAYED, {"starts": (0, 100, 20, 200)}),
            Case("fifo:walk=skip", "1x4", DELAYED, {"starts": (0, 270, 20, 70)}),
        ),
    ),
    Check(
        name="fifo-easy-beside",
        policy="fifo",
        title="EASY backfilling lets a long job pass on GPUs the head does not need",
        source="Lifka, JSSPP 1995, by hand: at 100 there are 4 GPUs for b's 3, so c may keep the fourth until 220",
        ask=compare(Case("fifo:walk=easy", "1x4", BESIDE, {"starts": (0, 100, 20), "ends": (100, 200, 220)})),
    ),
)
