"""Checks of policies with classes of jobs: guaranteed and opportunistic ones."""

from __future__ import annotations

from skep.core.model import JobSpec, gpu_shape
from skep.core.share import Claim, Share
from skep.profiles.native import read_native
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, near, same
from skep.verify.play import finishes, node_gpus, play_jobs, row_names, starts

SLOWED = 1.05
"""A guaranteed job takes at most this many times longer beside opportunistic ones."""


def claimed(name: str, claim: Claim, at_s: float, work_s: float, *, model: str = "", vc: str = "default") -> TraceJob:
    share = Share(claim=claim)
    return TraceJob(at_s, work_s, JobSpec(name, (gpu_shape(1),), vc=vc, model=model, share=share, expect_s=work_s))


def leftovers() -> list[Finding]:
    speed = read_native("models: {m: {use: {sm: 0.75}}, n: {use: {sm: 0.5}}}", "profile").speed
    jobs = [claimed("a", "guaranteed", 0.0, 1000.0, model="m"), claimed("b", "opportunistic", 0.0, 100.0, model="n")]
    run = play_jobs("antman", "1x1", jobs, speed=speed)
    first, second = finishes(run)
    assert first is not None
    assert second is not None
    ends_s = 100.0 / ((1 - 0.75 / SLOWED) / 0.5)
    return [
        same(f"starts of {row_names(run)}", (0.0, 0.0), starts(run)),
        near("end of b", ends_s, second),
        near("end of a", ends_s + 1000.0 - ends_s / SLOWED, first),
    ]


def classes() -> list[Finding]:
    jobs = [
        claimed("a", "guaranteed", 0.0, 100.0, vc="x"),
        claimed("b", "auto", 10.0, 500.0, vc="x"),
        claimed("c", "guaranteed", 20.0, 21.0, vc="y"),
        claimed("d", "guaranteed", 150.0, 50.0, vc="x"),
    ]
    run = play_jobs("antman:quotas=equal", "1x2", jobs)
    beside_s = 21.0 * SLOWED
    end_s = 10.0 + 500.0 + beside_s / SLOWED
    return [
        same("preemptions of b", 0, run.rows[1].preemptions),
        near("end of c, which runs over b", 20.0 + beside_s, finishes(run)[2] or 0.0),
        near("end of b", end_s, finishes(run)[1] or 0.0),
        near("start of d, for which b has to free quota", end_s, starts(run)[3] or 0.0),
    ]


def busy_gpus() -> list[Finding]:
    findings = []
    for use, start_s in ((0.75, 0.0), (0.79, 0.0), (0.8, 100.0), (0.9, 100.0)):
        speed = read_native(f"models: {{m: {{use: {{sm: {use}}}}}, n: {{use: {{sm: 0.1}}}}}}", "profile").speed
        jobs = [
            claimed("a", "guaranteed", 0.0, 100.0, model="m"),
            claimed("b", "opportunistic", 0.0, 10.0, model="n"),
        ]
        run = play_jobs("antman", "1x1", jobs, speed=speed)
        findings.append(same(f"start of b beside a use of {use:g}", start_s, starts(run)[1]))
    return findings


def one_guest() -> list[Finding]:
    speed = read_native("models: {m: {use: {sm: 0.1}}}", "profile").speed
    jobs = [claimed("a", "guaranteed", 0.0, 100.0, model="m")]
    jobs += [claimed(name, "opportunistic", 0.0, 50.0, model="m") for name in "bc"]
    return [same("starts of a b c", (0.0, 0.0, 50.0), starts(play_jobs("antman", "1x1", jobs, speed=speed)))]


def least_used() -> list[Finding]:
    speed = read_native("models: {m: {use: {sm: 0.6}}, n: {use: {sm: 0.3}}, o: {use: {sm: 0.1}}}", "profile").speed
    jobs = [claimed(name, "guaranteed", 0.0, 500.0, model=model) for name, model in (("a", "m"), ("b", "n"))]
    jobs.append(claimed("c", "opportunistic", 10.0, 100.0, model="o"))
    run = play_jobs("antman", "2x1", jobs, speed=speed)
    return [same("node of c", node_gpus(run, 1), node_gpus(run, 2)), same("start of c", 10.0, starts(run)[2])]


CHECKS = (
    Check(
        name="busy-gpus",
        policy="antman",
        title="A GPU that is used by 80% or more takes no opportunistic job",
        source="AntMan: opportunistic jobs go to GPUs with a use below 80%; on one GPU b waits for the end of a at 100",
        ask=busy_gpus,
    ),
    Check(
        name="one-guest",
        policy="antman",
        title="One opportunistic job on a GPU at a time",
        source="AntMan limits how many share a GPU, here to one; by hand: c takes the place of b, which ends at 50",
        ask=one_guest,
    ),
    Check(
        name="least-used",
        policy="antman",
        title="An opportunistic job goes to the GPU with the lowest use",
        source="AntMan, Xiao et al., OSDI 2020; by hand: uses of 0.6 on the first node and 0.3 on the second",
        ask=least_used,
    ),
    Check(
        name="leftovers",
        policy="antman",
        title="An opportunistic job gets what a guaranteed one leaves, which is slowed by the tolerance at most",
        source="by hand: uses of 0.75 and 0.5 are more than a GPU, so a runs at 1/1.05 and b has 1 - 0.75/1.05 of the "
        "GPU, of which it could use 0.5",
        ask=leftovers,
    ),
    Check(
        name="classes",
        policy="antman",
        title="A guaranteed job waits for quota; one that claims `auto` runs opportunistically meanwhile, and is "
        "guaranteed in its place when there is quota",
        source="by hand: a quota of one GPU for each of two VCs; b runs opportunistically on the second GPU, has "
        "1 - 1/1.05 of it beside c, and has the quota of its VC from the end of a on",
        ask=classes,
    ),
)
