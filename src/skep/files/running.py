"""Servers of this machine: the file each leaves in its data folder, and the list of folders by which clients find
them."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from pathlib import Path

import msgspec

from skep.files.text import write_aside


class RunningProcess(msgspec.Struct, frozen=True):
    """The content of `DATA/server.json` of a running server."""

    pid: int
    url: str


def user_folder(variable: str, *fallback: str) -> Path:
    """Skep's folder of one kind (data, state, configuration) in the home of this user, by the XDG rules."""
    base = os.environ.get(variable, "")
    # A relative path must be ignored.
    return (Path(base) if base.startswith("/") else Path.home().joinpath(*fallback)) / "skep"


def default_data() -> Path:
    return user_folder("XDG_DATA_HOME", ".local", "share")


def read_running(data: Path) -> RunningProcess | None:
    try:
        return msgspec.json.decode((data / "server.json").read_bytes(), type=RunningProcess)
    except (OSError, msgspec.DecodeError):
        return None


def is_locked(data: Path) -> bool:
    """True if a server runs on this folder."""
    try:
        lock = os.open(data / "lock", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def remember(data: Path) -> None:
    """Note the folder of a server that starts, for commands that name none. Without a home there is no list."""
    with contextlib.suppress(OSError):
        _list().mkdir(mode=0o700, parents=True, exist_ok=True)
        write_aside(_entry(data), str(data))


def forget(data: Path) -> None:
    with contextlib.suppress(OSError):
        _entry(data).unlink(missing_ok=True)


def servers_here() -> dict[Path, RunningProcess]:
    """The running servers by data folder, the default one first."""
    folders = [default_data()]
    with contextlib.suppress(OSError):
        folders += sorted(Path(entry.read_text("utf-8")) for entry in _list().iterdir())
    found = {}
    for folder in folders:
        running = read_running(folder) if folder.is_absolute() and is_locked(folder) else None
        if running is not None:
            found[folder] = running
    return found


def _list() -> Path:
    return user_folder("XDG_STATE_HOME", ".local", "state") / "servers"


def _entry(data: Path) -> Path:
    return _list() / hashlib.sha256(str(data).encode()).hexdigest()[:16]
