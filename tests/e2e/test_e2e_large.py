"""The dashboard before many jobs: less than `python -m bench.dashboard`, and nothing that a busy machine breaks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bench.dashboard import Sight, large, scroll, under_events
from bench.scene import Scene
from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with large(2000) as running:
        yield running


def test_a_long_list_is_read_and_drawn_in_parts(browser: Browser, stage: Scene) -> None:
    sight = Sight(browser, stage)
    sight.open("/jobs", ".jobs tbody tr")
    assert sight.received < 300_000
    scroll(sight)
    assert sight.page.locator(".jobs tbody tr").count() < 80
    assert int(sight.page.locator(".jobs tbody tr").last.get_attribute("aria-rowindex") or 0) > 500
    sight.page.close()


def test_memory_is_stable_while_much_happens(browser: Browser, stage: Scene) -> None:
    sight = Sight(browser, stage)
    memory = next(figure for figure in under_events(sight, stage, 8) if figure.what.startswith("memory"))
    assert memory.is_kept, memory
    sight.page.close()
