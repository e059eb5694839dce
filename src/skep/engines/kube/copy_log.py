"""Copies the log of a pod into the folder of its task, so that it can be read after the pod is gone.

A log is followed only while a client reads it or the pod is being stopped: the kubelet deletes it with the container.
The log of a pod that ended by itself is copied when it has ended.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

from skep.engines.kube.api import Api, ApiError, ApiStream
from skep.engines.local.folder import LOG_BYTES

RETRY_S = 1.0
LAST_WORDS = 1000
LAST_ERROR = re.compile(rb"(?:\A|\n)(rpc error: code = \w+ desc = [^\n]*)\Z")
END_S = 20.0
"""How long the rest of a log may take after its pod has ended."""

log = logging.getLogger(__name__)


class LogCopy:
    """Follows the log of one pod from where the file ends, in a thread."""

    def __init__(self, api: Api, pod: str, file: Path, is_over: Callable[[], bool]) -> None:
        self.api, self.pod, self.file, self.is_over = api, pod, file, is_over
        self._closing = threading.Event()
        self._stream: ApiStream | None = None
        self._thread = threading.Thread(target=self._follow, name=f"skep-kube-log-{pod}", daemon=True)
        self._thread.start()

    def finish(self) -> bool:
        """Wait for the end of a log whose pod has ended. False if it did not come in time."""
        self._thread.join(END_S)
        return not self._thread.is_alive()

    def close(self) -> None:
        self._closing.set()
        if self._stream is not None:
            self._stream.close()

    def _follow(self) -> None:
        while not self._closing.is_set():
            was_over = self.is_over()
            try:
                self._stream = self.api.stream(f"{self.api.of('pods', self.pod)}/log", follow="true")
                if self._closing.is_set():
                    self._stream.close()
                append(self._stream, self.file)
                if was_over or self.is_over():
                    return
            except ApiError as error:
                if was_over or error.status in (404, 410):
                    note(self.file, f"the rest of this log could not be read: {error}")
                    return
            self._closing.wait(RETRY_S)


def copy_log(api: Api, pod: str, file: Path) -> None:
    """All of a pod that has ended."""
    try:
        append(api.stream(f"{api.of('pods', pod)}/log", idle_s=END_S), file)
    except ApiError as error:
        note(file, f"the log could not be read: {error}")


def append(stream: ApiStream, file: Path) -> None:
    """What the file does not have yet; a log beyond the limit is cut."""
    with file.open("ab") as target:
        skip = size = os.fstat(target.fileno()).st_size
        for piece in stream.pieces():
            rest, skip = piece[skip:], max(skip - len(piece), 0)
            if size < LOG_BYTES <= size + len(rest):
                target.write(rest[: LOG_BYTES - size] + b"\nskep: this log is cut here, it is too long\n")
            elif size < LOG_BYTES:
                target.write(rest)
                target.flush()
            size += len(rest)
    drop_last_words(file)


def drop_last_words(file: Path) -> None:
    """A kubelet that removes the container while its log is followed ends the stream with an error as text."""
    with file.open("r+b") as target:
        size = target.seek(0, os.SEEK_END)
        target.seek(max(size - LAST_WORDS, 0))
        if found := LAST_ERROR.search(target.read()):
            target.truncate(size - len(found[1]))


def note(file: Path, text: str) -> None:
    with file.open("ab") as target:
        target.write(f"skep: {text}\n".encode())
