"""A task that the turn keeper can pause as a whole: by a control group, or by signals to every process. Standard
library only."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from skep.engines.local.disk import SAFELY
    from skep.engines.local.processes import (
        FREEZE,
        TURN,
        began,
        cpu_below,
        family,
        gather,
        listed,
        read,
        send,
        state_of,
        thaw,
        write,
    )
else:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # The interpreter runs isolated, without this folder.
    from disk import SAFELY
    from processes import FREEZE, TURN, began, cpu_below, family, gather, listed, read, send, state_of, thaw, write

ROUNDS_MAX = 20
STOPPED = b"TtZX"


class PausableTask:
    """One task of a member, which can be paused as a whole."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.path: str = told["path"]
        self.own: str = told["own"]
        self.shim: int = told["shim"]
        self.shim_began = began(self.shim)
        freezer: str = told["freezer"]
        self.inner = f"{freezer}/{TURN}"
        self.is_gathered = bool(freezer and self.shim_began) and gather(freezer, self.shim)

    @property
    def has_left(self) -> bool:
        """True if its shim has exited. Its files are not used, because the task could have written them."""
        return not self.shim_began or began(self.shim) != self.shim_began

    def order(self, lease_s: float, epoch: int) -> bool:
        """Tell the shim for how long the task may be paused. True if the shim received it."""
        try:
            fd = os.open(f"{self.path}/control", os.O_WRONLY | SAFELY)
        except OSError:
            return False
        try:
            is_fifo = stat.S_ISFIFO(os.fstat(fd).st_mode)  # Or what the task has put there.
            return is_fifo and os.write(fd, f"turns {lease_s:g} {epoch}\n".encode()) > 0
        except OSError:
            return False
        finally:
            os.close(fd)

    def pause(self) -> None:
        if self.is_gathered:
            with contextlib.suppress(OSError):
                write(f"{self.inner}/{FREEZE}", b"1")
        else:
            self._signal(signal.SIGSTOP)

    @property
    def stands(self) -> bool:
        """True if all its processes have stopped: a process that waits for a CPU must run once more to do so."""
        if self.is_gathered:
            return b"frozen 0" not in read(f"{self.inner}/cgroup.events")
        return all(state_of(pid) in STOPPED for pid in self._processes())

    def go_on(self) -> None:
        if self.is_gathered:
            thaw(self.inner)
        elif not self._is_suspended():
            self._signal(signal.SIGCONT)
            if self._is_suspended():  # Its shim has stopped it meanwhile.
                self._signal(signal.SIGSTOP)

    def _is_suspended(self) -> bool:
        """True if it is suspended by the scheduler: then only its shim continues it."""
        return os.path.exists(f"{self.path}/suspended")

    def _signal(self, number: int) -> None:
        """Signal every process until no new one appears: some may fork before they stop."""
        seen: set[int] = set()
        for _ in range(ROUNDS_MAX):
            found = [pid for pid in self._processes() if pid not in seen]
            if not found:
                return
            for pid in found:
                send(pid, number)
            seen.update(found)

    def _processes(self) -> list[int]:
        """None if the shim has died: its number may belong to another process now."""
        return [] if self.has_left else family(self.shim)

    def cpu_s(self) -> float:
        for line in read(f"{self.inner}/cpu.stat").splitlines() if self.is_gathered else ():
            if line.startswith(b"usage_usec"):
                return int(line.split()[1]) / 1e6
        return cpu_below(self.shim)

    def yield_cpu(self, is_idle: bool) -> bool:
        """Let every thread of it run only on idle CPUs, or normally again. True if that was possible."""
        policy = os.SCHED_IDLE if is_idle else os.SCHED_OTHER
        try:
            for pid in self._processes():
                for thread in listed(f"/proc/{pid}/task"):
                    with contextlib.suppress(ProcessLookupError):
                        os.sched_setscheduler(int(thread), policy, os.sched_param(0))
        except OSError:
            return False
        return True
