"""Detects that open files were deleted or replaced.

Writes into a file that was deleted, or whose folder was replaced or unmounted, are lost without an error: the file
exists without a name until it is closed.
"""

from __future__ import annotations

import os
from pathlib import Path

from skep.core.errors import SkepError


class Gone(SkepError):
    """The open files are not those that the next start will find."""


class Anchor:
    def __init__(self, paths: list[Path]) -> None:
        self._known = {path: identity(path) for path in paths}

    def check(self) -> None:
        for path, known in self._known.items():
            if identity(path) != known:
                raise Gone(f"{path} was deleted, replaced or unmounted while it was in use")


def identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
