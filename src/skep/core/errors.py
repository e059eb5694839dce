"""The exceptions of Skep.

    SkepError
    ├── InputError         the user gave something we cannot use: one line, a hint, exit code 2
    └── InvariantBroken    a bug: something that must always hold did not

An unschedulable job is not an error but a value, see `refusal.py`.
"""

from __future__ import annotations


class SkepError(Exception):
    """Anything Skep raises on purpose."""


class InputError(SkepError):
    """What is wrong, where, what was expected; `hint` says what to do about it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InvariantBroken(SkepError):
    """The state is not what it must be; going on would make it worse."""
