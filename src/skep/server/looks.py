"""Checks at submission that files named by a job exist on the server's machine, so that jobs do not fail later.

A job that needs others may use files that these create, so it is not checked. Files may be on a slow or hanging disk,
so results are cached, and each check has a thread of its own that is left behind after a while: then the file is
assumed to exist.
"""

from __future__ import annotations

import os
import queue
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC
from skep.jobs.request import Request, TaskRole

BELIEVED_S = 30.0
KEPT = 10_000
WAIT_S = 5.0
AT_ONCE = 16
"""Checks at the same time, those included that hang."""

Look = tuple[str, ...]
"""A folder; or a program, the PATH in which it is searched, and the folder in which it is run."""


class Looks:
    """The results, and how long they are valid."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.found: dict[Look, float] = {}
        self._free = threading.Semaphore(AT_ONCE)

    def are_known(self, requests: list[Request]) -> bool:
        """True if all of this was checked recently enough."""
        now_s = self.clock()
        return all(self.found.get(look, 0.0) > now_s for look in looks_of(requests))

    def check(self, requests: list[Request]) -> None:
        """Raises for the first thing that does not exist. Returns in time, whatever the disk does."""
        said: queue.SimpleQueue[InputError | None] = queue.SimpleQueue()
        if not self._free.acquire(timeout=WAIT_S):
            return

        def look() -> None:
            try:
                self._check(requests)
                said.put(None)
            except InputError as error:
                said.put(error)
            finally:
                self._free.release()

        threading.Thread(target=look, name="look", daemon=True).start()
        try:
            error = said.get(timeout=WAIT_S)
        except queue.Empty:
            return
        if error is not None:
            raise error

    def _check(self, requests: list[Request]) -> None:
        now_s = self.clock()
        if len(self.found) > KEPT:
            self.found = {}
        for look in looks_of(requests):
            if self.found.get(look, 0.0) <= now_s:
                look_at(look)
                self.found[look] = now_s + BELIEVED_S


def looks_of(requests: list[Request]) -> dict[Look, None]:
    found: dict[Look, None] = {}
    for request in requests:
        if request.needs:
            continue
        if request.workdir:
            found[(request.workdir,)] = None
        for role in request.tasks.values():
            if role.argv:
                found[(role.argv[0], path_of(role), request.workdir)] = None
    return found


def path_of(role: TaskRole) -> str:
    return role.env.get("PATH", "") or os.environ.get("PATH", os.defpath)


def look_at(look: Look) -> None:
    if len(look) == 1:
        (folder,) = look
        if not is_folder(folder):
            hint = "workdir is a folder on the machine where jobs run"
            raise InputError(f"workdir {folder} does not exist", hint=hint)
        return
    program, path, workdir = look
    if "/" in program:
        file = os.path.join(workdir, program)
        if os.path.isabs(file) and not os.path.lexists(file) and is_folder(os.path.dirname(file)):
            raise InputError(f"command {program} does not exist", hint=f"looked for it in {workdir or '/'}")
    elif shutil.which(program, path=path) is None and shutil.which(program) is None:
        raise InputError(f"command {program} was not found", hint=f"PATH of the task is {path}")


def is_folder(path: str) -> bool:
    """What this account may not see is assumed to exist: the job's account may see it."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return True


def remarks(requests: list[Request], vcs: Callable[[], set[str]]) -> list[str]:
    """What is valid, but probably a mistake."""
    said = []
    twice = [name for name, count in Counter(request.name for request in requests).items() if count > 1]
    if twice:
        more = f" (and {len(twice) - 1:,} more names)" if len(twice) > 1 else ""
        said.append(f"several jobs are called {twice[0]}{more}: a name means the latest of them")
    named = {request.vc for request in requests} - {DEFAULT_VC}
    if named and vcs() <= {DEFAULT_VC}:
        said.append(f"this cluster has no virtual clusters: vc {min(named)} is kept as a label only")
    return said
