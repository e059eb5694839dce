"""Checks of the orders by duration and size."""

from __future__ import annotations

from skep.verify.check import Check, Finding, same
from skep.verify.play import Rows, finishes, mean_jct_s, play, preemptions, row_names, starts

SHRINKING: Rows = ((0, 100, 1), (10, 50, 1), (20, 20, 1))
"""On one GPU: each job is shorter than the one before."""

WIDE: Rows = ((0, 40, 4), (0, 50, 1), (0, 50, 1), (0, 50, 1), (0, 50, 1))
"""On 4 GPUs: a is the shortest job and the largest service."""

NESTED: Rows = ((0, 100, 4), (10, 30, 2), (20, 30, 1))
"""On 4 GPUs: each job is smaller than the one before."""

OWNED: Rows = ((0, 10, 1), (0, 100, 1), (100, 50, 1), (120, 10, 1), (130, 10, 1))
OWNERS = ("u", "v", "w", "v", "u")
"""On one GPU: while c runs, one job each of v (who had a long one before) and u (a short one) are submitted and
wait."""


def sjf() -> list[Finding]:
    run = play("sjf", "1x1", SHRINKING)
    return [
        same(f"starts of {row_names(run)}", (0.0, 120.0, 100.0), starts(run)),
        same("average JCT", 120.0, mean_jct_s(run)),
        same("average JCT of fifo", 130.0, mean_jct_s(play("fifo", "1x1", SHRINKING))),
    ]


def srtf() -> list[Finding]:
    run = play("srtf", "1x1", SHRINKING)
    return [
        same(f"ends of {row_names(run)}", (170.0, 80.0, 40.0), finishes(run)),
        same("preemptions of each", (1, 1, 0), preemptions(run)),
    ]


def srtf_restart() -> list[Finding]:
    run = play("srtf", "1x1", SHRINKING, restart_s=5.0)
    return [
        same(f"ends of {row_names(run)}", (180.0, 85.0, 40.0), finishes(run)),
        same("GPU-seconds held", (105.0, 55.0, 20.0), tuple(row.service_gpu_s for row in run.rows)),
    ]


def srsf() -> list[Finding]:
    run = play("srsf", "1x4", WIDE)
    return [
        same(f"ends of {row_names(run)}", (90.0, 50.0, 50.0, 50.0, 50.0), finishes(run)),
        same("average JCT", 58.0, mean_jct_s(run)),
        same("average JCT of srtf", 80.0, mean_jct_s(play("srtf", "1x4", WIDE))),
        same("average JCT of fifo", 80.0, mean_jct_s(play("fifo", "1x4", WIDE))),
    ]


def smallest() -> list[Finding]:
    run = play("smallest", "1x4", NESTED)
    return [
        same(f"ends of {row_names(run)}", (140.0, 40.0, 50.0), finishes(run)),
        same("preemptions of each", (1, 0, 0), preemptions(run)),
    ]


def qssf() -> list[Finding]:
    run = play("qssf", "1x1", OWNED, users=OWNERS)
    return [same(f"starts of {row_names(run)}", (0.0, 10.0, 110.0, 170.0, 160.0), starts(run))]


def srsf_last() -> list[Finding]:
    run = play("srsf", "1x2", ((0, 50, 1), (0, 500, 1), (10, 100, 1)))
    return [
        same("ends of a b c", (50.0, 540.0, 110.0), finishes(run)),
        same("preemptions of a b c", (0, 1, 0), preemptions(run)),
    ]


CHECKS = (
    Check(
        name="srsf-last",
        policy="srsf",
        title="The job with the most left is preempted, not one that has less left than the new one",
        source="by hand: at 10 a has 40 left, b 490 and c 100; b goes on in the place of a at 50",
        ask=srsf_last,
    ),
    Check(
        name="sjf",
        policy="sjf",
        title="The shortest waiting job goes next, running ones are left alone",
        source="by hand: a runs to 100, then c (20 s), then b (50 s): (100 + 160 + 100) / 3; in order of arrival "
        "(100 + 140 + 150) / 3",
        ask=sjf,
    ),
    Check(
        name="srtf",
        policy="srtf",
        title="A job that has less left pushes out the running one",
        source="by hand: b (50) pushes a (90 left) out at 10, c (20) pushes b (40 left) out at 20; then b, then a",
        ask=srtf,
    ),
    Check(
        name="srtf-restart",
        policy="srtf",
        title="Every start but the first costs the restart, held but not worked",
        source="by hand: as before with 5 s a restart: c ends at 40, b at 40 + 5 + 40, a at 85 + 5 + 90",
        ask=srtf_restart,
    ),
    Check(
        name="srsf",
        policy="srsf",
        title="Gangs count by GPUs x time: four small jobs before one wide one",
        source="by hand: a asks for 160 GPU-s, the others for 50 each. They run to 50, then a to 90: "
        "(90 + 4 x 50) / 5; by time alone, or by arrival, a goes first: (40 + 4 x 90) / 5",
        ask=srsf,
    ),
    Check(
        name="smallest",
        policy="smallest",
        title="Fewer GPUs push out more",
        source="by hand: b (2 GPUs) pushes a (4) out at 10, c (1) fits beside b; a has its 4 again at 50, with 90 s "
        "left",
        ask=smallest,
    ),
    Check(
        name="qssf",
        policy="qssf",
        title="What the owner's jobs took before decides",
        source="Hu et al. (Helios), SC 2021, by hand: v's last job took 100 s, u's 10 s; so at 160 u's e goes before "
        "v's d, which came first",
        ask=qssf,
    ),
)
