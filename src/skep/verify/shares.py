"""Checks of fair shares: dominant resource fairness, and YARN's capacity queues as Philly used them."""

from __future__ import annotations

from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import gpu_shape
from skep.metrics.run import Run
from skep.verify.check import Check, Finding, near, same
from skep.verify.play import Case, Rows, compare, endless, node_gpus, play, play_jobs, starts

CPUS, MEMORY_GIB = 9, 18
DEMANDS = {"A": (1, 4), "B": (3, 1)}
"""CPUs and GiB of one task of each user."""

SCATTERED: Rows = ((0, 100, 3), (0, 100, 3), (10, 50, 2))
"""On 2 nodes of 4 GPUs: one GPU is free on each node, c asks for two."""

LENT: Rows = ((0, 100, 2), (0, 100, 2), (0, 100, 2), (10, 50, 2))
LENT_VCS = ("x", "x", "x", "y")
"""On 4 GPUs, 2 each for x and y: x uses all of them when y comes."""

QUEUED: Rows = ((0, 100, 1), (0, 50, 1), (5, 50, 1), (10, 50, 1))
"""On 2 GPUs, one each: the same."""


OWED: Rows = ((0, 100, 3), (0, 300, 1), (10, 50, 1))
OWED_VCS = ("x", "y", "y")
"""On 4 GPUs, 2 each: x uses 3, and without a it would use none."""

IDLE: Rows = ((0, 100, 2), (0, 200, 1), (10, 50, 2))
IDLE_VCS = ("x", "x", "y")
"""On 4 GPUs, 2 each: x uses 3, one GPU is idle, y asks for 2."""


def drf_two_resources() -> list[Finding]:
    cluster = Cluster([NodeSpec("n0", 0, cpu_milli=CPUS * 1000, memory_mib=MEMORY_GIB * 1024)], "9 CPUs, 18 GiB")
    jobs = [
        endless(f"{user}{number}", gpu_shape(0, cpu=cpu, memory_gib=memory_gib), user=user)
        for user, (cpu, memory_gib) in DEMANDS.items()
        for number in range(12)
    ]
    tasks = running_by_user(play_jobs("drf", cluster, jobs))
    shares = [max(tasks[user] * cpu / CPUS, tasks[user] * gib / MEMORY_GIB) for user, (cpu, gib) in DEMANDS.items()]
    return [
        same("tasks of A and of B", (3, 2), (tasks["A"], tasks["B"])),
        near("dominant share of A", 2 / 3, shares[0]),
        near("dominant share of B", 2 / 3, shares[1]),
    ]


def drf_gpus() -> list[Finding]:
    jobs = [endless(f"{user}{number}", gpu_shape(1), user=user) for user in "AB" for number in range(8)]
    tasks = running_by_user(play_jobs("drf", "1x6", jobs))
    return [same("GPUs of A and of B", (3, 3), (tasks["A"], tasks["B"]))]


def drf_hug() -> list[Finding]:
    """B's jobs hardly need a CPU."""
    cluster = Cluster([NodeSpec("n0", 0, cpu_milli=10_000, memory_mib=10 * 1024)], "10 CPUs, 10 GiB")
    needs = {"A": (1, 0.5), "B": (0.001, 1)}
    jobs = [
        endless(f"{user}{number}", gpu_shape(0, cpu=cpu, memory_gib=memory_gib), user=user)
        for user, (cpu, memory_gib) in needs.items()
        for number in range(20)
    ]
    return [same("tasks of A and of B", {"A": 6, "B": 6}, running_by_user(play_jobs("drf:mode=hug", cluster, jobs)))]


def drf_amf() -> list[Finding]:
    jobs = [endless(f"B{number}", gpu_shape(1), user="B") for number in range(8)]
    jobs += [endless(f"A{number}", gpu_shape(1, gpu_types=("v100",)), user="A") for number in range(8)]
    tasks = running_by_user(play_jobs("drf:mode=amf", "1x4:v100+1x4:p100", jobs))
    return [same("GPUs of A and of B", {"A": 4, "B": 4}, tasks)]


def running_by_user(run: Run) -> dict[str, int]:
    """Jobs here are named by their user and a number."""
    counts = dict.fromkeys("AB", 0)
    for row in run.rows:
        if row.start_s is not None:
            counts[row.job_id[0]] += 1
    return counts


def yarn_patience() -> list[Finding]:
    run = play("yarn-cs:patience=60", "2x4", SCATTERED)
    return [
        same("start of c", 70.0, starts(run)[2]),
        same("GPUs of c on each node", {"n0": 1, "n1": 1}, node_gpus(run, 2)),
        same("its waiting for fragmentation", 60.0, run.rows[2].queue_fragmentation_s),
        same("its waiting for quota", 0.0, run.rows[2].queue_quota_s),
    ]


def yarn_no_patience() -> list[Finding]:
    run = play("yarn-cs:patience=none", "2x4", SCATTERED)
    return [
        same("start of c", 100.0, starts(run)[2]),
        same("GPUs of c on each node", {"n0": 2}, node_gpus(run, 2)),
        same("its waiting for fragmentation", 90.0, run.rows[2].queue_fragmentation_s),
    ]


