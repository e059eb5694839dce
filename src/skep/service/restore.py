"""Puts a backup in the place of the store: the backup is checked first, and the present store is kept."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from skep.core.errors import InputError
from skep.service.check import check_open_jobs, check_rows, damaged
from skep.service.files import JOURNALS, NAME, size_of
from skep.service.recover import DAMAGE
from skep.service.store import Store
from skep.service.writer import Writer


def put_back(file: Path, data: Path, stamp: str) -> tuple[Path | None, int]:
    """Where the previous store is kept now (None: there was none), and how many jobs are open in the new one.

    Nothing in the folder is changed before all checks have passed.
    """
    store = data / NAME
    copy = data / f".{NAME}.restore"
    try:
        if store.exists() and os.path.samefile(file, store):
            raise InputError(f"{file} is the store itself", hint="name a file that `skep backup` made")
        remove(copy)
        os.close(os.open(copy, os.O_CREAT | os.O_WRONLY, 0o600))
        shutil.copyfile(file, copy)
        if size_of(file) == 0:
            raise InputError(f"{file} is empty", hint="name a file that `skep backup` made")
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


def check_whole(copy: Path, file: Path) -> int:
    """Raises, naming the file, unless a server could start from it. Returns the number of open jobs."""
    try:
        store = Store(copy)
        try:
            if store.log_seq == 0:
                raise InputError(f"{copy} holds nothing", hint="name a file that `skep backup` made")
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
