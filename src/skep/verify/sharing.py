"""Checks of policies that let jobs share GPUs, take turns and move."""

from __future__ import annotations

from skep.core.model import JobSpec, gpu_shape
from skep.metrics.run import Run
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, near, same
from skep.verify.play import finishes, node_gpus, play, play_jobs, starts

ORDERS = (
    (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 4),
    (4, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1),
    (1, 2, 4, 1, 2, 1, 1, 1, 1, 1, 1),
    (2, 1, 1, 1, 1, 1, 1, 1, 4, 1, 2),
)
TURN = 0.5 - 0.1 / 120
"""What each of two jobs gets: half, less the switch of 0.1 s in every turn of 60 s."""


def own_nodes() -> list[Finding]:
    findings = []
    for order in ORDERS:
        run = play("gandiva", "4x4", [(float(at), 10_000.0, size) for at, size in enumerate(order)])
        hosted: dict[str, set[int]] = {}
        for row, size in enumerate(order):
            for node in node_gpus(run, row):
                hosted.setdefault(node, set()).add(size)
        seen = sorted("+".join(map(str, sorted(sizes))) for sizes in hosted.values())
        findings.append(
            same(f"sizes on each node, arriving as {' '.join(map(str, order))}", ["1", "1", "2", "4"], seen)
        )
    return findings


def turns() -> list[Finding]:
    run = play("gandiva:pack=false", "1x4", [(0.0, 400.0, 4), (10.0, 50.0, 4), (20.0, 50.0, 4)])
    first, second, third = finishes(run)
    begun = starts(run)
    assert first is not None
    assert second is not None
    assert third is not None
    assert begun[2] is not None
    return [
        same("starts of a and b", (0.0, 10.0), begun[:2]),
        near("end of b, at half the speed from 10 s on", 10.0 + 50.0 / TURN, second),
        near("start of c, which waits for one of the two", 10.0 + 50.0 / TURN, begun[2]),
        near("end of c", 10.0 + 100.0 / TURN, third),
        near("end of a, which has 290 s of work left then", 10.0 + 100.0 / TURN + 290.0, first),
    ]


def least_loaded() -> list[Finding]:
    """All jobs are there from the beginning and stay."""
    rows = [(0.0, 10_000.0, gpus) for gpus in (2, 2, 4, *[1] * 12)]
    findings = []
    for where, some, expected in (("2x2", rows[3:9], [3, 3]), ("4x4", rows, [6, 6])):
        run = play("gandiva:pack=false,migrate=false", where, some)
        hosts = [name for row, (_, _, gpus) in enumerate(some) if gpus == 1 for name in node_gpus(run, row)]
        seen = sorted(hosts.count(name) for name in set(hosts))
        findings.append(same(f"jobs of one GPU on each of their nodes, of {where}", expected, seen))
    return findings


def gathers() -> list[Finding]:
    rows = [(0.0, 100.0, 4)]
    rows += [(1.0, 40.0 if at % 4 == 0 else 1000.0, 1) for at in range(8)]
    rows += [(50.0, 900.0, 2)]
    still, moving = (play(f"gandiva:migrate={switch}", "3x4", rows) for switch in ("false", "true"))
    return [
        same("the gang of two GPUs starts on the nodes", 2, len(node_gpus(still, 9))),
        same("when the large job has left node 0, it sits on", {"node-0": 2}, numbered(moving, 9)),
        same("moves of all jobs", 1, moving.summary.migrations),
    ]


def empties() -> list[Finding]:
    findings = []
    for leaving, moves, start_s in ((3, 1, 100.0), (2, 0, 1000.0)):
        first = [(0.0, 100.0 if at < leaving else 1000.0, 1) for at in range(4)]
        second = [(1.0, 1000.0, 1)] * leaving
        run = play("gandiva:slices=false,patience=none", "2x4", [*first, *second, (10.0, 50.0, 4)])
        findings += [
            same(f"start of a job of four GPUs when {leaving} of 4 GPUs are free", start_s, starts(run)[-1]),
            same("moves of all jobs", moves, run.summary.migrations),
        ]
    return findings


def numbered(run: Run, row: int) -> dict[str, int]:
    """GPUs of a job by node, with nodes by their place in the cluster."""
    return {f"node-{run.node_names.index(name)}": gpus for name, gpus in node_gpus(run, row).items()}


def packs() -> list[Finding]:
    findings = []
    for left, ends_s in ((0.8, 4000.0 / 0.8), (0.4, 2 * 4000.0 / (2 * TURN))):
        speed = read_native(f"models: {{m: {{sharing: {{m: {left}}}}}}}", "profile").speed
        jobs = [TraceJob(0.0, 4000.0, JobSpec(name, (gpu_shape(1),), model="m")) for name in "ab"]
        run = play_jobs("gandiva:trial=60", "1x1", jobs, speed=speed)
        last_s = max(end_s for end_s in finishes(run) if end_s is not None)
        findings.append(
            near(f"end of both where {left:g} of the speed is left beside the other", ends_s, last_s, within=0.01)
        )
    return findings


CHECKS = (
    Check(
        name="own-nodes",
        policy="gandiva",
        title="Jobs of one, two and four GPUs are on nodes of their own, whatever the order of arrival",
        source="Gandiva, affinity of nodes: 8, 2 and 1 jobs of these sizes fill four nodes of four GPUs exactly",
        ask=own_nodes,
    ),
    Check(
        name="turns",
        policy="gandiva",
        title="A job that finds no free GPUs starts at once and takes turns of 60 s with one of its size, two at most",
        source="by hand, a switch costs 0.1 s: each gets 0.49917 while both are there",
        ask=turns,
    ),
    Check(
        name="least-loaded",
        policy="gandiva",
        title="Where all GPUs are in use, a job goes to the least loaded node, not to the first with a free seat",
        source="Gandiva, Xiao et al., OSDI 2018: oversubscription at the minimum load; by hand",
        ask=least_loaded,
    ),
    Check(
        name="gathers",
        policy="gandiva",
        title="A gang that is spread becomes co-located when a large job leaves, and nothing moves after that",
        source="Gandiva, migration when jobs depart: the gang fits on the node that became idle",
        ask=gathers,
    ),
    Check(
        name="empties",
        policy="gandiva",
        title="A node is emptied for a job that needs all of it if three of its four GPUs are free",
        source="Gandiva, Xiao et al., OSDI 2018: the threshold is 3 of 4. By hand: the one job that is left on the "
        "first node fits on the second; where two are left, they stay until 1000",
        ask=empties,
    ),
    Check(
        name="packs",
        policy="gandiva",
        title="A pair that takes turns is packed on trial, and stays packed only if both together are faster",
        source="by hand: 0.8 + 0.8 is above the 1 of taking turns, 0.4 + 0.4 is below; the trial costs less than 1%",
        ask=packs,
    ),
)
