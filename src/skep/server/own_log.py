"""The server's own log under `skep up -d`: `server.log` in the data folder, and one older part of it.

Standard output and standard error are that file. When it has grown too large it is renamed and both continue in a new
one, so that no line is lost, whichever part of the process writes it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

NAME = "server.log"
SIZE_MAX = 8 << 20
LOOK_S = 5.0

log = logging.getLogger("skep")


async def keep_small(folder: Path) -> None:
    """Runs as long as the server; does nothing if its output goes elsewhere."""
    while True:
        await asyncio.sleep(LOOK_S)
        try:
            go_on_anew(folder)
        except Exception as error:  # it is tried again
            log.warning("%s cannot be rotated: %s", folder / NAME, error)


def go_on_anew(folder: Path) -> None:
    """Only if standard error is a log that is too large."""
    path = folder / NAME
    if not path.exists() or not os.path.samestat(path.stat(), os.fstat(2)) or path.stat().st_size <= SIZE_MAX:
        return
    fresh = folder / f"{NAME}.new"
    made = os.open(fresh, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        set_aside(folder)
        fresh.rename(path)
        for number in (1, 2):
            os.dup2(made, number)
    finally:
        os.close(made)


def set_aside(folder: Path) -> None:
    """A log that is too large becomes the older part, which replaces the previous one."""
    path = folder / NAME
    if path.exists() and path.stat().st_size > SIZE_MAX:
        path.replace(folder / f"{NAME}.1")
