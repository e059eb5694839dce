"""Checks of Lucid: the profiling partition, the order by predicted service, and the pairs that share GPUs."""

from __future__ import annotations

from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import JobSpec, gpu_shape
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, same
from skep.verify.play import Case, Rows, compare, play_jobs, starts

PROFILED: Rows = ((0, 300, 4), (0, 60, 2), (0, 200, 2))
"""On 2 nodes of 4 GPUs, one of them for profiling; to stop at the end of profiling is no preemption."""

MODELS = """
models:
  tiny: {sharing: {tiny: 0.96, medium: 0.96, jumbo: 0.96}}
  medium: {sharing: {tiny: 0.9, medium: 0.9, jumbo: 0.9}}
  jumbo: {sharing: {tiny: 0.5, medium: 0.5, jumbo: 0.5}}
"""
PAIRS = {("tiny", "jumbo"): True, ("medium", "medium"): True, ("medium", "jumbo"): False, ("jumbo", "jumbo"): False}


def pairs() -> list[Finding]:
    speed = read_native(MODELS, "profile").speed
    findings = []
    for (one, other), shares in PAIRS.items():
        jobs = [
            TraceJob(0.0, 100.0, JobSpec(name, (gpu_shape(1),), model=model, expect_s=100.0))
            for name, model in (("a", one), ("b", other))
        ]
        run = play_jobs("lucid:estimate=known,nodes=0", "1x1", jobs, speed=speed)
        findings.append(same(f"{one} and {other} share", shares, starts(run)[1] == 0.0))
    return findings


def service_ratio() -> list[Finding]:
    speed = read_native(MODELS, "profile").speed
    findings = []
    for work_s, start_s in ((50.0, 0.0), (200.0, 0.0), (201.0, 100.0), (1000.0, 100.0)):
        jobs = [
            TraceJob(at_s, work, JobSpec(name, (gpu_shape(1),), model="tiny", expect_s=work))
            for name, at_s, work in (("a", 0.0, 100.0), ("b", 0.0, work_s))
        ]
        if work_s < 100.0:
            jobs.reverse()  # else it would go first
        run = play_jobs("lucid:estimate=known,nodes=0", "1x1", jobs, speed=speed)
        shares = [row.start_s for row in run.rows if row.job_id == "b"]
        findings.append(same(f"{work_s:g} s beside 100 s: share", start_s == 0.0, shares[0] == 0.0))
    return findings


def pair_memory() -> list[Finding]:
    speed = read_native(MODELS, "profile").speed
    cluster = Cluster([NodeSpec("n0", 1, gpu_mem_mib=24 * 1024)], "one GPU of 24 GiB")
    findings = []
    for gib, shares in ((11.0, True), (12.0, False), (13.0, False)):
        shape = gpu_shape(1, gpu_mem_gib=gib)
        jobs = [TraceJob(0.0, 100.0, JobSpec(name, (shape,), model="tiny", expect_s=100.0)) for name in "ab"]
        run = play_jobs("lucid:estimate=known,nodes=0", cluster, jobs, speed=speed)
        findings.append(same(f"two of {gib:g} GiB share", shares, starts(run)[1] == 0.0))
    return findings


CHECKS = (
    Check(
        name="service-ratio",
        policy="lucid",
        title="A job shares GPUs with a running one only if its predicted service is at most twice that of the other",
        source="Lucid: priority_new <= 2 x priority_running; by hand: the running job is predicted to take 100 s",
        ask=service_ratio,
    ),
    Check(
        name="pair-memory",
        policy="lucid",
        title="The memory of both jobs of a pair is less than that of the card",
        source="Lucid: summed GPU memory < card; by hand on 24 GiB",
        ask=pair_memory,
    ),
    Check(
        name="profiling",
        policy="lucid",
        title="New jobs run for 80 s on the profiling partition, the fewest GPUs first; what ends there is done",
        source="by hand, one node of four GPUs for profiling: a waits for both jobs of two GPUs there; when it has "
        "run for 80 s it waits for c, which ends on the other node at 200 s, and has 220 s left",
        ask=compare(
            Case(
                "lucid:estimate=known,nodes=1",
                "2x4",
                PROFILED,
                {"starts": (80, 0, 0), "ends": (420, 60, 200), "preemptions": (0, 0, 0)},
            )
        ),
    ),
    Check(
        name="packing-score",
        policy="lucid",
        title="Two jobs share a GPU if their packing scores add up to at most 2",
        source="Lucid: 0 from 0.95 of the speed alone on, 1 from 0.85 on, else 2",
        ask=pairs,
    ),
)
