"""The state of a server, followed by another process: read from its store, which is never written."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from skep.core.needs import Need
from skep.core.state import State
from skep.core.weights import EQUAL, Weights
from skep.service.copy import KeptCopy
from skep.service.files import NAME
from skep.service.planning import Ground
from skep.service.progress import Measure, PresentFigures, nobody_measured
from skep.service.recover import fold_since, recover
from skep.service.store import Store, StoredJob


class ReadOnlyStore(Store):
    """The store of a running server, through a connection that cannot write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5.0)
        self.log_seq = 0

    @property
    def reader(self) -> sqlite3.Connection:
        return self.db

    def refresh(self) -> None:
        self.log_seq = self._last_entry()

    def drop_snapshots(self, seqs: list[int]) -> None:
        """Left to the server."""

    def close(self) -> None:
        self.db.close()


class Followed:
    """The first call of `catch_up` recovers the state as a server would; later ones fold what was logged since."""

    def __init__(
        self,
        data: Path,
        measure: Measure = nobody_measured,
        offers: frozenset[Need] = frozenset(Need),
        weights: Weights = EQUAL,
    ) -> None:
        self.store = ReadOnlyStore(data / NAME)
        self.figures = PresentFigures(measure)
        self.offers = offers
        self.weights = weights
        self.kept: KeptCopy | None = None
        self.seq = 0
        """The last entry that the state has."""
        self.names: dict[str, str] = {}
        """What owners call their jobs, by id."""
        self._named = 0

    def catch_up(self) -> KeptCopy:
        """In one short read, so that the state and the rows are of the same moment."""
        store = self.store
        store.db.execute("BEGIN")
        try:
            store.refresh()
            state, ground = self._recovered() if self.kept is None else self._folded(self.kept)
            self.kept = KeptCopy(state, ground, {str(row.seq): row for row in self._open_rows()})
            self._read_names(state)
        finally:
            store.db.execute("COMMIT")
        self.seq = store.log_seq
        return self.kept

    def _recovered(self) -> tuple[State, Ground]:
        state, ground = recover(self.store, self.figures)
        ground.offers, ground.weights = self.offers, self.weights
        return state, ground

    def _folded(self, kept: KeptCopy) -> tuple[State, Ground]:
        fold_since(self.store, self.seq, kept.state, kept.ground, self.figures)
        return kept.state, kept.ground

    def _open_rows(self) -> list[StoredJob]:
        return [row for row, _ in self.store.open_requests()]

    def _read_names(self, state: State) -> None:
        rows = self.store.db.execute("SELECT seq, name FROM jobs WHERE seq > ? ORDER BY seq", (self._named,))
        for self._named, name in rows:
            self.names[str(self._named)] = name
        if len(self.names) > 2 * len(state.jobs) + 1000:  # the server has deleted old jobs
            self.names = {job_id: name for job_id, name in self.names.items() if job_id in state.jobs}
