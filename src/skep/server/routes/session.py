"""Routes for the session of a browser, and for what the server knows about the caller."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from skep.server.answers import answer
from skep.server.context import context_of, identity_of
from skep.server.identity import Identity, identify, make_cookie
from skep.server.schemas import Answer, Strict, errors, write_errors

router = APIRouter(prefix="/api/v1", tags=["session"])


class SessionBody(Strict):
    token: str = Field(min_length=1, max_length=200, pattern=r"^[!-~]+$")


class Me(Answer):
    user: str = Field(description="Empty if unknown.")
    role: Literal["admin", "owner", "user", "viewer"]
    vcs: list[str] = Field(description="The VCs of the token; empty: all.")
    auth: Literal["none", "token"] = Field(description="`none`: this server needs no tokens.")


class LoggedOut(Answer):
    auth: Literal["none", "token"]


@router.post("/session", response_model=None, responses={200: {"model": Me}, **write_errors()})
def log_in(request: Request, body: SessionBody) -> Response:
    """Exchange a token for a cookie that scripts cannot read. For browsers; other clients send the token itself.

    Writes that are made with the cookie alone need the header `X-Requested-With: skep`, which other sites cannot send.
    """
    context = context_of(request)
    headers = dict(request.scope["headers"])
    if context.tokens is None:
        return answer(shown(identify(headers, None), "none"))
    found = identify({b"authorization": b"Bearer " + body.token.encode()}, context.tokens)
    cookie = make_cookie(headers, request.url.scheme, body.token)
    return answer(shown(found, "token"), headers={"set-cookie": cookie})


@router.delete("/session", response_model=None, responses={200: {"model": LoggedOut}, **write_errors()})
def log_out(request: Request) -> Response:
    """Drop the cookie."""
    cookie = make_cookie(dict(request.scope["headers"]), request.url.scheme, "")
    return answer({"auth": context_of(request).config.auth}, headers={"set-cookie": cookie})


@router.get("/me", response_model=None, responses={200: {"model": Me}, **errors()})
def me(request: Request) -> Response:
    """The caller as the server knows it; 401 if a token is needed."""
    return answer(shown(identity_of(request), context_of(request).config.auth))


def shown(identity: Identity, auth: str) -> dict[str, object]:
    return {"user": identity.user, "role": identity.role, "vcs": list(identity.vcs), "auth": auth}
