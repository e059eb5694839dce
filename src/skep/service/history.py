"""The numbers of the cluster over time, sampled four times a minute into a separate small database.

They are not needed for recovery, so they are not in the store: losing the last samples in a crash does no harm, and no
request waits for them to be written. Old samples are kept at larger intervals.
"""

from __future__ import annotations

import itertools
import logging
import math
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from skep.core.errors import InputError
from skep.service.present import Sample
from skep.service.sight import Sight
from skep.service.values import Json, SqlRow

EVERY_S = 15
DAY_S = 86400
STEPS = ((7200, EVERY_S), (2 * DAY_S, 60), (14 * DAY_S, 300), (10**12, 3600))
"""(age, interval) in seconds: samples younger than the age are kept at this interval."""
NICE_S = (30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 7 * 86400)
AUTO, MOST = 300, 2000
"""The number of steps of an answer: the usual one and the largest."""
THIN_EVERY_S = 3600.0
KNOWN_MAX = 32
COLUMNS = ("gpus", "used", "lent", "bad", "drained", "queue", "queue_gpus")
TABLE = f"""CREATE TABLE IF NOT EXISTS samples (at_s INTEGER NOT NULL, vc TEXT NOT NULL,
    {", ".join(f"{name} REAL NOT NULL" for name in COLUMNS)}, PRIMARY KEY (at_s, vc)) WITHOUT ROWID"""
WHOLE = ""
"""The cluster, in place of the name of a VC."""

log = logging.getLogger("skep")


