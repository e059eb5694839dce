"""Checks of the orders by duration and size."""

from __future__ import annotations

from skep.verify.check import Check
from skep.verify.play import Case, Rows, compare

SHRINKING: Rows = ((0, 100, 1), (10, 50, 1), (20, 20, 1))
"""On one GPU: each job is shorter than the one before."""

WIDE: Rows = ((0, 40, 4), (0, 50, 1), (0, 50, 1), (0, 50, 1), (0, 50, 1))
"""On 4 GPUs: a is the shortest job and the largest service."""

NESTED: Rows = ((0, 100, 4), (10, 30, 2), (20, 30, 1))
"""On 4 GPUs: each job is smaller than the one before."""

LEFT: Rows = ((0, 50, 1), (0, 500, 1), (10, 100, 1))
"""On 2 GPUs: when c comes, a has less left than c, and b more."""

OWNED: Rows = ((0, 10, 1), (0, 100, 1), (100, 50, 1), (120, 10, 1), (130, 10, 1))
OWNERS = ("u", "v", "w", "v", "u")
"""On one GPU: while c runs, one job each of v (who had a long one before) and u (a short one) are submitted and
wait."""


CHECKS = (
    Check(
        name="srsf-last",
        policy="srsf",
        title="The job with the most left is preempted, not one that has less left than the new one",
        source="by hand: at 10 a has 40 left, b 490 and c 100; b goes on in the place of a at 50",
        ask=compare(Case("srsf", "1x2", LEFT, {"ends": (50, 540, 110), "preemptions": (0, 1, 0)})),
    ),
    Check(
        name="sjf",
        policy="sjf",
        title="The shortest waiting job goes next, running ones are left alone",
        source="by hand: a runs to 100, then c (20 s), then b (50 s): (100 + 160 + 100) / 3; in order of arrival "
        "(100 + 140 + 150) / 3",
        ask=compare(
            Case("sjf", "1x1", SHRINKING, {"starts": (0, 120, 100), "average JCT": 120}),
            Case("fifo", "1x1", SHRINKING, {"average JCT": 130}),
        ),
    ),
    Check(
        name="srtf",
        policy="srtf",
        title="A job that has less left pushes out the running one",
        source="by hand: b (50) pushes a (90 left) out at 10, c (20) pushes b (40 left) out at 20; then b, then a",
        ask=compare(Case("srtf", "1x1", SHRINKING, {"ends": (170, 80, 40), "preemptions": (1, 1, 0)})),
    ),
    Check(
        name="srtf-restart",
        policy="srtf",
        title="Every start but the first costs the restart, held but not worked",
        source="by hand: as before with 5 s a restart: c ends at 40, b at 40 + 5 + 40, a at 85 + 5 + 90",
        ask=compare(Case("srtf", "1x1", SHRINKING, {"ends": (180, 85, 40), "GPU-seconds": (105, 55, 20)}, restart_s=5)),
    ),
    Check(
        name="srsf",
        policy="srsf",
        title="Gangs count by GPUs x time: four small jobs before one wide one",
        source="by hand: a asks for 160 GPU-s, the others for 50 each. They run to 50, then a to 90: "
        "(90 + 4 x 50) / 5; by time alone, or by arrival, a goes first: (40 + 4 x 90) / 5",
        ask=compare(
            Case("srsf", "1x4", WIDE, {"ends": (90, 50, 50, 50, 50), "average JCT": 58}),
            Case("srtf", "1x4", WIDE, {"average JCT": 80}),
            Case("fifo", "1x4", WIDE, {"average JCT": 80}),
        ),
    ),
    Check(
        name="smallest",
        policy="smallest",
        title="Fewer GPUs push out more",
        source="by hand: b (2 GPUs) pushes a (4) out at 10, c (1) fits beside b; a has its 4 again at 50, with 90 s "
        "left",
        ask=compare(Case("smallest", "1x4", NESTED, {"ends": (140, 40, 50), "preemptions": (1, 0, 0)})),
    ),
    Check(
        name="qssf",
        policy="qssf",
        title="What the owner's jobs took before decides",
        source="Hu et al. (Helios), SC 2021, by hand: v's last job took 100 s, u's 10 s; so at 160 u's e goes before "
        "v's d, which came first",
        ask=compare(Case("qssf", "1x1", OWNED, {"starts": (0, 10, 110, 170, 160)}, users=OWNERS)),
    ),
)
