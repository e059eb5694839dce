"""A server of root without tokens, and another account of the same machine."""

from __future__ import annotations

import http.client
import json
import os
import socket
from pathlib import Path

import pytest
from bench.crash import Server

from skep.server.identity import Forbidden, account_of, only_root

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
OTHER = 50_321


def as_other(port: int, method: str, path: str) -> int:
    """The status that another account gets."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(OTHER)
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            body = json.dumps({"name": "x", "tasks": {"w": {"command": "id"}}}) if method == "POST" else None
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            code = connection.getresponse().status // 100 * 10 + 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) // 10 * 100


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_kernel_says_whose_connection_it_is(family: int, host: str) -> None:
    with socket.create_server((host, 0), family=family) as server:
        where = server.getsockname()[:2]
        with socket.create_connection(where) as client:
            mine = client.getsockname()[:2]
            assert account_of(mine, where) == 0
            only_root(mine, where)
            os.fchown(client.fileno(), OTHER, -1)  # As if that account had made it.
            assert account_of(mine, where) == OTHER
            with pytest.raises(Forbidden, match="obeys root alone"):
                only_root(mine, where)
        assert account_of(mine, where) is None  # Closed: the kernel would say root.


def test_another_account_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", cluster="1x1")
    server.start()
    try:
        assert as_other(server.port, "POST", "/api/v1/jobs") == 400
        assert as_other(server.port, "GET", "/api/v1/jobs") == 400
        assert as_other(server.port, "GET", "/api/v1/health") == 200
    finally:
        server.stop()
