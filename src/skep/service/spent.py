"""How long jobs have run and waited, and the GPU time they have had: sums over their attempts, with those that run now.

Time in which several tasks of a job run at once counts once; GPU time counts for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from skep.service.values import Json

if TYPE_CHECKING:
    from skep.service.store import Store, StoredJob

_PIECES = """SELECT job, gpus, start_s, end_s, {end} AS until_s,
    max({end}) OVER (PARTITION BY job ORDER BY start_s, task, launch
        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_s
    FROM attempts WHERE start_s IS NOT NULL AND job"""
_END = "coalesce(end_s, (SELECT finish_s FROM jobs AS own WHERE own.seq = attempts.job), {now})"
_RAN = "sum(max(until_s - max(start_s, coalesce(before_s, start_s)), 0))"


def ran_column(now: str) -> str:
    """Seconds that a job of the table `jobs` has run, as a term of a query; `now` is a term too. The attempts of a gang
    follow each other, so that the common case is a plain sum, which is several times faster."""
    end = _END.format(now=now)
    of_gang = f"SELECT sum(max({end} - start_s, 0)) FROM attempts WHERE start_s IS NOT NULL AND job = jobs.seq"
    of_tasks = f"SELECT {_RAN} FROM ({_pieces(now)} = jobs.seq)"
    first = "SELECT task FROM attempts WHERE job = jobs.seq LIMIT 1"
    return f"coalesce(CASE WHEN attempts = 0 THEN 0 WHEN ({first}) = '' THEN ({of_gang}) ELSE ({of_tasks}) END, 0)"


def _pieces(now: str) -> str:
    return _PIECES.format(end=_END.format(now=now))


class Spent(msgspec.Struct, frozen=True):
    ran_s: float = 0.0
    gpu_s: float = 0.0
    held_gpus: float | None = None
    """GPUs of the attempts that run now; None: none runs."""


NOTHING = Spent()


def spent(store: Store, jobs: Iterable[int], now_s: float) -> dict[int, Spent]:
    """By number of the job, for those that have started."""
    query = f"""SELECT job, {_RAN}, sum(gpus * max(until_s - start_s, 0)), sum(iif(end_s IS NULL, gpus, NULL))
        FROM ({_pieces(":now")} IN (SELECT value FROM json_each(:jobs))) GROUP BY job"""
    rows = store.reader.execute(query, {"now": now_s, "jobs": msgspec.json.encode(list(jobs))})
    return {job: Spent(ran_s, gpu_s, held_gpus) for job, ran_s, gpu_s, held_gpus in rows}


def shown_spent(row: StoredJob, had: Spent, now_s: float) -> Json:
    """As the API shows it; `at_s` is the time at which it is true."""
    until_s = now_s if row.finish_s is None else row.finish_s
    return {
        "waited_s": round(max(until_s - row.submit_s - had.ran_s, 0.0), 3),
        "ran_s": round(had.ran_s, 3),
        "service_gpu_s": round(had.gpu_s, 3),
        "held_gpus": had.held_gpus if row.finish_s is None else None,
        "at_s": now_s,
    }
