"""The exceptions of Skep.

    SkepError
    ├── InputError         invalid input by the user: one line, a hint, exit code 2
    │   ├── NotFound       there is no such job, node, …
    │   └── Conflict       the operation is not possible in the present state of the job, node, …
    └── InvariantBroken    a bug: an invariant does not hold

An unschedulable job is a value and not an error, see `refusal.py`.
"""

from __future__ import annotations

from collections.abc import Iterable


class SkepError(Exception):
    """Base class of all exceptions that Skep raises on purpose."""


class InputError(SkepError):
    """Invalid input: what is wrong, where, what was expected; `hint` says what to do about it."""

    path: str = ""
    """The field of a file, such as `tasks.worker.gpus`."""
    line: int | None = None
    problem: str = ""
    """The message without file name and line number."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def at(self, path: str, line: int | None, problem: str) -> InputError:
        """The same error with a position in a file."""
        self.path, self.line, self.problem = path, line, problem
        return self


class NotFound(InputError):
    """The requested object does not exist."""


class Conflict(InputError):
    """The operation is not possible in the present state."""


def did_you_mean(word: str, known: Iterable[str], *, most: int = 1, start: str = "") -> str:
    """`did you mean gpus?` after `start`, or an empty text."""
    from difflib import get_close_matches  # slow to import, and needed only for errors

    near = get_close_matches(word[:100], list(known), n=most, cutoff=0.5)
    return f"{start}did you mean {' or '.join(near)}?" if near else ""


class InvariantBroken(SkepError):
    """An invariant of the state does not hold. Continuing could damage the state further."""
