"""Reads the store of a server, running or not, through a copy: nothing in its folder is written or locked."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.core.state import State
from skep.service.files import NAME, size_of
from skep.service.planning import Ground
from skep.service.recover import DAMAGE, recover
from skep.service.store import Store, StoredJob

EXPECTED = "expected the data folder of a server, or a file that `skep backup` made"


class KeptCopy(msgspec.Struct):
    """The content of a store: the state after its last entry, and its open jobs by id, as their owners see them."""

    state: State
    ground: Ground
    rows: dict[str, StoredJob]


def read_copy(source: Path) -> KeptCopy:
    """Read a data folder or a backup."""
    path = source / NAME if source.is_dir() else source
    if not path.is_file() or not size_of(path):
        raise InputError(f"{path}: {'is empty' if path.is_file() else 'no such file'}, {EXPECTED}")
    with tempfile.TemporaryDirectory(prefix="skep-fork-") as folder:
        copy = Path(folder) / NAME
        try:
            copy_store(path, copy)
            return read_store(copy)
        except InputError as error:
            raise InputError(str(error).replace(str(copy), str(path)), hint=error.hint) from error
        except DAMAGE as error:
            raise InputError(f"{path} cannot be read as a store: {error}", hint=EXPECTED) from error


def copy_store(path: Path, copy: Path) -> None:
    # Without a journal no server has it open, and SQLite would leave an empty journal there.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    source = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=5.0)
    try:
        target = sqlite3.connect(copy)
        try:
            source.backup(target)
        finally:
            target.close()
    finally:
        source.close()


def read_store(path: Path) -> KeptCopy:
    store = Store(path)
    try:
        if store.log_seq == 0:
            raise InputError(f"{path} is empty", hint=EXPECTED)
        state, ground = recover(store)
        return KeptCopy(state, ground, {str(row.seq): row for row, _ in store.open_requests()})
    finally:
        store.close()
