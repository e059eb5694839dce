"""A real browser before a real `skep up` with real jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.browser import chromium, launch
from bench.scene import SMALL, Scene, scene
from playwright.sync_api import Browser, Page, expect

from skep.server.pages import why_missing

WAIT_MS = 60_000
"""For a machine that has much else to do."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = "there is no Chromium here" if chromium() is None else why_missing()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slow)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with launch() as running:
        yield running


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene(SMALL, "fifo:walk=skip,borrow=never") as running:
        yield running


@pytest.fixture
def page(browser: Browser, stage: Scene) -> Iterator[Page]:
    """At the server's address; no script fails, and nothing breaks the content security policy."""
    faults: list[str] = []
    context = browser.new_context(base_url=stage.address, viewport={"width": 1280, "height": 900})
    context.set_default_timeout(WAIT_MS)
    opened = context.new_page()
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda said: "Security Policy" in said.text and faults.append(said.text))
    yield opened
    context.close()
    assert faults == []
