"""A progress bar on stderr for work that takes longer than two seconds; none if stderr is not a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

PATIENCE_S = 2.0


class ProgressBar:
    """Use as a context; call with the number of jobs done."""

    def __init__(self, label: str, total: int, unit: str = "jobs", since: int = 0) -> None:
        """`since`: what was done before."""
        self.label = label
        self.total = total
        self.unit = unit
        self.since = since
        self.started_s = time.monotonic()
        self.bar: Any = None
        self.is_shown = sys.stderr.isatty()

    def __enter__(self) -> ProgressBar:
        return self

    def __call__(self, done: int) -> None:
        if not self.is_shown or time.monotonic() - self.started_s < PATIENCE_S:
            return
        if self.bar is None:
            self.bar = self._open()
        speed = (done - self.since) / (time.monotonic() - self.started_s)
        self.bar.update(self.task, completed=done, rate=f"{speed:,.{0 if speed >= 10 else 1}f} {self.unit}/s")

    def _open(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.task = bar.add_task(self.label, total=self.total, rate="")
        bar.start()
        return bar

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
