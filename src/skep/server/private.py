"""Ensures that only the server can read its data folder, which contains tokens, commands and environments of jobs."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from skep.core.errors import InputError

OTHERS = 0o077
OTHERS_WRITE = 0o022
NEVER_SHARED = ("tokens.db",)
"""No version made these readable for others. The other files may be from an earlier version, where only the folder was
closed."""


def check_private(folder: Path) -> None:
    """Refuse a folder that belongs to another account or that others can read. An empty one is made private."""
    status = folder.stat()
    must_own(folder, status, "the data folder ")
    if status.st_mode & OTHERS:
        if any(folder.iterdir()):
            raise InputError(
                f"the data folder {folder} is open to other accounts (mode {stat.S_IMODE(status.st_mode):04o})",
                hint=f"`chmod 700 {folder}`, and if others may have read it, make new tokens",
            )
        folder.chmod(0o700)
    for entry in folder.iterdir():
        try:
            check_entry(entry)
        except FileNotFoundError:
            continue  # A file of a server that is just stopping, or a dangling link.


def check_entry(path: Path) -> None:
    status = path.stat()
    must_own(path, status)
    mode = stat.S_IMODE(status.st_mode)
    if mode & OTHERS_WRITE or (mode & OTHERS and path.name in NEVER_SHARED):
        raise InputError(
            f"{path} is open to other accounts (mode {mode:04o})",
            hint=f"check whether it was changed, then `chmod {'700' if path.is_dir() else '600'} {path}`",
        )
    if mode & OTHERS:
        path.chmod(mode & ~OTHERS)


def must_own(path: Path, status: os.stat_result, what: str = "") -> None:
    me = os.geteuid()
    if status.st_uid != me:
        owner = account_name(status.st_uid)
        raise InputError(
            f"{what}{path} belongs to {owner}, and this is {account_name(me)}",
            hint=f"do it as {owner}, or give it away: `chown -R {account_name(me)} {path}`",
        )


def account_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user number {uid}"
