"""Reads text files of users, and writes files atomically: completely or not at all."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping
from pathlib import Path

from skep.core.errors import InputError

SIZE_MAX = 10_000_000
"""The largest configuration file in bytes; a cluster of 100,000 nodes written out one by one is smaller."""


def load_text(path: str | Path, *, what: str, hint: str = "", size_max: int | None = SIZE_MAX) -> str:
    """The text of a file, or a one-line error; `what` is what it should have been."""
    # A path is shown whole, because its end matters most; only texts that cannot be a path are shortened.
    shown = str(path)[:1000] or "''"
    try:
        with Path(path).open("rb") as file:
            content = file.read(-1 if size_max is None else size_max + 1)
    except FileNotFoundError:
        raise InputError(f"{shown}: no such file, expected {what}") from None
    except IsADirectoryError:
        raise InputError(f"{shown}: is a folder, expected {what}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{shown}: cannot be read: {reason}") from None
    if size_max is not None and len(content) > size_max:
        raise InputError(f"{shown}: is larger than {size_max // 10**6} MB, expected {what}")
    return decode(shown, content, what, hint)


class Texts:
    """Texts of files by path: known ones, and those that were read since."""

    def __init__(self, known: Mapping[str, str] | None = None, openable: Container[str] | None = None) -> None:
        """`openable` None: every other file may be read too; otherwise these."""
        self.by_path = dict(known or {})
        self.openable = openable

    def only(self, paths: Iterable[str]) -> Texts:
        """The same texts, of which only these may be read."""
        allowed = self.openable
        narrow = Texts(openable=[path for path in paths if allowed is None or path in allowed])
        narrow.by_path = self.by_path
        return narrow

    def load(self, path: str, *, what: str) -> str:
        if path not in self.by_path:
            if self.openable is not None and path not in self.openable:
                raise InputError(f"{shorten(path)}: files are not read here", hint=f"{what} was expected in it")
            self.by_path[path] = load_text(path, what=what)
        return self.by_path[path]


def decode(shown: str, content: bytes, what: str, hint: str) -> str:
    if content[:2] == b"\x1f\x8b":
        raise InputError(f"{shown}: is compressed", hint=f"unpack it first: gunzip -k {shown}")
    try:
        # A byte order mark (spreadsheets write one) would otherwise become part of the first word.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{shown}: is not a text file, expected {what}", hint=hint or "text is in UTF-8")
    if not text.strip():
        raise InputError(f"{shown}: is empty, expected {what}", hint=hint)
    return text


def write_aside(path: str | Path, text: str, mode: int = 0o666) -> None:
    """Write beside the target, then rename: a reader never sees a partial file. The umask may take from `mode`."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        made = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(made, "w", encoding="utf-8", newline="") as out:
            out.write(text)
        aside.replace(target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def shorten(text: str, *, most: int = 80) -> str:
    """User-supplied text within a message of one line."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text if text.isprintable() else repr(text)
