"""What a policy builds on beyond starts and stops, and who offers it: the engine, the profile, the jobs.

Nothing of it is required: where something is missing a policy decides without, and says what is lost.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from skep.core.model import JobSpec


class Need(enum.StrEnum):
    HISTORY = "history"
    """Jobs that have finished, and how long they took."""
    PROGRESS = "progress"
    """Jobs report their progress."""
    THROUGHPUT = "throughput"
    """Measured speeds, by model, GPU type, number of GPUs and neighbours."""
    ORACLE = "oracle"
    """The true duration of a job before it has run: only a trace knows it."""
    CHECKPOINT = "checkpoint"
    """A job that is stopped goes on later where it was."""
    SUSPEND = "suspend"
    """A job can be suspended without leaving its GPUs."""
    RESIZE = "resize"
    """A running job goes on with more or fewer GPUs."""
    SHARE = "share"
    """Several jobs run on one GPU."""
    MIGRATE = "migrate"
    """A running job goes on elsewhere."""


WITHOUT = {
    Need.HISTORY: "jobs whose like has not finished yet are taken to be short",
    Need.PROGRESS: "the part of the expected duration that has passed stands for it",
    Need.THROUGHPUT: "speed is taken to be in proportion to the GPUs",
    Need.ORACLE: "what owners expect (`expect_s`) stands for it; jobs that do not say go last",
    Need.CHECKPOINT: "a job that is preempted begins anew where it does not save itself",
    Need.SUSPEND: "jobs are preempted instead",
    Need.RESIZE: "elastic jobs get what they ask for",
    Need.SHARE: "every job has its GPUs to itself",
    Need.MIGRATE: "a job stays where it was started until it is preempted",
}
"""What is lost where it is not offered."""


SIMULATED = frozenset(Need) - {Need.THROUGHPUT}
"""What a simulation offers; speeds are measured where there is a profile."""


def offered_needs(capabilities: Iterable[enum.StrEnum]) -> frozenset[Need]:
    """What an engine with these capabilities offers; jobs finish in every world."""
    names = {each.value for each in capabilities}
    return frozenset({Need.HISTORY, *(need for need in Need if need.value in names)})


class Offer(msgspec.Struct, frozen=True):
    """What there is for a policy to build on, in one place."""

    needs: frozenset[Need]
    """Of the engine and of what was measured."""
    jobs: int = 0
    """How many there are to look at."""
    job_needs: dict[Need, int] = {}
    """How many of them offer what only jobs can."""


class Lack(msgspec.Struct, frozen=True):
    """Something that a policy builds on and does not have, or not for all jobs."""

    need: Need
    lost: str
    jobs: int = 0
    """How many jobs do not offer it; 0: none does."""

    def __str__(self) -> str:
        who = f" ({self.jobs} of the jobs do not offer it)" if self.jobs else ""
        return f"no {self.need}{who}: {self.lost}"


OF_JOBS = (Need.PROGRESS, Need.ORACLE, Need.CHECKPOINT, Need.RESIZE)
"""What a job must offer too."""


def offered_by(job: JobSpec) -> frozenset[Need]:
    """By one job: it says how long it takes or how far it is, may be stopped, is elastic."""
    found = {
        Need.PROGRESS: job.epochs is not None or job.steps is not None,
        Need.ORACLE: job.expect_s is not None,
        Need.CHECKPOINT: job.preemptible,
        Need.RESIZE: job.gpu_range is not None,
    }
    return frozenset(need for need, is_there in found.items() if is_there)


def count_offers(needs: frozenset[Need], jobs: list[JobSpec]) -> Offer:
    counts = dict.fromkeys(OF_JOBS, 0)
    for job in jobs:
        for need in offered_by(job):
            counts[need] += 1
    return Offer(needs, len(jobs), counts)


def lacks(needs: frozenset[Need], offer: Offer) -> list[Lack]:
    """What is missing, in the order of `Need`. A job that is not elastic lacks nothing."""
    found = []
    for need in (each for each in Need if each in needs):
        if need not in offer.needs:
            found.append(Lack(need, WITHOUT[need]))
        elif need in offer.job_needs and need is not Need.RESIZE and offer.job_needs[need] < offer.jobs:
            found.append(Lack(need, WITHOUT[need], offer.jobs - offer.job_needs[need]))
    return found
