"""Commands inside a container that runs, through the API server: a WebSocket with channels for output and errors.

Only what this needs of WebSockets (RFC 6455) and of `v4.channel.k8s.io`, which every release since 1.20 speaks. There
is no input: the protocol cannot say that it has ended.
"""

from __future__ import annotations

import base64
import contextlib
import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO
from urllib.parse import urlencode

import msgspec

from skep.engines.kube.api import Api, Unreachable, failure

STDOUT, STDERR, ERROR = 1, 2, 3
PROTOCOL = "v4.channel.k8s.io"
FRAME_MAX = 16 << 20
FINAL, CLOSE, PING, PONG = 0x80, 8, 9, 10


class ExecCause(msgspec.Struct, frozen=True):
    reason: str = ""
    message: str = ""


class ExecDetails(msgspec.Struct, frozen=True):
    causes: list[ExecCause] = []


class ExecStatus(msgspec.Struct, frozen=True):
    """How a command ended, on the channel for errors."""

    status: str = ""
    message: str = ""
    details: ExecDetails = ExecDetails()

    @property
    def code(self) -> int | None:
        """None: it did not run."""
        if self.status == "Success":
            return 0
        found = [each.message for each in self.details.causes if each.reason == "ExitCode"]
        return int(found[0]) if found and found[0].isdecimal() else None


def exec_in(api: Api, pod: str, container: str, argv: list[str]) -> Iterator[tuple[int, bytes]]:
    """Pieces of output as (channel, bytes), until the command has ended; the last one is its `ExecStatus` as JSON."""
    query = [("container", container), ("stdout", "true"), ("stderr", "true"), *(("command", word) for word in argv)]
    connection, answer = api.open(f"{api.of('pods', pod)}/exec?{urlencode(query)}", upgrade_headers())
    if answer.status != 101:
        text = b"".join(connection.pieces(answer))
        connection.close()
        raise failure(answer.status, text)
    try:
        for content in messages(connection.file, connection.socket.sendall):
            if len(content) > 1:
                yield content[0], content[1:]
    except OSError as error:
        raise Unreachable(api.credentials.url, error) from None
    finally:
        connection.close()


def upgrade_headers() -> dict[str, str]:
    key = base64.b64encode(os.urandom(16)).decode()
    about = {
        "Accept": "*/*",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
    }
    return {**about, "Sec-WebSocket-Protocol": PROTOCOL}


def messages(source: BinaryIO, send: Any) -> Iterator[bytes]:
    """Whole messages of the server until it closes; its pings are answered."""
    content = b""
    while (head := source.read(2)) and len(head) == 2:
        kind, size = head[0] & 0x0F, head[1] & 0x7F
        if size > 125:
            size = int.from_bytes(source.read(2 if size == 126 else 8))
        if size > FRAME_MAX:
            raise OSError(f"a frame of {size} bytes")
        piece = source.read(size)
        if kind == CLOSE:
            with contextlib.suppress(OSError):
                send(masked(CLOSE, piece[:2]))
            return
        if kind == PING:
            send(masked(PONG, piece))
        elif kind != PONG:
            content += piece
            if head[0] & FINAL:
                yield content
                content = b""


def masked(kind: int, content: bytes) -> bytes:
    """A short frame of a client."""
    mask = os.urandom(4)
    hidden = bytes(byte ^ mask[at % 4] for at, byte in enumerate(content[:125]))
    return struct.pack("!BB", FINAL | kind, 0x80 | len(hidden)) + mask + hidden
