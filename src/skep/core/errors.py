"""The exceptions of Skep.

    SkepError
    ├── InputError         the user gave something we cannot use: one line, a hint, exit code 2
    │   ├── NotFound       there is no such job, node, …
    │   └── Conflict       it cannot be done to this job, node, … as it is now
    └── InvariantBroken    a bug: something that must always hold did not

An unschedulable job is not an error but a value, see `refusal.py`.
"""

from __future__ import annotations

from collections.abc import Iterable


class SkepError(Exception):
    """Anything Skep raises on purpose."""


class InputError(SkepError):
    """What is wrong, where, what was expected; `hint` says what to do about it."""

    path: str = ""
    """The field of a file, such as `tasks.worker.gpus`."""
    line: int | None = None
    problem: str = ""
    """The message without the file and the line."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def at(self, path: str, line: int | None, problem: str) -> InputError:
        """The same, knowing where in a file it is."""
        self.path, self.line, self.problem = path, line, problem
        return self


class NotFound(InputError):
    """There is no such thing."""


class Conflict(InputError):
    """It cannot be done as things are now."""


def did_you_mean(word: str, known: Iterable[str], *, most: int = 1, start: str = "") -> str:
    """`did you mean gpus?` behind `start`, or nothing."""
    from difflib import get_close_matches  # costs start-up time, and is needed only when something is wrong

    near = get_close_matches(word[:100], list(known), n=most, cutoff=0.5)
    return f"{start}did you mean {' or '.join(near)}?" if near else ""


class InvariantBroken(SkepError):
    """The state is not what it must be; going on would make it worse."""