CHECKS = (
    Check(
        name="drf-two-resources",
        policy="drf",
        title="Two users on 9 CPUs and 18 GiB end with 3 and 2 tasks",
        source="Ghodsi et al., NSDI 2011, its example: A's tasks take 1 CPU and 4 GiB, B's 3 CPUs and 1 GiB; A ends "
        "with 12 of 18 GiB, B with 6 of 9 CPUs",
        ask=drf_two_resources,
    ),
    Check(
        name="drf-gpus",
        policy="drf",
        title="Where GPUs are everyone's dominant resource, all get the same number",
        source="Ghodsi et al., NSDI 2011: with one dominant resource DRF is max-min fair; all of A's jobs came first",
        ask=drf_gpus,
    ),
    Check(
        name="drf-hug",
        policy="drf",
        title="With mode=hug no user holds more of a resource than the level that all can have",
        source="Chowdhury et al. (HUG), NSDI 2016, by hand: A needs half as much memory as CPUs, B memory alone, so "
        "the level is 1 / (0.5 + 1) = 2/3 of 10, by whole tasks 6",
        ask=drf_hug,
    ),
    Check(
        name="drf-amf",
        policy="drf",
        title="With mode=amf a user that can use any type makes room for one that cannot",
        source="Guan et al. (AMF), ICPP 2019, by hand: A's jobs need the 4 V100, B's came first and run anywhere; "
        "totals of 4 and 4 are possible",
        ask=drf_amf,
    ),
    Check(
        name="yarn-cs-patience",
        policy="yarn-cs",
        title="A job waits for locality as long as its patience, then is spread",
        source="Jeon et al., ATC 2019, by hand: c comes at 10, accepts two nodes at 10 + 60; 2 GPUs are free "
        "all the time",
        ask=yarn_patience,
    ),
    Check(
        name="yarn-cs-no-patience",
        policy="yarn-cs",
        title="Without end to its patience it waits for a node",
        source="by hand: the same jobs; a node has 2 free GPUs when a and b end at 100",
        ask=yarn_no_patience,
    ),
    Check(
        name="yarn-cs-take-back",
        policy="yarn-cs",
        title="Lent quota is taken back from the newest job above its own",
        source="Jeon et al., ATC 2019, by hand: x runs a and b on all GPUs; at 10 y is owed 2 of them and b is the "
        "newer; it has 90 s left at 60, when y is done; c has to wait for a",
        ask=compare(
            Case(
                "yarn-cs",
                "1x4",
                LENT,
                {
                    "starts": (0, 0, 100, 10),
                    "ends": (100, 150, 200, 60),
                    "preemptions": (0, 1, 0, 0),
                    "seconds without quota": (0, 50, 50, 0),
                },
                vcs=LENT_VCS,
            )
        ),
    ),
    Check(
        name="yarn-cs-keeps-quota",
        policy="yarn-cs",
        title="Nothing is taken back that would leave a VC with less than its quota",
        source="Jeon et al., ATC 2019: only what is above a quota is taken back; by hand: x is 1 above its quota of 2 "
        "and a has 3, so c waits for its end",
        ask=compare(Case("yarn-cs", "1x4", OWED, {"starts": (0, 0, 100), "preemptions": (0, 0, 0)}, vcs=OWED_VCS)),
    ),
    Check(
        name="yarn-cs-idle",
        policy="yarn-cs",
        title="Nothing is taken back while less than 90% of the GPUs are in use",
        source="Jeon et al., ATC 2019: preemption only when most GPUs are busy; by hand: 3 of 4 are",
        ask=compare(
            Case("yarn-cs:take_back=0.9", "1x4", IDLE, {"starts": (0, 0, 100), "preemptions": (0, 0, 0)}, vcs=IDLE_VCS),
            Case("yarn-cs:take_back=0.7", "1x4", IDLE, {"starts": (0, 0, 10), "preemptions": (0, 1, 0)}, vcs=IDLE_VCS),
        ),
    ),
    Check(
        name="yarn-cs-parts",
        policy="yarn-cs",
        title="The VC that uses the smaller part of its quota goes first, even if it uses more",
        source="by hand: at 500, with e ended, x has used four times as much as y, so the quotas are 3.2 and 0.8; x "
        "uses 2 and y 1 of them, so x's g goes before y's f, which was submitted before",
        ask=compare(
            Case(
                "yarn-cs:quotas=usage,take_back=2",
                "1x4",
                ((0, 300, 1), (0, 100, 1), (400, 1000, 2), (400, 1000, 1), (400, 100, 1), (450, 100, 1), (460, 100, 1)),
                {"starts": (0, 0, 400, 400, 400, 600, 500)},
                vcs=("x", "y", "x", "y", "x", "y", "x"),
            )
        ),
    ),
    Check(
        name="yarn-cs-lend",
        policy="yarn-cs",
        title="Without taking back, the VC that uses less of its quota is served first",
        source="by hand: b ends at 50; x, with a, is at its quota of 1 and y has nothing, so y's d goes before x's c",
        ask=compare(
            Case(
                "yarn-cs:take_back=2",
                "1x2",
                QUEUED,
                {"starts": (0, 0, 100, 50), "preemptions": (0, 0, 0, 0)},
                vcs=LENT_VCS,
            )
        ),
    ),
)
