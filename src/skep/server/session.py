"""The session of a browser: a token in a cookie that scripts cannot read.

A browser sends a cookie with every request to its host, from any page. `SameSite=Strict` keeps it out of requests that
other sites cause; `Guard` refuses foreign origins; and a write needs a header that another site may send only after a
preflight request, which this server never allows. A cookie is sent to every port of a host, so its name contains the
port: two servers on one machine do not log each other out.
"""

from __future__ import annotations

from skep.server.identity import Forbidden

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
