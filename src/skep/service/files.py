"""The store as files in the data folder: whether it exists, still exists, and belongs to the jobs."""

from __future__ import annotations

import os
from pathlib import Path

from skep.core.errors import InputError
from skep.service.store import Store

NAME = "skep.db"
JOURNALS = ("-wal", "-shm", "-journal")
PUT_BACK = "`skep restore FILE` puts a backup in its place; `skep up --new` begins anew and ends what runs"


def open_store(data: Path, *, is_new: bool = False) -> Store:
    """The store of a data folder. `is_new`: the caller knows that the store is gone and starts a new one."""
    path = data / NAME
    is_there = size_of(path) > 0
    if is_new and is_there:
        raise InputError(f"{path} is a store already, --new is for a folder without one", hint="use another --data")
    if not is_there and not is_new:
        refuse_lost(path)
    if not is_there:
        # SQLite would delete them; an admin may still recover data from them.
        for journal in (path.with_name(f"{NAME}{ending}") for ending in JOURNALS):
            if journal.exists():
                journal.replace(journal.with_name(f"{journal.name}.lost"))
    return Store(path)


def refuse_lost(path: Path) -> None:
    """Refuse if jobs have left files but their store is gone: a new store would end those that run."""
    jobs = path.parent / "jobs"
    count = len(os.listdir(jobs)) if jobs.is_dir() else 0
    how = "is empty" if path.exists() else "is missing"
    if count:
        files = f"files of {count:,} job{'s' if count > 1 else ''}"
        raise InputError(f"{path} {how}, but there are {files} in {jobs}", hint=PUT_BACK)
    if size_of(path.with_name(f"{NAME}-wal")):
        raise InputError(f"{path} {how}, but its journal {NAME}-wal is there", hint=PUT_BACK)


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise InputError(f"{path}: cannot be used: {error.strerror}") from None
