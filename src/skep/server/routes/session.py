"""Who asks: the session of a browser, and what the server knows of whoever asks."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from skep.server.answers import coming
from skep.server.schemas import errors, write_errors
from skep.server.shapes import Me, SessionBody

router = APIRouter(prefix="/api/v1", tags=["session"])


@router.post("/session", response_model=None, responses={200: {"model": Me}, **write_errors()})
def log_in(request: Request, body: SessionBody) -> Response:
    """Exchange a token for a cookie that scripts cannot read. For browsers; other clients send the token itself.

    Writes that are made with the cookie alone need the header `X-Requested-With: skep`, which other sites cannot send.
    """
    return coming()


@router.delete("/session", response_model=None, responses={200: {"model": Me}, **write_errors()})
def log_out(request: Request) -> Response:
    """Drop the cookie."""
    return coming()


@router.get("/me", response_model=None, responses={200: {"model": Me}, **errors()})
def me(request: Request) -> Response:
    return coming()
