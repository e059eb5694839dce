"""How a stop arrives (SIGTERM) and how a rank exits because of one."""

from __future__ import annotations

import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STOPPED = 143
"""Exit code of a process that exited because it was asked to: what a shell shows for a process ended by SIGTERM."""


class Stopped(SystemExit):
    """Raised out of the training loop once everything is saved, so that `finally` and `with` of the script still
    run."""

    def __init__(self) -> None:
        super().__init__(STOPPED)


class StopSignal:
    """Turns SIGTERM into a flag. A second SIGTERM changes nothing: the present step is still finished and saved."""

    def __init__(self) -> None:
        self.is_asked = False
        self._before: Any = None
        self._is_installed = False

    def install(self) -> bool:
        """False if Python forbids it: only the main thread may handle signals."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGTERM, self._note)
            self._is_installed = True
        return self._is_installed

    def restore(self) -> None:
        """Restore the previous handler, so that a script that continues after its loop ends at a SIGTERM as usual."""
        if self._is_installed and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._before if self._before is not None else signal.SIG_DFL)
            self._is_installed = False

    def _note(self, _signal: int, _frame: object) -> None:
        self.is_asked = True
