"""Sessions of browsers: a cookie instead of a token, and nobody else may use it."""

from __future__ import annotations

from http.cookies import SimpleCookie

import httpx
import pytest
from fake_world import JOB, World

API = "/api/v1"
OURS = {"X-Requested-With": "skep"}


def log_in(world: World, user: str, role: str, **headers: str) -> httpx.Response:
    secret = world.tokens.create(user, role, ())[1]
    return world.client.post(f"{API}/session", json={"token": secret}, headers=headers)


def cookie_header(world: World, user: str = "ann", role: str = "user") -> dict[str, str]:
    morsel = next(iter(SimpleCookie(log_in(world, user, role).headers["set-cookie"]).values()))
    world.client.cookies.clear()
    return {"Cookie": f"{morsel.key}={morsel.value}"}


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(guarded: World) -> None:
    answer = log_in(guarded, "ann", "user")
    guarded.client.cookies.clear()
    assert answer.json() == {"user": "ann", "role": "user", "vcs": [], "auth": "token"}
    name, morsel = next(iter(SimpleCookie(answer.headers["set-cookie"]).items()))
    assert name == f"skep-{guarded.port}"
    assert (morsel["httponly"], morsel["samesite"], morsel["path"], morsel["secure"]) == (True, "Strict", "/", "")
    secure = log_in(guarded, "ann", "user", Host="skep.example:443", Origin="https://skep.example:443")
    assert secure.status_code == 403  # not one of its names
    secure = log_in(guarded, "ann", "user", Origin=f"https://127.0.0.1:{guarded.port}")
    guarded.client.cookies.clear()
    assert next(iter(SimpleCookie(secure.headers["set-cookie"]).values()))["secure"] is True


def test_a_cookie_reads_and_writes_as_its_token_would(guarded: World) -> None:
    cookie = cookie_header(guarded)
    assert guarded.client.get(f"{API}/me", headers=cookie).json()["user"] == "ann"
    made = guarded.client.post(f"{API}/jobs", json=JOB, headers={**cookie, **OURS})
    assert (made.status_code, made.json()["user"]) == (201, "ann")
    with guarded.client.stream("GET", f"{API}/events?after=0", headers=cookie) as stream:
        assert stream.status_code == 200


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/jobs"), ("PATCH", "/jobs/1"), ("DELETE", "/tokens/00000000"), ("PUT", "/policy")]
)
def test_a_write_with_a_cookie_needs_our_header(guarded: World, method: str, path: str) -> None:
    answer = guarded.client.request(method, f"{API}{path}", json=JOB, headers=cookie_header(guarded, role="admin"))
    assert answer.status_code == 403
    assert "X-Requested-With" in answer.json()["error"]


def test_our_header_does_not_help_another_site(guarded: World) -> None:
    cookie = {**cookie_header(guarded), **OURS}
    for foreign in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert guarded.client.post(f"{API}/jobs", json=JOB, headers={**cookie, **foreign}).status_code == 403
        assert guarded.client.get(f"{API}/jobs", headers={**cookie, **foreign}).status_code == 403


def test_logging_in_from_another_site_is_refused(guarded: World) -> None:
    assert log_in(guarded, "ann", "user", Origin="http://evil.example").status_code == 403
    secret = guarded.tokens.create("ann", "user", ())[1]
    form = guarded.client.post(f"{API}/session", data={"token": secret})
    assert form.status_code == 415


def test_a_revoked_token_ends_its_session_at_once(guarded: World) -> None:
    cookie = cookie_header(guarded)
    guarded.tokens.revoke(guarded.tokens.list()[0].id)
    assert guarded.client.get(f"{API}/me", headers=cookie).status_code == 401


@pytest.mark.parametrize("cookie", ["skep=x", "skep-1=y", "=", "\xff", "a=b; a", "skep-PORT=nonsense"])
def test_other_cookies_are_none(guarded: World, cookie: str) -> None:
    headers = {"Cookie": cookie.replace("PORT", str(guarded.port)).encode("latin-1")}
    assert guarded.client.get(f"{API}/me", headers=headers).status_code == 401


def test_cookies_of_other_programs_are_not_in_the_way(guarded: World) -> None:
    cookie = cookie_header(guarded)["Cookie"]
    headers = {"Cookie": f'odd={{"a":1}}; [x]=y; {cookie}; last'}
    assert guarded.client.get(f"{API}/me", headers=headers).status_code == 200


def test_a_wrong_token_makes_no_session(guarded: World) -> None:
    answer = guarded.client.post(f"{API}/session", json={"token": "skep_00000000_" + "a" * 43})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert guarded.client.post(f"{API}/session", json={"token": ""}).status_code == 400


def test_logging_out_takes_the_cookie_away(guarded: World) -> None:
    gone = guarded.client.delete(f"{API}/session", headers={**cookie_header(guarded), **OURS})
    assert next(iter(SimpleCookie(gone.headers["set-cookie"]).values()))["max-age"] == "0"


def test_without_tokens_everybody_is_an_admin(world: World) -> None:
    found = world.client.get(f"{API}/me", headers={"X-Skep-User": "ann"}).json()
    assert found == {"user": "ann", "role": "admin", "vcs": [], "auth": "none"}
    answer = world.client.post(f"{API}/session", json={"token": "any"})
    assert answer.json()["auth"] == "none"
    assert "set-cookie" not in answer.headers


def test_json_is_compressed_for_those_who_read_that(world: World) -> None:
    for _ in range(20):
        world.submit()
    path = f"{API}/events?follow=false"
    plain = world.client.get(path, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    packed = world.client.get(path, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < len(plain.content) / 3
    refused = world.client.get(path, headers={"Accept-Encoding": "gzip;q=0"})
    assert "content-encoding" not in refused.headers
    short = world.client.get(f"{API}/policy", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers
