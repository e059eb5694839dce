"""What policies build on, and what is said where it is missing."""

from __future__ import annotations

from tests.support import job

from skep.core.needs import SIMULATED, Lack, Need, Offer, count_offers, lacks, offered_by, offered_needs
from skep.core.ports import Capability

ALL = frozenset(Need)


def test_an_engine_offers_what_it_can_do_and_jobs_that_finish() -> None:
    offered = offered_needs({Capability.SUSPEND, Capability.LOGS, Capability.PROGRESS})
    assert offered == {Need.SUSPEND, Need.PROGRESS, Need.HISTORY, Need.DEADLINE}
    assert offered_needs(Capability) == ALL - {Need.ORACLE, Need.THROUGHPUT}
    assert lacks(ALL, Offer(SIMULATED))[0].need is Need.THROUGHPUT


def test_what_one_job_offers() -> None:
    assert offered_by(job(1, expect=None, preemptible=False).spec) == frozenset()
    all_of_it = job(2, epochs=3, min_gpus=1, max_gpus=4).spec
    assert offered_by(all_of_it) == {Need.PROGRESS, Need.ORACLE, Need.CHECKPOINT, Need.RESIZE}


def test_what_is_missing_is_said_with_what_is_lost() -> None:
    needs = frozenset({Need.CHECKPOINT, Need.PROGRESS, Need.RESIZE, Need.SHARE})
    jobs = [job(1, epochs=3).spec, job(1, preemptible=False).spec, job(1).spec]
    found = lacks(needs, count_offers(frozenset({Need.CHECKPOINT, Need.PROGRESS, Need.RESIZE}), jobs))
    assert [(lack.need, lack.jobs) for lack in found] == [(Need.PROGRESS, 2), (Need.CHECKPOINT, 1), (Need.SHARE, 0)]
    assert str(found[2]) == "no share: every job has its GPUs to itself"
    assert str(Lack(Need.PROGRESS, "x", 2)) == "no progress (2 of the jobs do not offer it): x"


def test_nothing_is_missing_where_everything_is_offered() -> None:
    assert lacks(ALL, Offer(ALL)) == []
