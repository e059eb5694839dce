"""The dashboard's files: who gets them, with which headers, and what is said where there are none."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from fake_world import World
from starlette.types import Receive, Scope, Send

from skep.server.edge import Refusals
from skep.server.pages import Pages, why_missing
from skep.server.security import Guard

FOREIGN_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html><title>Skep</title>")
    (tmp_path / "assets" / "index-1.js").write_text("let bees = 1;\n" * 100)
    (tmp_path.parent / "secret.txt").write_text("secret")
    return tmp_path


def fetch(world: World, folder: Path, path: str, **headers: str) -> httpx.Response:
    async def api(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the API"})

    async def ask() -> httpx.Response:
        app = Guard(Pages(api, folder), world.config, world.tokens, Refusals(world.live.note))
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/17?tab=logs", "/login", "/virtual-clusters"])
def test_every_page_is_the_same_file_and_needs_no_token(guarded: World, folder: Path, path: str) -> None:
    answer = fetch(guarded, folder, path)
    assert (answer.status_code, answer.text) == (200, "<!doctype html><title>Skep</title>")
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-frame-options"] == "DENY"


def test_a_person_at_a_wrong_address_gets_the_page_and_a_program_an_error(guarded: World, folder: Path) -> None:
    answer = fetch(guarded, folder, "/nowhere", Accept="text/html,*/*")
    assert (answer.status_code, answer.text) == (404, "<!doctype html><title>Skep</title>")
    for path in ("/api/v1/nothing", "/metrics", "/openapi.json"):
        assert fetch(guarded, folder, path, Accept="text/html").status_code == 401


def test_what_is_in_the_cluster_needs_a_token_nevertheless(guarded: World, folder: Path) -> None:
    for path in ("/api/v1/jobs", "/metrics", "/openapi.json", "/anything"):
        assert fetch(guarded, folder, path).status_code == 401


def test_files_with_a_digest_in_their_name_are_kept_and_sent_compressed(guarded: World, folder: Path) -> None:
    answer = fetch(guarded, folder, "/assets/index-1.js")
    assert answer.text == "let bees = 1;\n" * 100
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert "content-encoding" not in fetch(guarded, folder, "/assets/index-1.js", **{"Accept-Encoding": "br"}).headers


@pytest.mark.parametrize(
    "path", ["/assets/none.js", "/assets/../../secret.txt", "/assets/%2e%2e/%2e%2e/secret.txt", "/assets/"]
)
def test_nothing_else_is_read(guarded: World, folder: Path, path: str) -> None:
    assert fetch(guarded, folder, path).status_code in (401, 404)


def test_a_link_on_another_site_may_lead_to_a_page_and_to_nothing_else(guarded: World, folder: Path) -> None:
    assert fetch(guarded, folder, "/jobs", **FOREIGN_LINK).status_code == 200
    assert fetch(guarded, folder, "/api/v1/jobs", **FOREIGN_LINK).status_code == 403
    assert fetch(guarded, folder, "/jobs", **{**FOREIGN_LINK, "Sec-Fetch-Mode": "cors"}).status_code == 403


def test_without_a_dashboard_the_page_says_why_and_what_to_do(world: World, tmp_path: Path) -> None:
    assert why_missing(tmp_path) == "the dashboard was not built: run web/build.py"
    (tmp_path / "missing.txt").write_text("the <npm> registry cannot be reached\n")
    answer = fetch(world, tmp_path, "/jobs")
    assert answer.status_code == 503
    assert "the &lt;npm&gt; registry cannot be reached" in answer.text
    assert "SKEP_WEB=require" in answer.text
    assert fetch(world, tmp_path, "/api/v1/health").text == "the API"
