"""What a policy needs beyond starts and stops, and who offers it: the engine, the profile, the jobs.

No need is mandatory: if something is missing, the policy decides without it and reports what is lost.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from skep.core.model import JobSpec, told
from skep.core.model import Need as Need

WITHOUT = {
    Need.HISTORY: "jobs without similar finished jobs are assumed to be short",
    Need.PROGRESS: "the elapsed part of the expected duration is used instead",
    Need.DEADLINE: "jobs without a deadline have none to miss",
    Need.THROUGHPUT: "speeds that no job has reported are assumed to be proportional to the GPUs",
    Need.ORACLE: "the owner's estimate (`expect_s`) is used instead; jobs without one go last",
    Need.CHECKPOINT: "a preempted job starts from the beginning unless it saves itself",
    Need.SUSPEND: "jobs are preempted instead",
    Need.RESIZE: "elastic jobs get the requested size",
    Need.SHARE: "every job has its GPUs to itself",
    Need.MIGRATE: "a job stays where it was started until it is preempted",
    Need.TUNE: "jobs keep their batch sizes",
    Need.INSTANT: "jobs in mode instant have their GPUs to themselves",
}
"""What is lost if it is not offered."""


SIMULATED = frozenset(Need) - {Need.THROUGHPUT}
"""What a simulation offers; measured speeds only with a profile."""


def offered_needs(capabilities: Iterable[enum.StrEnum]) -> frozenset[Need]:
    """What an engine with these capabilities offers. The history of finished jobs
    and deadlines are always available."""
    names = {each.value for each in capabilities}
    return frozenset({Need.HISTORY, Need.DEADLINE, *(need for need in Need if need.value in names)})


class Offer(msgspec.Struct, frozen=True):
    """What is available to a policy."""

    needs: frozenset[Need]
    """Offered by the engine and the measurements."""
    jobs: int = 0
    """The number of jobs that were examined."""
    job_needs: dict[Need, int] = {}
    """The number of jobs that offer each need that only jobs can offer."""


class Lack(msgspec.Struct, frozen=True):
    """A need of a policy that is not offered, or not by all jobs."""

    need: Need
    lost: str
    jobs: int = 0
    """The number of jobs that do not offer it; 0: it is not offered at all."""

    def __str__(self) -> str:
        who = f" ({self.jobs} of the jobs do not offer it)" if self.jobs else ""
        return f"no {self.need}{who}: {self.lost}"


OF_JOBS = (Need.PROGRESS, Need.DEADLINE, Need.ORACLE, Need.CHECKPOINT, Need.RESIZE)
"""Needs that each job must offer too."""


def offered_by(job: JobSpec) -> frozenset[Need]:
    """What one job offers: an expected duration, progress, preemption, an elastic size."""
    said = told(job)
    found = {
        Need.PROGRESS: said.epochs is not None or said.steps is not None,
        Need.DEADLINE: said.deadline_s is not None,
        Need.ORACLE: said.expect_s is not None,
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
    """The needs that are missing, in the order of `Need`. A job that is not elastic lacks
    nothing."""
    found = []
    for need in (each for each in Need if each in needs):
        if need not in offer.needs:
            found.append(Lack(need, WITHOUT[need]))
        elif need in offer.job_needs and need is not Need.RESIZE and offer.job_needs[need] < offer.jobs:
            found.append(Lack(need, WITHOUT[need], offer.jobs - offer.job_needs[need]))
    return found
