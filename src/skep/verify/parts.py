"""Checks of policies that give jobs parts of a GPU: tokens with a request and a limit, and lanes of memory."""

from __future__ import annotations

from skep.core.cluster import Cluster, NodeSpec
from skep.core.model import JobSpec, gpu_shape
from skep.core.share import Share
from skep.traces.trace import TraceJob
from skep.verify.check import Check, Finding, near, same
from skep.verify.play import finishes, node_gpus, play_jobs, row_names, starts

TOKENS = ((300, 600), (400, 600), (300, 500))
"""(request, limit) in thousandths of a GPU; the work is measured with the request."""
WORK_S = 60.0

MEMORY_GIB = 16
LANES = ((2, 6, 100.0), (1, 5, 25.0), (1, 4, 25.0), (1, 7, 50.0))
"""(GiB that a job keeps, GiB that it needs to run, seconds of work)"""


def token(at: int) -> TraceJob:
    request, limit = TOKENS[at]
    shape = gpu_shape(1, gpu_milli=request)
    spec = JobSpec("abc"[at], (shape,), share=Share("token", limit, measured_milli=request), expect_s=WORK_S)
    return TraceJob(0.0, WORK_S, spec)


def tokens() -> list[Finding]:
    alone = [finishes(play_jobs("kubeshare", "1x1", [token(at)]))[0] or 0.0 for at in range(3)]
    together = finishes(play_jobs("kubeshare", "1x1", [token(at) for at in range(3)]))
    found = [
        near(f"part of the GPU that {name} has alone", limit / 1000, WORK_S * request / 1000 / end_s)
        for name, (request, limit), end_s in zip("abc", TOKENS, alone, strict=True)
    ]
    return [*found, same("ends of a b c together, at their requests", (WORK_S,) * 3, together)]


def labelled(**labels: str) -> Share:
    return Share("token", **labels)  # type: ignore[arg-type]


def labels() -> list[Finding]:
    """Two jobs of 0.3 GPU each: on one GPU the second waits if they may not share it."""
    pairs = {
        "no labels": (labelled(), labelled(), True),
        "equal anti-affinity": (labelled(anti_affinity="a"), labelled(anti_affinity="a"), False),
        "unequal anti-affinity": (labelled(anti_affinity="a"), labelled(anti_affinity="b"), True),
        "equal exclusion": (labelled(exclusion="e"), labelled(exclusion="e"), True),
        "unequal exclusion": (labelled(exclusion="e"), labelled(exclusion="f"), False),
        "exclusion and none": (labelled(exclusion="e"), labelled(), False),
    }
    findings = []
    for what, (one, other, together) in pairs.items():
        run = play_jobs("kubeshare", "1x1", sharing(one, other))
        findings.append(same(f"{what}: both on one GPU", together, starts(run)[1] == 0.0))
    return findings


def affinity() -> list[Finding]:
    """0.5 GPU is in use on the first GPU, 0.3 on the second: the third job would fit best on the first."""
    home = labelled(affinity="home")
    jobs = sharing(labelled(), home, home, parts=(500, 600, 300))
    run = play_jobs("kubeshare", "2x1", jobs)
    return [
        same("the second job, first of its affinity, is on another GPU", False, node_gpus(run, 0) == node_gpus(run, 1)),
        same("the third one joins it", node_gpus(run, 1), node_gpus(run, 2)),
    ]


def best_fit() -> list[Finding]:
    run = play_jobs("kubeshare", "2x1", sharing(labelled(), labelled(), labelled(), parts=(500, 600, 300)))
    return [same("the third job joins the second one", node_gpus(run, 1), node_gpus(run, 2))]


def sharing(*shares: Share, parts: tuple[int, ...] = (300, 300)) -> list[TraceJob]:
    shapes = [gpu_shape(1, gpu_milli=part) for part in parts]
    return [
        TraceJob(0.0, WORK_S, JobSpec(name, (shape,), share=share, expect_s=WORK_S))
        for name, shape, share in zip("abc", shapes, shares, strict=False)
    ]


def lanes() -> list[Finding]:
    cluster = Cluster([NodeSpec("n0", 1, gpu_mem_mib=MEMORY_GIB * 1024)], "one GPU of 16 GiB")
    jobs = []
    for name, (kept, ephemeral, work_s) in zip("abcd", LANES, strict=True):
        shape = gpu_shape(1, gpu_mem_gib=float(kept + ephemeral))
        share = Share("lane", persistent_gib=float(kept), ephemeral_gib=float(ephemeral))
        jobs.append(TraceJob(0.0, work_s, JobSpec(name, (shape,), share=share, expect_s=work_s)))
    run = play_jobs("salus", cluster, jobs)
    return [
        same(f"starts of {row_names(run)}", (0.0, 0.0, 0.0, 100.0), starts(run)),
        same(f"ends of {row_names(run)}", (200.0, 100.0, 100.0, 200.0), finishes(run)),
    ]


CHECKS = (
    Check(
        name="tokens",
        policy="kubeshare",
        title="Alone a job has its limit; together jobs have their requests and share what is left",
        source="KubeShare's rule: requests 0.3, 0.4, 0.3 add up to the GPU, so together nothing is left to share",
        ask=tokens,
    ),
    Check(
        name="labels",
        policy="kubeshare",
        title="Equal anti-affinity labels keep jobs apart, exclusion labels keep others away",
        source="KubeShare, Yeh et al., HPDC 2020: a GPU with the same anti-affinity is left out; only equal exclusion "
        "labels share one",
        ask=labels,
    ),
    Check(
        name="affinity",
        policy="kubeshare",
        title="Jobs of one affinity are on one GPU, the first of them on a new one",
        source="KubeShare, Yeh et al., HPDC 2020; by hand: 0.5 and 0.6 are in use, 0.3 fits on both GPUs, and without "
        "labels the second would be the best fit for it",
        ask=affinity,
    ),
    Check(
        name="best-fit-gpu",
        policy="kubeshare",
        title="A job without labels goes to the GPU that it leaves the least of",
        source="KubeShare, Yeh et al., HPDC 2020: best fit; by hand: 0.5 and 0.6 are in use, and 0.3 fits on both GPUs",
        ask=best_fit,
    ),
    Check(
        name="lanes",
        policy="salus",
        title="Jobs of a lane take turns, lanes run at once, and a job that fits no lane waits",
        source="the paper's rule on 16 GiB: a and b open lanes of 6 and 5, c joins that of b, d would have to enlarge "
        "that of a by 1 and keep 1 where 1 is free. Two lanes have half of the GPU each",
        ask=lanes,
    ),
)
