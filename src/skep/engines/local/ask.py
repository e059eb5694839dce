"""Requests to a running job, through a file that `skep.train` reads between two steps.

It lies in the task's own folder, where the task may have put anything: links are not followed and content is not
trusted.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import msgspec

from skep.core.actions import Checkpoint, Setting, Tune
from skep.files.untrusted import CAREFULLY, decode_as, read_small

FILE, ASIDE = "asked.json", ".asked.new"


class AskedFile(msgspec.Struct, frozen=True):
    save: int = 0
    """The number of the last requested checkpoint, which grows also across restarts of the server."""
    tune: int = 0
    settings: dict[str, Setting] = {}


def ask(own: Path, action: Checkpoint | Tune) -> None:
    before = decode_as(read_small(own / FILE), AskedFile) or AskedFile()
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if isinstance(action, Tune):
        asked = AskedFile(before.save, now, {**before.settings, **action.settings})
    else:
        asked = AskedFile(now, before.tune, before.settings)
    put(own, msgspec.json.encode(asked))


def put(own: Path, content: bytes) -> None:
    """Replace the file, whatever is there: a link is replaced, not followed."""
    folder = os.open(own, os.O_RDONLY | os.O_DIRECTORY | CAREFULLY)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ASIDE, dir_fd=folder)
        fd = os.open(ASIDE, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CAREFULLY, 0o644, dir_fd=folder)
        with open(fd, "wb") as file:
            os.fchmod(fd, 0o644)  # The task may belong to another account.
            file.write(content)
        os.rename(ASIDE, FILE, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)
