"""How often forecasts held: some are kept in a small database, and judged when their jobs start and end."""

from __future__ import annotations

import os
import sqlite3
import statistics
from pathlib import Path

from skep.core.errors import InputError
from skep.service.foreseen import Foresight, Judged, Likely
from skep.service.store import Store

NAME = "forecasts.db"
EVERY_S = 3600.0
"""One forecast of a job is kept in this time."""
ROWS_MAX = 20_000
"""The oldest are deleted first."""
TABLE = """CREATE TABLE IF NOT EXISTS forecasts (job INTEGER NOT NULL, what TEXT NOT NULL, made_s REAL NOT NULL,
    p10_s REAL, p50_s REAL, p90_s REAL, until_s REAL NOT NULL, lengths TEXT NOT NULL, came_s REAL, held INTEGER,
    PRIMARY KEY (job, what, made_s)) WITHOUT ROWID"""
STARTED = "SELECT min(start_s) FROM attempts WHERE job=? AND start_s > ?"
ENDED = "SELECT finish_s FROM jobs WHERE seq=?"


class Calibration:
    """Forecasts and what became of them, in the data folder of a server; only the follower writes there."""

    def __init__(self, data: Path) -> None:
        path = data / NAME
        try:
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600))
            self.db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            self.db.execute("PRAGMA journal_mode=WAL")
            self.db.execute("PRAGMA synchronous=NORMAL")
            self.db.execute(TABLE)
            last = self.db.execute("SELECT job, what, max(made_s) FROM forecasts GROUP BY job, what")
            self._kept = {(job, what): made_s for job, what, made_s in last}
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot be used: {error}", hint="delete it; a new one is made") from error

    def close(self) -> None:
        self.db.close()

    def keep(self, made: Foresight) -> None:
        """Of every job that has none of the last hour."""
        rows = []
        for job_id, found in made.jobs.items():
            for what, times in (("start", found.start), ("end", found.end)):
                last_s = self._kept.get((int(job_id), what))
                if times is not None and (last_s is None or made.made_s - last_s >= EVERY_S):
                    self._kept[int(job_id), what] = made.made_s
                    known = (times.p10_s, times.p50_s, times.p90_s)
                    rows.append((int(job_id), what, made.made_s, *known, made.until_s, found.lengths))
        self.db.execute("BEGIN")
        self.db.executemany("INSERT OR REPLACE INTO forecasts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)", rows)
        oldest = "SELECT made_s FROM forecasts ORDER BY made_s DESC LIMIT 1 OFFSET ?"
        self.db.execute(f"DELETE FROM forecasts WHERE made_s <= ({oldest})", (ROWS_MAX,))
        self.db.execute("COMMIT")

    def judge(self, store: Store, now_s: float) -> None:
        """Those whose time has come, or that reach no further. A start that is not needed any more, because the job
        ended before it, is not judged."""
        query = "SELECT job, what, made_s, p10_s, p50_s, p90_s, until_s FROM forecasts WHERE held IS NULL"
        self.db.execute("BEGIN")
        for job, what, made_s, *times, until_s in self.db.execute(query).fetchall():
            ended = store.db.execute(ENDED, (job,)).fetchone()
            came_s = store.db.execute(STARTED, (job, made_s)).fetchone()[0] if what == "start" else None
            if ended is not None and what == "end":
                came_s = ended[0]
            if ended is None or (came_s is None and ended[0] is not None):
                self.db.execute("DELETE FROM forecasts WHERE job=? AND what=? AND made_s=?", (job, what, made_s))
                self._kept.pop((job, what), None)
            elif came_s is not None or now_s > until_s:
                held = holds(Likely(*times), until_s, came_s)
                values = (came_s, held, job, what, made_s)
                self.db.execute("UPDATE forecasts SET came_s=?, held=? WHERE job=? AND what=? AND made_s=?", values)
                if ended[0] is not None:  # nothing more is forecast of it
                    for each in ("start", "end"):
                        self._kept.pop((job, each), None)
        self.db.execute("COMMIT")

    def judged(self) -> list[Judged]:
        query = "SELECT what, lengths, held, made_s, p50_s, came_s FROM forecasts WHERE held IS NOT NULL"
        held: dict[tuple[str, str], list[int]] = {}
        errors: dict[tuple[str, str], list[float]] = {}
        for what, lengths, is_held, made_s, p50_s, came_s in self.db.execute(query):
            held.setdefault((what, lengths), []).append(is_held)
            if p50_s is not None and came_s is not None and came_s > made_s:
                errors.setdefault((what, lengths), []).append(abs(p50_s - came_s) / (came_s - made_s))
        return [
            Judged(*key, len(each), sum(each), round(statistics.median(errors[key]), 4) if key in errors else None)
            for key, each in sorted(held.items())
        ]


def holds(times: Likely, until_s: float, came_s: float | None) -> bool:
    """`came_s` None: it has not come before the end of the forecast."""
    is_later = came_s is None or came_s > until_s
    if is_later:
        return times.p90_s is None
    assert came_s is not None
    return times.p10_s is not None and times.p10_s <= came_s and (times.p90_s is None or came_s <= times.p90_s)
