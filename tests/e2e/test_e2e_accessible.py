"""Every page: for screen readers and keyboards, light and dark. `test_e2e_steady.py` opens them on small screens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from bench.scene import Scene, scene
from playwright.sync_api import Browser, Page, expect

PAGES = {
    "overview": ("/", ".gantt canvas"),
    "jobs": ("/jobs?all=true", ".jobs tbody tr"),
    "job": ("/jobs/train", ".gantt canvas"),
    "logs": ("/jobs/train?tab=logs", ".log p"),
    "curves": ("/jobs/train?tab=curves", ".chart canvas"),
    "configuration": ("/jobs/train?tab=configuration", "pre.text"),
    "events": ("/jobs/train?tab=events", ".events li"),
    "pending": ("/jobs/waits", ".why"),
    "failed": ("/jobs/fails", ".last-lines"),
    "line": ("/jobs/fails?tab=logs&attempt=1&line=40", ".log [aria-current]"),
    "not-found": ("/nowhere", ".verdict"),
    "compare": ("/compare?jobs=train,waits", ".compared tbody tr"),
    "searches": ("/searches?name=tune", ".trials tbody tr"),
    "submit": ("/submit", ".verdicts .good"),
    "virtual-clusters": ("/virtual-clusters", ".vc-bars"),
    "nodes": ("/nodes", "[data-node]"),
    "policy": ("/policy", ".decisions tbody tr"),
    "studies": ("/studies", ".policies input"),
    "login": ("/login", "input[type=password]"),
}


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene("name: one\nnodes:\n  - {count: 1, name: n, gpus: 2}\n", "fifo") as running:
        running.submit("fails", "seq 50; exit 1", vc="default", gpus=1)
        running.wait("fails", lambda job: job["state"] == "failed")
        running.train("train", vc="default", gpus=2, step_s=0.1)
        running.wait("train", lambda job: (job["progress"] or {}).get("step", 0) > 2)
        running.submit("waits", "true", vc="default", gpus=2)
        search = {"metric": "loss", "parameters": {"rate": [1, 2]}}
        body = {"name": "tune", "command": "true ${rate}", "gpus": 2, "search": search}
        assert running.client.post("/jobs", json=body).status_code == 201
        yield running


@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_serious_fault(browser: Browser, stage: Scene, name: str) -> None:
    address, sign = PAGES[name]
    page = browser.new_page(base_url=stage.address, color_scheme="light", viewport={"width": 1280, "height": 900})
    page.goto(address)
    page.locator(sign).first.wait_for()
    light = serious_faults(page)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.locator(sign).first.wait_for()
    dark = serious_faults(page)
    page.close()
    assert {"light": light, "dark": dark} == {"light": [], "dark": []}


def serious_faults(page: Page) -> list[tuple[str, list[str]]]:
    found = [fault for fault in Axe().run(page).response["violations"] if fault["impact"] in ("serious", "critical")]
    return [(fault["id"], [node["html"][:200] for node in fault["nodes"][:3]]) for fault in found]


def test_a_dialog_keeps_the_focus_and_closes_on_escape(page: Page) -> None:
    page.goto("/jobs/train")
    stop = page.get_by_role("button", name="Stop")
    stop.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    for _ in range(8):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(stop).to_be_focused()


def test_the_timeline_is_zoomed_and_moved_by_keyboard(page: Page) -> None:
    page.goto("/")
    rows = page.get_by_role("group", name="Timeline of GPUs")
    rows.focus()
    now = page.get_by_role("button", name="Now")
    expect(now).to_be_disabled()
    page.keyboard.press("+")
    page.keyboard.press("ArrowLeft")
    expect(now).to_be_enabled()
    page.keyboard.press("Home")
    expect(now).to_be_disabled()


def test_the_chosen_theme_stays(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="You and the look").click()
    page.get_by_role("menuitemradio", name="Dark", exact=True).click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
