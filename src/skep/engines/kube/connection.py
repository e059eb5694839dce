"""HTTP/1.1 as the API server speaks it, request after request on one connection.

`http.client` spends more time on the headers of an answer than on the rest of a request (docs/decisions).
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
from collections.abc import Iterator
from typing import cast

import msgspec

LINE_MAX, READ_BYTES = 1 << 16, 1 << 16
CONNECT_S = 30.0


class AnswerHead(msgspec.Struct, frozen=True):
    """Without its body."""

    status: int
    headers: dict[str, str]
    """Names in lower case."""


class KubeConnection:
    """Errors are `OSError`, `ValueError` and `http.client.HTTPException`; after one the connection is of no use."""

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float | None) -> None:
        plain = socket.create_connection((host, port), CONNECT_S)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket: socket.socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self.socket.settimeout(timeout)
        self.file = cast(io.BufferedReader, self.socket.makefile("rb", READ_BYTES))
        self._name = (f"[{host}]" if ":" in host else host) + f":{port}"

    def send(self, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> AnswerHead:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._name}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        first, *lines = self._head().split("\r\n")
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):
            raise http.client.BadStatusLine(repr(first[:80]))
        return AnswerHead(int(words[1]), fields_of(lines))

    def pieces(self, answer: AnswerHead) -> Iterator[bytes]:
        """The body as it comes."""
        if answer.headers.get("transfer-encoding") == "chunked":
            while size := int(self._line().partition(b";")[0], 16):
                yield self._exactly(size + 2)[:-2]
            while self._line() != b"\r\n":  # trailers
                pass
        elif "content-length" in answer.headers:
            yield self._exactly(int(answer.headers["content-length"]))
        else:
            while piece := self.file.read1(READ_BYTES):  # it ends with the connection
                yield piece

    def shut(self) -> None:
        """From another thread: who reads finds the end. A TLS socket that is shut down as such would go on without
        TLS, and who reads would take bytes that are encrypted for text."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def _head(self) -> str:
        """Up to the empty line. It nearly always comes in one piece, and is then cheaper to read than its lines are."""
        if not (seen := self.file.peek()):
            raise http.client.RemoteDisconnected("the connection was closed")
        if (end := seen.find(b"\r\n\r\n")) >= 0:
            return self.file.read(end + 4)[:-4].decode("latin-1")
        lines = [self._line()]
        while lines[-1] != b"\r\n":
            lines.append(self._line())
        return b"".join(lines[:-1]).decode("latin-1").rstrip("\r\n")

    def _line(self) -> bytes:
        line = self.file.readline(LINE_MAX)
        if not line.endswith(b"\n"):
            raise http.client.IncompleteRead(line)
        return line

    def _exactly(self, size: int) -> bytes:
        found = self.file.read(size)
        if len(found) < size:
            raise http.client.IncompleteRead(found, size - len(found))
        return found


def fields_of(lines: list[str]) -> dict[str, str]:
    pairs = (line.partition(":") for line in lines)
    return {name.lower(): value.strip() for name, _, value in pairs}