class Samples:
    def __init__(self, path: Path, sample: Callable[[], Sample], clock: Callable[[], float], keep_s: float) -> None:
        self.path = path
        self._sample = sample
        self._clock = clock
        self._keep_s = keep_s
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known: dict[tuple[float, float, float], dict[str, dict[int, list[float]]]] = {}
        """What was read since the last sample."""
        self._db = self._open()

    def _open(self) -> sqlite3.Connection:
        """A file that cannot be read is set aside: nothing else depends on it."""
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            log.warning("%s cannot be used and is replaced by a new one: %s", self.path, error)
            self.path.replace(self.path.with_suffix(".damaged"))
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=5.0)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        db.execute(TABLE)
        return db

    # Writing ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._db.close()

    def _run(self) -> None:
        thin_at_s = 0.0
        while True:
            now_s = self._clock()
            try:
                self.add(now_s, self._sample())
                if now_s >= thin_at_s:
                    thin_at_s = now_s + THIN_EVERY_S
                    self.thin(now_s)
            except sqlite3.Error as error:  # a full disk; the store reports it too
                log.warning("the history was not written: %s", error)
            if self._closing.wait(EVERY_S - self._clock() % EVERY_S):
                return

    def add(self, at_s: float, now: Sample) -> None:
        begin_s = int(at_s // EVERY_S * EVERY_S)
        books = now.vcs.items()
        queue, queue_gpus = sum(book.pending for _, book in books), sum(book.pending_gpus for _, book in books)
        rows: list[SqlRow] = [(begin_s, WHOLE, now.gpus, now.used, now.lent, now.bad, now.drained, queue, queue_gpus)]
        rows += [
            (begin_s, name, book.gpus, book.used, book.borrowed, 0, 0, book.pending, book.pending_gpus)
            for name, book in books
        ]
        marks = ", ".join("?" * (2 + len(COLUMNS)))
        with self._lock:
            self._db.execute("BEGIN")
            self._db.executemany(f"INSERT OR REPLACE INTO samples VALUES ({marks})", rows)
            self._db.execute("COMMIT")
            self._known.clear()

    def thin(self, now_s: float) -> None:
        """Older samples are averaged over larger intervals; the oldest are deleted."""
        means = ", ".join(f"avg({name})" for name in COLUMNS)
        with self._lock:
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM samples WHERE at_s < ?", (now_s - self._keep_s,))
            for (age_s, _), (_, step_s) in itertools.pairwise(STEPS):
                before_s = int((now_s - age_s) // step_s * step_s)
                self._db.execute(
                    f"""INSERT OR REPLACE INTO samples SELECT at_s / :step * :step, vc, {means} FROM samples
                    WHERE at_s < :before AND at_s / :step IN (
                        SELECT at_s / :step FROM samples WHERE at_s < :before AND at_s % :step) GROUP BY 1, 2""",
                    {"step": step_s, "before": before_s},
                )
                self._db.execute("DELETE FROM samples WHERE at_s < ? AND at_s % ?", (before_s, step_s))
            self._db.execute("COMMIT")

    # Reading ----------------------------------------------------------------------------------------------------

    def read(self, since_s: float | None, until_s: float | None, step_s: float, *, by_vc: bool, sight: Sight) -> Json:
        now_s = self._clock()
        until_s = min(now_s, until_s if until_s is not None else now_s)
        since_s = until_s - DAY_S if since_s is None else max(since_s, now_s - self._keep_s)
        if since_s >= until_s:
            raise InputError("there is no time between since and until", hint="until is now, or earlier")
        step = step_of(now_s - since_s, until_s - since_s, step_s)
        begin = math.floor(since_s / step) * step
        count = math.ceil((until_s - begin) / step)
        bins = dict(self._bins(begin, math.ceil(until_s / EVERY_S) * EVERY_S, step))
        whole = bins.pop(WHOLE, {})
        seen = {name: found for name, found in sorted(bins.items()) if sight.sees(name)}
        if not sight.is_whole:
            whole = with_queues_of(whole, list(seen.values()))
        return {
            "since_s": begin,
            "until_s": until_s,
            "step_s": step,
            "t": [begin + number * step for number in range(count)],
            **series(whole, COLUMNS, count),
            "vcs": [vc_series(name, found, count) for name, found in seen.items()] if by_vc else [],
        }

    def _bins(self, begin_s: float, until_s: float, step_s: float) -> dict[str, dict[int, list[float]]]:
        """The means by VC and number of the step. They are cached until the next sample: dashboards request the same
        ones."""
        asked = (begin_s, until_s, step_s)
        with self._lock:
            if asked not in self._known:
                while len(self._known) >= KNOWN_MAX:
                    del self._known[next(iter(self._known))]
                self._known[asked] = self._read_bins(*asked)
            return self._known[asked]

    def _read_bins(self, begin_s: float, until_s: float, step_s: float) -> dict[str, dict[int, list[float]]]:
        means = ", ".join(f"round(avg({name}), 3)" for name in COLUMNS)
        rows = self._db.execute(
            f"""SELECT vc, CAST((at_s - ?) / ? AS INTEGER), {means} FROM samples
                WHERE at_s >= ? AND at_s < ? GROUP BY 1, 2""",
            (begin_s, step_s, begin_s, until_s),
        ).fetchall()
        found: dict[str, dict[int, list[float]]] = {}
        for vc, number, *values in rows:
            found.setdefault(vc, {})[number] = values
        return found


def step_of(age_s: float, span_s: float, asked_s: float) -> float:
    """At least twice the interval of samples of that age, so that a late sample leaves no gap."""
    kept_s = next(step_s for limit_s, step_s in STEPS if age_s <= limit_s)
    least = max(2 * kept_s if kept_s == EVERY_S else kept_s, span_s / MOST)
    wanted = asked_s or next((nice for nice in NICE_S if nice >= max(span_s / AUTO, least)), NICE_S[-1])
    return math.ceil(max(wanted, least) / kept_s) * kept_s


def series(bins: dict[int, list[float]], names: tuple[str, ...], count: int) -> dict[str, list[float | None]]:
    rows = [bins.get(number) for number in range(count)]
    return {
        name: [row[place] if row is not None else None for row in rows]
        for place, name in enumerate(COLUMNS)
        if name in names
    }


def vc_series(name: str, bins: dict[int, list[float]], count: int) -> Json:
    found = series(bins, ("gpus", "used", "lent", "queue"), count)
    found["borrowed"] = found.pop("lent")
    return {"name": name, **found}


def with_queues_of(whole: dict[int, list[float]], seen: list[dict[int, list[float]]]) -> dict[int, list[float]]:
    """All readers see the whole hardware, but only the queue of their VCs."""
    first = COLUMNS.index("queue")
    return {
        number: [*values[:first], *(sum(vc[number][at] for vc in seen if number in vc) for at in (first, first + 1))]
        for number, values in whole.items()
    }
