"""The umask: what a server makes is for its account alone, whatever umask it is started with."""

from __future__ import annotations

import os

PRIVATE = 0o077
OTHERS_WRITE = 0o022


def _read() -> int:
    umask = os.umask(PRIVATE)
    os.umask(umask)
    return umask


STARTED_WITH = _read() & PRIVATE
"""The umask that this process began with; its jobs get it too. An account keeps its own rights: without them a program
cannot even read what it has just written."""


def make_above(folder: os.PathLike[str]) -> None:
    """Make the folders above this one as the umask says, but never so that others can replace what is in them. From
    then on the process makes private files."""
    os.umask(STARTED_WITH | OTHERS_WRITE)
    try:
        os.makedirs(os.path.dirname(os.fspath(folder)), exist_ok=True)
    finally:
        os.umask(PRIVATE)
