"""Checks of policies that change the size of jobs while they run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from skep.clusters.read import read_cluster
from skep.core.job import Job
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.experiments.simulate import Experiment
from skep.policies.allocate.elastic import ElasticSizes
from skep.policies.allocate.tournament import Entrant, TournamentRoom, share_out, winner
from skep.profiles.native import Factors, ModelLoss, NativeProfile
from skep.traces.synth import synthesize
from skep.traces.trace import Trace, TraceJob
from skep.verify.check import Check, Finding, at_most, same
from skep.verify.play import finishes, mean_jct_s, play_jobs, row_names

HOME = ("",)
CLUSTER, GPUS = "16x4", 64
JOBS, LOAD = 1000, 0.9

Curves = Sequence[tuple[float, float]]
"""(exponent, seconds of work left) of each job: its speed is the number of GPUs to the power of the exponent."""


def afs_shares() -> list[Finding]:
    return [
        same("exponents 0.9 0.5, work 10 4, 4 GPUs", (2, 2), shares(4, ((0.9, 10), (0.5, 4)))),
        same("exponents 0.5 0.5 0.9, work 4 6 20, 8 GPUs", (2, 2, 4), shares(8, ((0.5, 4), (0.5, 6), (0.9, 20)))),
        same(
            "5 jobs, 3 GPUs: the shortest", (0, 1, 0, 1, 1), shares(3, [(0.9, left) for left in (50, 10, 40, 20, 30)])
        ),
        same("equal near-linear jobs, work 9 5, 7 GPUs", (3, 4), shares(7, ((0.98, 9), (0.98, 5)))),
    ]


def shares(gpus: int, jobs: Curves) -> tuple[int, ...]:
    entrants = [entrant(seq, exponent, left_s, gpus) for seq, (exponent, left_s) in enumerate(jobs)]
    share_out([iter((each,)) for each in entrants], TournamentRoom({HOME: gpus * 1000}))
    return tuple(each.size for each in entrants)


def entrant(seq: int, exponent: float, left_s: float, most: int) -> Entrant:
    def speed(spec: JobSpec, shape: Shape) -> float:
        return float(shape.gpus**exponent)

    spec = JobSpec(str(seq), (gpu_shape(1),), min_gpus=1, max_gpus=most)
    return Entrant(Job(spec, seq, 0.0), ElasticSizes(speed).ladder(spec), left_s, (HOME,))


def afs_rule() -> list[Finding]:
    """Every pair of some curves and sizes: the GPU goes where the sum of both ends is smaller."""
    cases = wrong = 0
    exponents, held = (0.2, 0.5, 0.8, 0.95), (1, 2, 3, 5)
    for one, other, mine, theirs in itertools.product(exponents, exponents, held, held):
        at_once = both_ends(one, other, mine, theirs, at_once=True)
        later = both_ends(one, other, mine, theirs, at_once=False)
        if abs(at_once - later) > 1e-9 * later:
            cases += 1
            wrong += (shares_next(one, other, mine, theirs) == "other") != (at_once < later)
    return [Finding("pairs in which the GPU goes where the sum is larger", "0", f"{wrong} of {cases}", not wrong)]


WORK_S, LONGER_S = 10.0, 200.0


def both_ends(one: float, other: float, mine: int, theirs: int, *, at_once: bool) -> float:
    """When a job and a much longer one end, added up: the longer has a GPU more at once, or when the first has ended
    with it."""
    first_s = WORK_S / float(mine**one if at_once else (mine + 1) ** one)
    slow, fast = float(theirs**other), float((theirs + 1) ** other)
    return first_s + (LONGER_S / fast if at_once else first_s + (LONGER_S - first_s * slow) / fast)


def shares_next(one: float, other: float, mine: int, theirs: int) -> str:
    pair = entrant(0, one, WORK_S, 8), entrant(1, other, LONGER_S, 8)
    for each, size in zip(pair, (mine, theirs), strict=True):
        for _ in range(size):
            each.climb()
    return "one" if winner(*pair) is pair[0] else "other"


def afs_resizes() -> list[Finding]:
    jobs = [elastic_job(0, 1000, "a"), elastic_job(100, 500, "b")]
    run = play_jobs("afs-l:restart=0", "1x8", jobs)
    return [
        same(f"ends of {row_names(run)}", (750.0, 500.0), finishes(run)),
        same("resizes of each", (2, 0), tuple(row.resizes for row in run.rows)),
        same("average JCT", 575.0, mean_jct_s(run)),
        same("average JCT of srtf", 750.0, mean_jct_s(play_jobs("srtf", "1x8", jobs))),
    ]


def optimus_gains() -> list[Finding]:
    run = play_jobs("optimus:restart=0,round_s=0", "1x8", [elastic_job(0, 300, "a"), elastic_job(0, 3000, "b")])
    return [
        same(f"ends of {row_names(run)}", (600.0, 1650.0), finishes(run)),
        same("resizes of each", (0, 1), tuple(row.resizes for row in run.rows)),
    ]


def pollux_doubles() -> list[Finding]:
    jobs = [elastic_job(0, 3600, "a")]
    run = play_jobs("pollux:restart=0", "1x8", jobs)
    return [
        same(f"end of {row_names(run)}", (1927.5,), finishes(run)),
        same("resizes", (3,), tuple(row.resizes for row in run.rows)),
    ]


def slaq_learns() -> list[Finding]:
    """One job has learned nearly all it can after the first round, the other has not."""
    models = {
        name: Factors({}, {1: 1.0}, {}, {}, loss=ModelLoss(slope, 1.0, 0.1))
        for name, slope in (("flat", 1.0), ("steep", 0.02))
    }
    speed = NativeProfile("", Factors({}, {1: 1.0}, {}, {}), models).speed
    one = JobSpec("", (gpu_shape(1),), min_gpus=1, max_gpus=8, epochs=100)
    jobs = [TraceJob(0.0, 20_000.0, msgspec.structs.replace(one, id=name, model=name)) for name in models]
    run = play_jobs("slaq:restart=0", "1x8", jobs, speed=speed)
    return [same(f"ends of {row_names(run)}", (5425.0, 3114.3), tuple(round(end or 0, 1) for end in finishes(run)))]


def elastic_job(submit_s: float, work_s: float, name: str) -> TraceJob:
    return TraceJob(submit_s, work_s, JobSpec(name, (gpu_shape(4),), min_gpus=1, max_gpus=8, expect_s=work_s))


def afs_exact() -> list[Finding]:
    """Five jobs of 3,000 GPU-seconds each, written as one GPU for long and as five for a fifth of the time."""
    ends = [finishes(play_jobs("afs-l:restart=0", "1x8", written(gpus))) for gpus in (1, 5)]
    return [same("ends of the jobs, each written as 3,000 s x 1 GPU and as 600 s x 5", ends[0], ends[1])]


def written(gpus: int) -> list[TraceJob]:
    work_s = 3000.0 / gpus
    shapes = (gpu_shape(gpus),)
    return [
        TraceJob(at * 10.0, work_s, JobSpec(f"j{at}", shapes, min_gpus=1, max_gpus=8, expect_s=work_s))
        for at in range(5)
    ]


def afs_ranking() -> list[Finding]:
    trace = synthesize(jobs=JOBS, load=LOAD, seed=0, gpus=GPUS)
    jobs = [stretched(job) for job in trace.jobs]
    experiment = Experiment(Trace(trace.name, trace.format, jobs), read_cluster(CLUSTER))
    mean = {policy: mean_jct_s(experiment.run(policy)) for policy in ("afs-l", "srtf", "tiresias-l")}
    return [
        at_most("afs-l / srtf", 0.6, mean["afs-l"] / mean["srtf"]),
        at_most("afs-l / tiresias-l", 0.5, mean["afs-l"] / mean["tiresias-l"]),
    ]


def stretched(job: TraceJob) -> TraceJob:
    """Anything from one GPU to four times what was asked for."""
    most = 4 * job.spec.shapes[0].gpus
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, min_gpus=1, max_gpus=most))


CHECKS = (
    Check(
        name="afs-shares",
        policy="afs-l",
        title="Who gets how many GPUs, handed out one by one",
        source="Hwang et al. (AFS), NSDI 2021: its rule worked through by hand for given curves",
        ask=afs_shares,
    ),
    Check(
        name="afs-rule",
        policy="afs-l",
        title="Of two jobs the next GPU goes where it makes the sum of both ends smaller",
        source="Hwang et al. (AFS), NSDI 2021: both ways worked out in full, for a job of 10 s and one of 200 s",
        ask=afs_rule,
    ),
    Check(
        name="afs-resizes",
        policy="afs-l",
        title="A job grows onto idle GPUs, and shrinks for one that arrives",
        source="by hand, 4 GPUs asked for and 1 to 8 accepted, twice as fast with twice as many: a has 8 to 100 and "
        "does 200 s of work; then a has 3 and the shorter b has 5 and ends at 500; a, with 500 s left, has 8 again",
        ask=afs_resizes,
    ),
    Check(
        name="afs-exact",
        policy="afs-l",
        title="The same work gives the same result however it is written",
        source="speeds in proportion: 3,000 s on one GPU are 600 s on five, and equal jobs tie by submission",
        ask=afs_exact,
    ),
    Check(
        name="afs-ranking",
        policy="afs-l",
        title="Elastic jobs end far sooner than the same jobs with what they asked for",
        source="Hwang et al. (AFS), NSDI 2021: average JCT up to 2.7 times better than SRTF's, 3.1 times than "
        f"Tiresias-L's. Here: {JOBS:,} made-up jobs, load {LOAD}, on {CLUSTER}, each with 1 GPU to 4 times as many as "
        "it asked for, in proportion as fast",
        ask=afs_ranking,
    ),
    Check(
        name="optimus-gains",
        policy="optimus",
        title="The next GPU goes where it shortens the remaining time most",
        source="Peng et al. (Optimus), EuroSys 2018, by hand: on n GPUs a needs 1,200 / n s and b 12,000 / n s; the "
        "fourth GPU of b and the second of a save 600 s each, so a has 2 to 600, b 6 and then 8",
        ask=optimus_gains,
    ),
    Check(
        name="slaq-learns",
        policy="slaq",
        title="GPUs go to the job whose loss still falls",
        source="Zhang et al. (SLAQ), SoCC 2017, by hand: 20,000 GPU-seconds each; in the first round of 600 s nothing "
        "is known and each has 4 GPUs; then the steep one has 7 and ends after 17,600 / 7 s; the flat one has 1 "
        "up to the round at 3,600, and does the last 14,600 on 8",
        ask=slaq_learns,
    ),
    Check(
        name="pollux-doubles",
        policy="pollux",
        title="A job begins with one GPU and gets at most twice as many as it has run on",
        source="Qiao et al. (Pollux), OSDI 2021, by hand: 14,400 GPU-seconds; in rounds of 60 s with 1, 2 and 4 GPUs "
        "420 of them are done at 180, and 8 GPUs do the rest in 1,747.5 s",
        ask=pollux_doubles,
    ),
)
