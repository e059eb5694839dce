"""The identity of the caller, and what the caller may do.

A browser sends the cookie of its session with every request to this host, from any page. `SameSite=Strict` keeps it out
of requests that other sites cause; `Guard` refuses foreign origins; and a write needs a header that another site may
send only after a preflight request, which this server never allows. A cookie is sent to every port of a host, so its
name contains the port: two servers on one machine do not log each other out.

A server that runs as root without tokens must not obey other accounts: their jobs, and their policies, would run as
root. So it asks the kernel for the account at the other end of a local connection.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping

import msgspec

from skep.core.errors import InputError
from skep.core.model import DEFAULT_VC
from skep.jobs.read import Reading
from skep.jobs.request import LimitRules, Request
from skep.server.tokens import NAME, Tokens
from skep.service.sight import EVERYTHING, Sight
from skep.service.values import Json

TRIAL = "anonymous"


class Forbidden(Exception):
    """A refusal: its status, one line, a hint."""

    def __init__(self, status: int, message: str, hint: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint
        self.headers = headers


class Identity(msgspec.Struct, frozen=True):
    """The sender of a request. Without tokens everything is allowed, and `who` is what the client claims.

    `sight` is what it may read; the `must_…` methods check what it may do, and raise `Forbidden`.
    """

    who: str
    role: str
    vcs: tuple[str, ...] = ()
    """The VCs of the token; empty: every VC."""
    token_id: str = ""
    """The token by which it was verified; its streams end when that is revoked or expires."""

    @property
    def user(self) -> str:
        """The user whose jobs are submitted; a request without a user may name one in the job file."""
        return "" if self.who == TRIAL else self.who

    @property
    def sight(self) -> Sight:
        return Sight(frozenset(self.vcs)) if self.vcs and not self.is_admin else EVERYTHING

    def must_be_admin(self, what: str) -> None:
        if not self.is_admin:
            raise Forbidden(403, f"{what} needs a token of role admin; this one is of role {self.role}")

    def must_see_everything(self, what: str) -> None:
        if not self.sight.is_whole:
            raise Forbidden(403, f"{what} needs a token for every VC", f"this one is for {', '.join(self.vcs)}")

    def must_write(self) -> None:
        if self.role == "viewer":
            raise Forbidden(403, "this token only reads (role viewer)")

    def homed(self, reading: Reading, owned: Mapping[str, int]) -> Reading:
        """The same jobs; those that name no VC are in the one that this user gets by default. A choice is a warning.

        `owned`: the GPUs of each VC of the cluster; empty if it has none.
        """
        vc = self.home(owned)
        if vc == DEFAULT_VC or all(each.vc != DEFAULT_VC for each in reading.requests):
            return reading
        requests = [
            msgspec.structs.replace(each, vc=vc) if each.vc == DEFAULT_VC else each for each in reading.requests
        ]
        if not self.is_admin and len(self.vcs) == 1:
            return Reading(requests, reading.warnings)
        why = f"this cluster has no VC {DEFAULT_VC}"
        if DEFAULT_VC in owned or not owned:
            has_none = f"VC {DEFAULT_VC} has no GPUs"
            why = has_none if self.may_use(DEFAULT_VC) else f"this token is not for VC {DEFAULT_VC}"
        said = f"VC {vc} was chosen: {why}, and no other is named"
        return Reading(requests, [*reading.warnings, said])

    def home(self, owned: Mapping[str, int]) -> str:
        """`default` if there is such a VC with GPUs, else the one with the most GPUs of those that it may use."""
        if not self.is_admin and len(self.vcs) == 1:
            return self.vcs[0]
        mine = [vc for vc in owned or self.vcs if self.may_use(vc)]
        most = max((owned.get(vc, 0) for vc in mine), default=0)
        if not mine or (DEFAULT_VC in mine and (owned.get(DEFAULT_VC) or not most)):
            return DEFAULT_VC
        return next(vc for vc in mine if owned.get(vc, 0) == most)

    def may_use(self, vc: str) -> bool:
        return self.is_admin or not self.vcs or vc in self.vcs

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def must_submit(self, requests: list[Request], limits: LimitRules) -> None:
        """Check the VCs of the token; that a job has the name of its submitter is checked when the job is read."""
        self.must_write()
        if self.is_admin:
            return
        for request in requests:
            self.must_use(request.vc)
            self.must_prioritise(request.priority, request.vc, limits)

    def must_prioritise(self, priority: int, vc: str, limits: LimitRules) -> None:
        most = limits.of_task(self.who, vc).priority
        if most is not None and priority > most and not self.leads(vc):
            hint = "it would preempt jobs of others: owners of the VC and admins may; `limits` of the server grant it"
            raise Forbidden(403, f"priority {priority} is above {most}, the limit of {self.who} in VC {vc}", hint)

    def must_own(self, job: Json) -> None:
        """For what belongs to the submitter alone, such as secrets."""
        self.must_write()
        if self.is_admin:
            return
        if job["user"] != self.who:
            raise Forbidden(403, f"job {job['id']} belongs to {job['user'] or 'an unnamed user'}, not to {self.who}")
        self.must_use(job["vc"])

    def must_change(self, job: Json) -> None:
        """One's own jobs; owners of a VC may change all jobs in it."""
        if not self.leads(job["vc"]):
            self.must_own(job)

    def owns(self, job: Json) -> bool:
        try:
            self.must_own(job)
        except Forbidden:
            return False
        return True

    def leads(self, vc: str) -> bool:
        """True if it may change all jobs of this VC."""
        return self.is_admin or (self.role == "owner" and vc in self.vcs)

    def must_use(self, vc: str) -> None:
        if not self.may_use(vc):
            raise Forbidden(403, f"this token is not for VC {vc}", f"it is for {', '.join(self.vcs)}")


