"""Puts a backup in the place of the store: the backup is checked first, and the present store is kept."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from skep.core.errors import InputError
from skep.service.check import check_open_jobs, check_rows, damaged
from skep.service.files import JOURNALS, NAME
from skep.service.recover import DAMAGE
from skep.service.store import Store
from skep.service.writer import Writer

NAME_ONE = "name a file that `skep backup` made"
MAGIC = b"SQLite format 3\0"


def put_back(file: Path, data: Path, stamp: str) -> tuple[Path | None, int]:
    """Where the previous store is kept now (None: there was none), and how many jobs are open in the new one.

    Nothing in the folder is changed before all checks have passed.
    """
    store = data / NAME
    copy = data / f".{NAME}.restore"
    try:
        if store.exists() and os.path.samefile(file, store):
            raise InputError(f"{file} is the store itself", hint=NAME_ONE)
        remove(copy)
        take_copy(file, copy)
        open_jobs = check_whole(copy, file)
        sync(copy)
        kept = keep_aside(store, stamp)
        copy.replace(store)
        sync(data)
    except OSError as error:
        raise InputError(f"{error.filename or file}: cannot be restored: {error.strerror}") from None
    finally:
        remove(copy)
    return kept, open_jobs


def take_copy(file: Path, copy: Path) -> None:
    """The copy is checked and used: others may change the file meanwhile."""
    if not stat.S_ISREG(os.stat(file).st_mode):
        raise InputError(f"{file} is not a file", hint=NAME_ONE)
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as content:
        status = os.fstat(content.fileno())
        if status.st_size == 0:
            raise InputError(f"{file} is empty", hint=NAME_ONE)
        if content.read(len(MAGIC)) != MAGIC:
            raise InputError(f"{file} is not a store of Skep", hint=NAME_ONE)
        free = shutil.disk_usage(copy.parent).free
        if status.st_size > free:
            raise InputError(f"{file} has {status.st_size:,} bytes, and {free:,} are free in {copy.parent}")
        content.seek(0)
        with open(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as target:
            shutil.copyfileobj(content, target)


def check_whole(copy: Path, file: Path) -> int:
    """Raises, naming the file, unless a server could start from it. Returns the number of open jobs."""
    try:
        store = Store(copy)
        try:
            if store.log_seq == 0:
                raise InputError(f"{copy} holds nothing", hint=NAME_ONE)
            if not check_rows(store, limit_s=float("inf")):
                raise damaged(store, "it could not be checked")
            writer = Writer(store, 0.0)
            check_open_jobs(store, writer.state, writer.book)
            return len(writer.book.records)
        finally:
            store.close()
    except InputError as error:
        raise InputError(str(error).replace(str(copy), str(file)), hint="nothing was changed") from error
    except DAMAGE as error:
        raise InputError(f"{file} is damaged: {error}", hint="nothing was changed") from error


def keep_aside(store: Path, stamp: str) -> Path | None:
    """The store first: a journal alone is never taken for a store, but a store without its journal would be."""
    if not any(store.with_name(f"{NAME}{ending}").exists() for ending in ("", *JOURNALS)):
        return None
    kept = store.with_name(f"skep-before-{stamp}.db")
    if kept.exists():
        raise InputError(f"{kept} already exists", hint="try again in a second")
    for ending in ("", *JOURNALS):
        part = store.with_name(f"{NAME}{ending}")
        if part.exists():
            part.replace(kept.with_name(f"{kept.name}{ending}"))
    return kept


def remove(copy: Path) -> None:
    for ending in ("", *JOURNALS):
        copy.with_name(f"{copy.name}{ending}").unlink(missing_ok=True)
    for older in copy.parent.glob(f"{copy.name}.format-*"):
        older.unlink()


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
