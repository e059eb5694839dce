"""The output of a job to its end: through preemptions, further attempts, and restarts of the server."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from skep.cli.live import say
from skep.cli.plain import clean

if TYPE_CHECKING:
    from skep.client import Client, Job

PATIENCE_S = 1.0
"""Shorter waits are not reported."""
LAST = 0
"""The attempt number that means the last attempt."""
SLOW_S = 10.0
"""The server disconnects a reader that takes longer than that over one piece, and more may have been written."""


class SeenText:
    """The output of one task: a stream starts again after a lost connection, and this many characters are already
    shown."""

    def __init__(self) -> None:
        self.count = self.left = 0

    def begin(self) -> None:
        self.left = self.count

    def skip(self, text: str, lines: int) -> None:
        """All of it except the last lines."""
        is_whole = text.endswith("\n")
        self.count = len(text) - len("\n".join(text.split("\n")[-lines - is_whole :]))

    def new_part(self, text: str) -> str:
        """What is new in it."""
        new, self.left = text[self.left :], max(0, self.left - len(text))
        self.count += len(new)
        return new


class SeenLines:
    """The output of several tasks: their lines come in a different order each time, so they are counted by task."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        self.left = dict(self.counts)
        self.rest = ""

    def skip(self, text: str, lines: int) -> None:
        self.new_part(text)
        self.counts = {task: max(0, count - lines) for task, count in self.counts.items()}

    def new_part(self, text: str) -> str:
        *lines, self.rest = (self.rest + text).split("\n")
        return "".join(f"{line}\n" for line in lines if self.is_new(line.partition(" | ")[0]))

    def is_new(self, task: str) -> bool:
        if self.left.get(task):
            self.left[task] -= 1
            return False
        self.counts[task] = self.counts.get(task, 0) + 1
        return True


class Follower:
    """May be interrupted and called again: it continues where it was."""

    def __init__(
        self, client: Client, job_id: str, task: str = "", attempt: int = 0, shown: Callable[[str], str] = str
    ) -> None:
        """`shown` converts a piece of the log for output."""
        self.client = client
        self.shown = shown
        self.job_id = job_id
        self.task = task
        self.done = max(0, attempt - 1)
        """The last attempt that was shown completely."""
        self.seen: SeenText | SeenLines | None = None
        """What is already shown of the next attempt."""
        self.was_slow = False
        self.said = ""
        self.since_s = time.monotonic()

    def until_end(self) -> Job:
        from skep.client import ENDED, pause_lengths

        pauses = pause_lengths()
        while True:
            job = self.client.patiently(self.ask)
            if attempts_of(job) > self.done:
                self.tell_running(job)
                self.seen = self.seen or self.nothing_seen(job)
                self.show_attempt(self.done + 1, is_gang(job))
                pauses = pause_lengths()
            elif job["state"] in ENDED:
                return job
            else:
                self.tell_waiting(job)
            time.sleep(next(pauses))

    def skip_all_but(self, lines: int, job: Job) -> None:
        """Of the existing output only the last lines are shown."""
        from skep.core.errors import NotFound

        self.seen = self.nothing_seen(job)
        attempt = self.done + 1 if is_gang(job) else LAST
        with contextlib.suppress(NotFound):
            self.seen.skip("".join(self.client.logs(self.job_id, task=self.task, attempt=attempt)), lines)

    def ask(self) -> Job:
        return self.client.job(self.job_id)

    def show_attempt(self, attempt: int, is_gang: bool) -> None:
        from skep.client import NoServer

        try:
            self.copy(attempt if is_gang else LAST)
            job = self.ask()
        except NoServer:
            # Even a clean end of the stream may be due to the server. What was shown is skipped after the reconnection.
            self.tell("lost the server; waiting for it (the job runs on)")
            return
        if is_over(job, attempt) and not self.was_slow:
            self.done, self.seen = attempt, None

    def copy(self, attempt: int) -> None:
        """There is no output before the processes exist."""
        from skep.core.errors import NotFound

        assert self.seen is not None
        self.seen.begin()
        self.was_slow = False
        with contextlib.suppress(NotFound):
            for text in self.client.logs(self.job_id, task=self.task, attempt=attempt, follow=True):
                new = self.seen.new_part(text)
                began_s = time.monotonic()
                sys.stdout.write(self.shown(new))
                sys.stdout.flush()
                self.was_slow |= time.monotonic() - began_s > SLOW_S

    def nothing_seen(self, job: Job) -> SeenText | SeenLines:
        from skep.jobs.request import FOLLOWED_MAX, task_names

        names = task_names(job.get("request") or {})
        if self.task or len(names) <= 1:
            return SeenText()
        if len(names) > FOLLOWED_MAX:
            self.tell(f"the first {FOLLOWED_MAX} of {len(names):,} tasks are shown; `skep logs --task` shows another")
        return SeenLines()

    def tell_waiting(self, job: Job) -> None:
        if time.monotonic() - self.since_s >= PATIENCE_S and job["state"] in ("pending", "launching"):
            why = clean(str(job.get("reason") or ""))
            self.tell(f"job {self.job_id} is {job['state']}{': ' if why else ''}{why}")

    def tell_running(self, job: Job) -> None:
        """Printed only if waiting was printed before."""
        if self.said and job["state"] == "running":
            self.tell(f"job {self.job_id} runs on {', '.join(job.get('nodes') or ['?'])}")

    def tell(self, text: str) -> None:
        if text != self.said:
            say(f"skep: {text}")
        self.said, self.since_s = text, time.monotonic()


def attempts_of(job: Job) -> int:
    """If tasks start one by one each has attempts of its own: the log combines them."""
    return int(job["attempts"]) if is_gang(job) else min(1, job["attempts"])


def is_gang(job: Job) -> bool:
    return bool((job.get("request") or {}).get("gang", True))


def is_over(job: Job, attempt: int) -> bool:
    from skep.client import ENDED

    is_between = job["state"] == "pending" and is_gang(job)
    return job["state"] in ENDED or is_between or attempts_of(job) > attempt