def identify(headers: dict[bytes, bytes], tokens: Tokens | None) -> Identity:
    """From the headers alone: a token in a URL would end up in logs and histories."""
    if tokens is None:
        return Identity(said_user(headers), "admin")
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    token = tokens.find(secret.strip()) if scheme.lower() == "bearer" else None
    if token is None or token.is_expired:
        problem = "this token is not valid" if scheme else "this server needs a token"
        problem = "this token has expired" if token is not None else problem
        hint = "`skep token create --user NAME --role user` makes one; clients send SKEP_TOKEN"
        raise Forbidden(401, problem, hint, {"www-authenticate": "Bearer"})
    return Identity(token.user, token.role, token.vcs, token.id)


def said_user(headers: dict[bytes, bytes]) -> str:
    said = headers.get(b"x-skep-user", b"").decode("latin-1")
    if said and not NAME.fullmatch(said):
        raise InputError("X-Skep-User is not a valid user name", hint="up to 64 letters, digits, . _ - and @")
    return said or TRIAL


AGE_S = 30 * 86400
"""How long a browser keeps it; a revoked token is invalid at once."""
FORGERY = (b"x-requested-with", b"skep")

Headers = dict[bytes, bytes]


def with_session(headers: Headers, *, is_write: bool) -> Headers:
    """The headers with the token of the cookie as if it had been sent as one; an explicit token takes precedence."""
    if b"authorization" in headers or b"cookie" not in headers:
        return headers
    token = cookie_of(headers)
    if not token:
        return headers
    if is_write and headers.get(FORGERY[0], b"").lower() != FORGERY[1]:
        raise Forbidden(403, "a write with the cookie of a session needs the header X-Requested-With: skep")
    return {**headers, b"authorization": b"Bearer " + token.encode("latin-1")}


def cookie_of(headers: Headers) -> str:
    """The same header has cookies of other programs on this host, with any content."""
    name = cookie_name(headers)
    parts = (part.strip().partition("=") for part in headers[b"cookie"].decode("latin-1").split(";"))
    return next((value for key, _, value in parts if key == name), "")


def cookie_name(headers: Headers) -> str:
    port = headers.get(b"host", b"").decode("latin-1").rpartition("]")[2].rpartition(":")[2]
    return f"skep-{port}" if port.isascii() and port.isdigit() else "skep"


def make_cookie(headers: Headers, scheme: str, token: str) -> str:
    """The value of `Set-Cookie`; an empty token removes the cookie. Behind a proxy with TLS, the browser's own `Origin`
    shows that TLS is used."""
    is_secure = scheme == "https" or headers.get(b"origin", b"").lower().startswith(b"https://")
    parts = [f"{cookie_name(headers)}={token}", "Path=/", f"Max-Age={AGE_S if token else 0}"]
    return "; ".join([*parts, "HttpOnly", "SameSite=Strict", *(["Secure"] if is_secure else [])])


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
