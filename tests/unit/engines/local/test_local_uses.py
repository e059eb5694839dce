"""Which job must end when jobs take too much of the disk."""

from __future__ import annotations

from skep.engines.local.uses import GIB, JobUse, Uses
from skep.jobs.request import LimitRules, Limits


def uses(all_bytes: int | None = None, **limits: float) -> Uses:
    return Uses(LimitRules(Limits(**limits)), all_bytes)  # type: ignore[arg-type]


def running(books: Uses, job_id: str, size: float, user: str = "ann", *, is_new: bool = True) -> JobUse:
    use = books.add(job_id, user, "default")
    books.start(use, is_new=is_new)
    books.measure(use, int(size * GIB))
    return use


def ended(books: Uses, job_id: str, size: float, user: str = "ann") -> JobUse:
    use = books.add(job_id, user, "default")
    books.measure(use, int(size * GIB))
    return use


def names(books: Uses) -> list[str]:
    return [each.job_id for each in books.overruns()]


def test_a_job_beyond_its_limit_is_named_once() -> None:
    books = uses(job_gib=1)
    running(books, "1", 1.0)
    running(books, "2", 1.5)
    (found,) = books.overruns()
    assert (found.job_id, found.reason) == ("2", "its files take 1.5 GiB of the disk, and 1 GiB are allowed")
    assert names(books) == []


def test_tasks_that_start_one_by_one_are_one_job() -> None:
    books = uses(job_gib=1)
    ended(books, "1/w-0", 0.5)
    running(books, "1/w-1", 0.4)
    assert names(books) == []
    running(books, "1/w-2", 0.2)
    assert sorted(names(books)) == ["1/w-1", "1/w-2"]


def test_of_the_jobs_of_a_user_the_one_that_grew_most() -> None:
    books = uses(disk_gib=10)
    ended(books, "1", 9)
    running(books, "2", 0.3)
    running(books, "3", 0.5)
    running(books, "4", 0.9, is_new=False)  # it was as large before
    running(books, "5", 50, user="bob")
    found = books.overruns()
    assert {each.job_id: each.reason for each in found} == {
        "3": "the files of all jobs of user ann take 10.7 GiB of the disk, and 10 GiB are allowed; "
        "those of this job grew most",
        "5": "the files of all jobs of user bob take 50 GiB of the disk, and 10 GiB are allowed; "
        "those of this job grew most",
    }


def test_who_does_not_grow_is_left_alone() -> None:
    """Files stay: ending a job that only waits would free nothing."""
    books = uses(all_bytes=GIB)
    ended(books, "1", 5)
    still = running(books, "2", 1, is_new=False)
    assert names(books) == []
    books.measure(still, still.bytes + 1000)
    assert names(books) == []
    books.measure(still, still.bytes + (2 << 20))
    assert names(books) == ["2"]


def test_growth_of_an_hour_ago_is_forgotten() -> None:
    books = uses(all_bytes=6 * GIB)
    once = running(books, "1", 5)
    books.begin_period()
    books.begin_period()
    now = running(books, "2", 1.5)
    assert (once.grown, now.grown) == (0, int(1.5 * GIB))
    assert names(books) == ["2"]


def test_after_one_has_ended_the_others_must_grow_again() -> None:
    books = uses(all_bytes=GIB)
    first, second = running(books, "1", 3), running(books, "2", 2)
    assert names(books) == ["1"]
    books.end(first)
    assert names(books) == []
    books.measure(second, 3 * GIB)
    assert names(books) == ["2"]


def test_totals_follow_what_is_deleted() -> None:
    books = uses()
    for number in range(3):
        ended(books, str(number), 1)
    running(books, "3/w-0", 1)
    books.forget("1")
    books.forget("3")
    assert books.totals == {
        ("job", "0"): GIB,
        ("job", "2"): GIB,
        ("user", "ann"): 2 * GIB,
        ("VC", "default"): 2 * GIB,
        ("all", ""): 2 * GIB,
    }
    assert sorted(books.jobs) == ["0", "2"]
    assert not books.running
