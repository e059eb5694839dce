"""The account at the other end of a local connection, as known to the kernel.

A server that runs as root without tokens must not obey other accounts: their jobs, and their policies, would run as
root.
"""

from __future__ import annotations

import os
import socket
import struct

from skep.server.identity import Forbidden

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR = 2
NLM_F_REQUEST = 1
HEADER = struct.Struct("=IHHII")
ANY_STATE = ANY_COOKIE = 0xFFFFFFFF
UID_AT = HEADER.size + 4 + 48 + 12
"""The position in the kernel's answer after the kind of socket, its addresses and three counters. The inode follows."""
ROOT = 0


class UnknownPeer(Exception):
    """The kernel does not provide the account of a connection."""


def only_root(scope_client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> None:
    """Refuse other accounts. If the kernel does not provide the account, all are accepted."""
    if scope_client is None or server is None or not server[1]:
        return
    try:
        uid = account_of(scope_client, (server[0], server[1]))
    except UnknownPeer:
        return
    if uid != ROOT:
        raise Forbidden(
            403,
            "this server runs as root and without tokens, so it obeys root alone",
            "root may start it with --auth token",
        )


def account_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The number of the account that owns the client's socket; None if it was closed."""
    try:
        answer = ask(client, server)
    except (OSError, ValueError):
        raise UnknownPeer from None
    kind = HEADER.unpack_from(answer)[1]
    if kind == NLMSG_ERROR:
        if -struct.unpack_from("=i", answer, HEADER.size)[0] == 2:  # ENOENT: it is gone.
            return None
        raise UnknownPeer
    uid, inode = struct.unpack_from("=II", answer, UID_AT)
    return uid if inode else None  # A closed socket counts as root's, whichever account had it.


def ask(client: tuple[str, int], server: tuple[str, int]) -> bytes:
    """The client's socket: its own address is the source, ours the destination."""
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    addresses = b"".join(socket.inet_pton(family, host).ljust(16, b"\0") for host in (client[0], server[0]))
    ports = struct.pack(">HH", client[1], server[1])
    wanted = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, ANY_STATE)
    body = wanted + ports + addresses + struct.pack("=III", 0, ANY_COOKIE, ANY_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0) + body)
        return kernel.recv(4096)


def obeys_root_alone(*, needs_token: bool) -> bool:
    return not needs_token and os.geteuid() == ROOT
