"""No page jumps while it is loaded: the layout shifts that Chromium measures stay small. Nothing is cut off."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from bench.scene import Scene, scene
from playwright.sync_api import Browser, expect

SHIFT_MAX = 0.1
WATCH = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput)
      window.shifts.push([entry.value, (entry.sources ?? []).map((source) => {
        const node = source.node?.nodeType === 1 ? source.node : source.node?.parentElement;
        return `${node?.tagName}.${node?.className}`;
      })]);
  }
}).observe({ type: 'layout-shift', buffered: true });
"""
PAGES = {
    "overview": ("/", ".gantt canvas"),
    "jobs": ("/jobs?all=true", ".jobs tbody tr"),
    "job": ("/jobs/train", ".gantt canvas"),
    "logs": ("/jobs/train?tab=logs", ".log p"),
    "curves": ("/jobs/train?tab=curves", ".chart canvas"),
    "configuration": ("/jobs/train?tab=configuration", "pre.text"),
    "events": ("/jobs/train?tab=events", ".events li"),
    "pending": ("/jobs/waits", ".why"),
    "pending-on-others": ("/jobs/waits-for-both", ".why"),
    "failed": ("/jobs/fails", ".last-lines"),
    "line": ("/jobs/fails?tab=logs&attempt=1&line=40", ".log [aria-current]"),
    "compare": ("/compare?group=tune", ".compared tbody tr"),
    "submit": ("/submit", ".verdicts .good"),
    "virtual-clusters": ("/virtual-clusters", ".vc-bars"),
    "nodes": ("/nodes", "[data-node]"),
    "policy": ("/policy", ".decisions tbody tr"),
    "studies": ("/studies", ".policies input"),
    "not-found": ("/nowhere", ".verdict"),
    "login": ("/login", "input[type=password]"),
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    vcs = "vcs:\n  default: 1 node\n  other: 1 node\n"
    with scene(f"name: two\nnodes:\n  - {{count: 2, name: n, gpus: 4}}\n{vcs}", "fifo:borrow=never") as running:
        running.submit("fails", "seq 50; exit 1", gpus=1)
        running.submit(
            "tune-${rate}", running.command("${rate}", steps=9, step_s=0.02), sweep={"rate": [0.1, 0.2]}, gpus=1
        )
        running.wait("tune-0.2", lambda job: job["state"] == "succeeded")
        running.train("train", gpus=4, step_s=0.1)
        running.wait("train", lambda job: (job["progress"] or {}).get("step", 0) > 2)
        running.submit("waits", "true", gpus=4)
        for name in ("a-training-whose-name-needs-a-line", "another-one-whose-name-needs-a-line"):
            running.submit(name, "sleep 600", gpus=2, vc="other")
        running.submit("waits-for-both", "true", gpus=4, vc="other")
        yield running


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("name", PAGES)
def test_nothing_jumps_or_is_cut_off(browser: Browser, stage: Scene, name: str, width: int) -> None:
    address, sign = PAGES[name]
    page = browser.new_page(base_url=stage.address, viewport={"width": width, "height": 900})
    page.add_init_script(WATCH)
    page.goto(address)
    page.locator(sign).first.wait_for()
    page.wait_for_timeout(1500)
    shifts = page.evaluate("window.shifts")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()
    assert sum(value for value, _ in shifts) <= SHIFT_MAX, shifts


def test_the_overview_says_how_long_half_of_the_jobs_wait(browser: Browser, stage: Scene) -> None:
    page = browser.new_page(base_url=stage.address)
    page.goto("/")
    expect(page.locator(".verdict")).to_have_text(re.compile(r"2 jobs wait, half of them for more than [\d.]+ \w+\.$"))
    page.close()


@pytest.mark.parametrize("width", [1280, 400])
def test_the_table_of_a_sweep_stays_inside_its_card(browser: Browser, stage: Scene, width: int) -> None:
    page = browser.new_page(base_url=stage.address, viewport={"width": width, "height": 900})
    page.goto("/compare?group=tune")
    page.locator(".compared tbody tr").first.wait_for()
    inner, outer = (page.locator(each).first.bounding_box() for each in (".compared", ".card:has(.compared)"))
    page.close()
    assert inner is not None
    assert outer is not None
    assert outer["x"] <= inner["x"]
    assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]
    assert inner["y"] + inner["height"] <= outer["y"] + outer["height"]
