"""The HTTP that the Kubernetes client speaks."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from skep.engines.kube.api import Api, ApiError, Unreachable
from skep.engines.kube.connection import KubeConnection
from skep.engines.kube.credentials import Credentials

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


class OneAnswer:
    """Answers the requests of each connection with these bytes, one after the other, and closes it."""

    def __init__(self, *connections: list[bytes]) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.seen: list[bytes] = []
        threading.Thread(target=self._serve, args=(connections,), daemon=True).start()

    def _serve(self, connections: tuple[list[bytes], ...]) -> None:
        with self.socket:
            for answers in connections:
                peer, _ = self.socket.accept()
                with peer:
                    for answer in answers:
                        self.seen.append(peer.recv(1 << 16))
                        peer.sendall(answer)


def read(*answers: bytes) -> tuple[list[bytes], OneAnswer]:
    server = OneAnswer(list(answers))
    connection = KubeConnection("127.0.0.1", server.port, None, 30.0)
    try:
        found = []
        for _ in answers:
            answer = connection.send("POST", "/a", {"Accept": "x"}, b"body")
            found.append(b"".join(connection.pieces(answer)))
        return found, server
    finally:
        connection.close()


def test_bodies_by_length_in_chunks_and_until_the_end() -> None:
    by_length = HEAD + b"Content-Length: 5\r\n\r\nhello"
    in_chunks = HEAD + b"Transfer-Encoding: chunked\r\n\r\n4\r\nhell\r\n1;x=y\r\no\r\n0\r\nTrailer: z\r\n\r\n"
    until_end = HEAD + b"\r\nhello"
    found, server = read(by_length, in_chunks, until_end)
    assert found == [b"hello"] * 3
    head = f"POST /a HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 4\r\nAccept: x\r\n\r\nbody"
    assert server.seen == [head.encode()] * 3


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        HEAD,
        HEAD + b"Content-Length: 9\r\n\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\nhello",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_an_answer_that_is_cut_or_is_no_http_is_an_error(answer: bytes) -> None:
    with pytest.raises((http.client.HTTPException, ValueError)):
        read(answer)


def test_a_head_that_comes_in_pieces() -> None:
    ours, theirs = socket.socketpair()
    connection = KubeConnection.__new__(KubeConnection)
    connection.socket, connection.file = ours, ours.makefile("rb", 1 << 16)  # type: ignore[assignment]
    connection._name = "test"
    text = HEAD + b"Content-Length: 5\r\n\r\nhello"

    def answer() -> None:
        for piece in (text[:20], text[20:40], text[40:55], text[55:]):
            time.sleep(0.02)
            theirs.sendall(piece)

    threading.Thread(target=answer, daemon=True).start()
    found = connection.send("GET", "/", {})
    assert (found.status, found.headers) == (200, {"content-type": "text/plain", "content-length": "5"})
    assert b"".join(connection.pieces(found)) == b"hello"
    connection.close()
    theirs.close()


@contextlib.contextmanager
def api_of(server: OneAnswer) -> Iterator[Api]:
    with contextlib.closing(Api(Credentials(f"http://127.0.0.1:{server.port}", "default", None, str))) as api:
        yield api


def answer_of(status: int, text: bytes) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text


def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    server = OneAnswer([answer_of(200, b"1"), b""], [answer_of(200, b"2")])
    with api_of(server) as api:
        assert (api.get("/a"), api.get("/a")) == (b"1", b"2")
    assert len(server.seen) == 3


def test_what_was_never_answered_is_unreachable() -> None:
    with api_of(OneAnswer([b""])) as api, pytest.raises(Unreachable, match="cannot be reached"):
        api.get("/a")


def test_the_message_of_a_refusal_is_kept() -> None:
    refusal = answer_of(404, b'{"reason": "NotFound", "message": "no such pod"}')
    with api_of(OneAnswer([refusal])) as api, pytest.raises(ApiError, match="no such pod") as caught:
        api.get("/a")
    assert (caught.value.status, caught.value.reason) == (404, "NotFound")
