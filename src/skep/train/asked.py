"""Requests of the scheduler to a running job: to save now, and settings to apply. They are files in the task folder."""

from __future__ import annotations

import json
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

FILE = "asked.json"
EVERY_S = 0.5
"""The time between two checks: a step must not pay for a rare request."""


class Asked:
    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder is not None else None
        self._looked_s = -EVERY_S
        self._stamp = 0
        self._saved = 0
        self._save = 0
        self.number = 0
        """The number of the last requested settings."""
        self.settings: dict[str, Any] = {}

    def look(self) -> bool:
        """True if a checkpoint was requested that has not been taken."""
        now_s = time.monotonic()
        if self._path is not None and now_s - self._looked_s >= EVERY_S:
            self._looked_s = now_s
            try:
                stamp = self._path.stat().st_mtime_ns
                if stamp != self._stamp:
                    self._take(json.loads(self._path.read_bytes()))
                    self._stamp = stamp
            except (OSError, ValueError, KeyError, TypeError):
                pass  # There is none, or it is being replaced.
        return self._save > self._saved

    def _take(self, found: dict[str, Any]) -> None:
        self._save, self.number, self.settings = int(found["save"]), int(found["tune"]), dict(found["settings"])

    def note_saved(self) -> None:
        self._saved = self._save
