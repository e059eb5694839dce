"""Which server may act on a data folder: the one with the latest epoch, an increasing number in a file.

A server that was stopped or disconnected and returns finds that another has taken over. Shims read the file too.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from skep.core.ports import StaleEpoch
from skep.engines.local.disk import write_whole
from skep.files.untrusted import read_small


class Fence:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = 0

    @property
    def epoch(self) -> int:
        """The latest epoch; 0 if there is none. If the file cannot be read now, the latest one seen."""
        with contextlib.suppress(OSError):
            text = read_small(self.path, 20) or b""
            self._seen = max(self._seen, int(text) if text.isdigit() else 0)
        return self._seen

    def take(self, epoch: int) -> None:
        """Store a new epoch. It is durable when this returns."""
        self.check(epoch)
        write_whole(str(self.path), str(epoch), is_durable=True)

    def check(self, epoch: int) -> None:
        if epoch < (newer := self.epoch):
            raise StaleEpoch(epoch, newer)
