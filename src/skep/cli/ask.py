"""Calls that are about the server itself, by the standard library alone: `skep down` is not to wait for imports."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import IO, Any

from skep.core.errors import InputError


class NoAnswer(InputError):
    """Nobody is there."""


def call(url: str, path: str, body: dict[str, Any] | None = None, timeout_s: float = 10.0) -> IO[bytes]:
    """POST to the API (GET without a body); the answer is read by the caller."""
    token = os.environ.get("SKEP_TOKEN", "").strip()
    url = url if "://" in url else f"http://{url}"
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url.rstrip('/')}/api/v1{path}", data, headers)
    # No proxy: a server of this machine is not behind one.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        answer: IO[bytes] = opener.open(request, timeout=timeout_s)
    except urllib.error.HTTPError as error:
        raise refusal(error) from None
    except OSError as error:
        raise NoAnswer(f"no server answers at {url}", hint=str(getattr(error, "reason", error))) from None
    except ValueError:  # its words may contain the token
        raise NoAnswer(f"cannot ask {url}", hint="is that an address, and SKEP_TOKEN one line?") from None
    return answer


def refusal(error: urllib.error.HTTPError) -> InputError:
    try:
        said = json.loads(error.read())
        return InputError(said["error"], hint=said.get("hint", ""))
    except (ValueError, KeyError, TypeError, OSError):
        return InputError(f"the server answered {error.code} {error.reason}")
