"""Notifications for a service manager that requested them (systemd, `Type=notify`): ready, stopping."""

from __future__ import annotations

import contextlib
import os
import socket


class Notifier:
    """Sends nothing if the service manager did not ask for notifications."""

    def __init__(self) -> None:
        self.address = os.environ.pop("NOTIFY_SOCKET", "")
        """Removed from the environment, because jobs must not notify in the name of the server."""

    def say(self, *words: str) -> None:
        if not self.address.startswith(("/", "@")):
            return
        address = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto("\n".join(words).encode(), address)
