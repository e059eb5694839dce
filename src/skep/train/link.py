"""The files of a task that runs away from its server, kept equal with the server's: its reports go there, requests come
back. Only where `SKEP_REPORT_URL` names a server: on the server's machine both read the same files."""

from __future__ import annotations

import atexit
import json
import os
import threading
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

EVERY_S = 2.0
ANSWER_S = 10.0
PIECE = 256 * 1024
"""The most bytes of the curve that one report carries."""


class Link:
    """A thread that never ends or delays the training: what cannot be sent is sent later."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.folder, self.url, self.token = folder, url, token
        self._sent = 0
        """Bytes of the curve that the server has."""
        self._asked = b""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="skep-link", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """The last report."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join(ANSWER_S)
            self.exchange()

    def _work(self) -> None:
        while not self._closing.wait(EVERY_S):
            self.exchange()

    def exchange(self) -> None:
        import urllib.request

        try:
            body, upto = self._report()
            about = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            request = urllib.request.Request(self.url, body, about, method="POST")
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                asked = answer.read(1 << 20)
            self._sent = upto
            if asked and asked != self._asked:
                self._put(asked)
        except (OSError, ValueError):
            pass  # The server is away; the next exchange has all of it.

    def _report(self) -> tuple[bytes, int]:
        content: dict[str, Any] = {"progress": self._read("progress.json"), "at": self._sent, "metrics": ""}
        lines = b""
        try:
            with (self.folder / "metrics.jsonl").open("rb") as file:
                file.seek(self._sent)
                lines = file.read(PIECE)
        except OSError:
            pass
        lines = lines[: lines.rfind(b"\n") + 1]
        content["metrics"] = lines.decode()
        return json.dumps(content).encode(), self._sent + len(lines)

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self.folder / name).read_bytes())
        except (OSError, ValueError):
            return None

    def _put(self, asked: bytes) -> None:
        aside = self.folder / f".asked.{os.getpid()}"
        aside.write_bytes(asked)
        aside.replace(self.folder / "asked.json")
        self._asked = asked


def link(folder: Path | None) -> Link | None:
    url = os.environ.get("SKEP_REPORT_URL", "")
    return Link(folder, url, os.environ.get("SKEP_REPORT_TOKEN", "")) if folder is not None and url else None
