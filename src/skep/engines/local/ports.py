"""Ports for tasks: free when they are assigned, and not assigned twice while in use."""

from __future__ import annotations

import errno
import secrets
import socket

from skep.core.errors import InputError

FIRST = 15_000
END = 40_000
EPHEMERAL = 32_768
"""The kernel assigns ports from here on to outgoing connections: the search does not begin there."""


class Ports:
    """The search continues where the last one ended, so that a port is reused as late as possible."""

    def __init__(self) -> None:
        self.in_use: set[int] = set()
        self._of: dict[tuple[str, int], list[int]] = {}
        """By job and launch."""
        # A random position: another server on this machine would find the same ports free until its tasks listen on
        # them.
        self._next = FIRST + secrets.randbelow(max(min(END, EPHEMERAL) - FIRST, 1))

    def take(self, owner: tuple[str, int], wanted: list[dict[str, int]]) -> list[dict[str, list[int]]]:
        """The ports of each label for each task; all of them or none."""
        count = sum(sum(labels.values()) for labels in wanted)
        if count > END - FIRST:
            raise InputError(f"{count} ports are more than there are between {FIRST} and {END - 1}")
        if count > END - FIRST - len(self.in_use):
            raise none_free()
        self._of.setdefault(owner, [])
        try:
            return [{label: self._some(owner, count) for label, count in labels.items()} for labels in wanted]
        except OSError:
            self.give(owner)
            raise

    def keep(self, owner: tuple[str, int], ports: dict[str, list[int]]) -> None:
        """Note the ports of an adopted task, unless another task got them after it had ended."""
        for port in (port for numbers in ports.values() for port in numbers):
            if port not in self.in_use:
                self._add(owner, port)

    def give(self, owner: tuple[str, int]) -> None:
        self.in_use.difference_update(self._of.pop(owner, ()))

    def _some(self, owner: tuple[str, int], count: int) -> list[int]:
        found: list[int] = []
        for _ in range(END - FIRST):
            if len(found) == count:
                break
            port = self._next
            self._next = port + 1 if port + 1 < END else FIRST
            if port not in self.in_use and is_free(port):
                self._add(owner, port)
                found.append(port)
        if len(found) < count:
            raise none_free()
        return found

    def _add(self, owner: tuple[str, int], port: int) -> None:
        self.in_use.add(port)
        self._of.setdefault(owner, []).append(port)


def none_free() -> OSError:
    """A shortage: others release their ports when they end."""
    return OSError(errno.EADDRNOTAVAIL, f"not enough free ports between {FIRST} and {END - 1}")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
