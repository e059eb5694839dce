"""A server that goes away takes nothing from the reader; logs with true numbers, searched from their end."""

from __future__ import annotations

import re
from pathlib import Path

from bench.scene import Scene
from playwright.sync_api import Browser, Page, expect

COUNTING = "i=0; while true; do i=$((i+1)); echo line $i of many; sleep 0.05; done"
LONG = "seq -f 'row %.0f' 30000; echo last words; sleep 600"
PAGES = ("Jobs", "Compare", "Searches", "Submit", "Virtual clusters", "Nodes", "Policy", "Studies", "Overview")


def test_every_page_opens_while_the_server_is_away(page: Page, stage: Scene) -> None:
    page.goto("/jobs")
    expect(page.locator(".link")).to_have_text("live")
    page.wait_for_load_state("networkidle")
    stage.server.stop()
    try:
        expect(page.get_by_role("alert").first).to_contain_text("The server does not answer")
        nav = page.get_by_role("navigation", name="Pages")
        for name in PAGES:
            nav.get_by_role("link", name=name, exact=True).click()
            expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(name if name != "Overview" else "."))
            expect(nav).to_be_visible()
    finally:
        stage.server.start()
    expect(page.locator(".link")).to_have_text("live")
    expect(page.locator(".verdict")).to_contain_text("GPUs are at work")


def test_a_page_that_cannot_be_loaded_is_tried_again_inside_the_frame(browser: Browser, stage: Scene) -> None:
    context = browser.new_context(base_url=stage.address)
    page = context.new_page()
    context.route(re.compile(r"/assets/NodesPage.*"), lambda route: route.abort())
    page.goto("/jobs")
    expect(page.locator(".link")).to_have_text("live")
    stage.server.stop()
    try:
        page.get_by_role("link", name="Nodes").click()
        expect(page.get_by_text("This page could not be loaded")).to_be_visible()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
        context.unroute_all()
    finally:
        stage.server.start()
    expect(page.locator(".verdict")).to_contain_text("GPUs used", timeout=60_000)  # by itself
    context.close()


def test_a_log_keeps_its_lines_and_says_that_it_is_not_connected(page: Page, stage: Scene) -> None:
    job = stage.submit("writer", COUNTING, gpus=1)
    page.goto(f"/jobs/{job}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("line 5 of many")
    status = page.locator(".log-tools [role=status]")
    expect(status).to_contain_text("live")
    stage.server.stop()
    try:
        expect(status).to_contain_text("not connected")
        expect(log).to_contain_text("line 5 of many")
        seen = int(re.findall(r"line (\d+) of", log.inner_text())[-1])
    finally:
        stage.server.start()
    expect(status).to_contain_text("live")
    expect(log).to_contain_text(f"line {seen + 100} of many")  # it follows the end
    numbers = [int(text) for text in log.locator(".line-number").all_inner_texts()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))  # none missing, none twice
    expect(log.locator("p").last).to_have_text(re.compile(r"^(\d+)line \1 of many$"))
    stage.client.post(f"/jobs/{job}/stop", json={})
    expect(status).to_contain_text("ended")


def test_a_long_log_has_true_numbers_links_a_search_and_a_download(page: Page, stage: Scene, tmp_path: Path) -> None:
    job = stage.submit("long", LONG, gpus=1)
    page.goto(f"/jobs/{job}?tab=logs")
    log = page.get_by_role("log")
    expect(log.locator("p").last).to_have_text("30001last words")
    page.get_by_label("Search").fill("row 1")
    page.get_by_role("button", name="Search the whole log").click()
    found = page.locator(".matches li")
    expect(found.first).to_contain_text("19999")  # the newest line with these words
    expect(page.get_by_text("the newest first; all")).to_contain_text("were searched")
    expect(page.get_by_text("The newest 200 lines of more")).to_be_visible()
    found.nth(2).get_by_role("link").click()
    expect(page).to_have_url(re.compile("line=19997"))
    marked = log.locator('[aria-current="true"]')
    expect(marked).to_have_text("19997row 19997")
    page.reload()
    expect(marked).to_have_text("19997row 19997")
    expect(marked).to_be_in_viewport()
    page.get_by_role("link", name="to the end").click()
    expect(log.locator("p").last).to_have_text("30001last words")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (30001, "row 1", "last words")
    stage.client.post(f"/jobs/{job}/stop", json={})


def test_long_lines_wrap_if_one_wants(page: Page, stage: Scene) -> None:
    job = stage.submit("wide", "python3 -c 'print(\"word \" * 400)'; echo end; sleep 600", gpus=1)
    page.goto(f"/jobs/{job}?tab=logs")
    log = page.get_by_role("log")
    expect(log).to_contain_text("end")
    assert log.evaluate("element => element.scrollWidth > element.clientWidth")
    page.get_by_label("wrap").check()
    expect(log.locator("p").first).to_have_css("white-space", "pre-wrap")
    assert log.evaluate("element => element.scrollWidth <= element.clientWidth")
    first, second = (line.bounding_box() or {} for line in log.locator("p").all()[:2])
    assert first["y"] + first["height"] <= second["y"] + 1  # they do not overlap
    stage.client.post(f"/jobs/{job}/stop", json={})


def test_a_failed_job_opens_with_its_last_lines(page: Page, stage: Scene) -> None:
    job = stage.submit("fails", "seq -f 'row %.0f' 100; echo the disk is on fire >&2; exit 3", gpus=1)
    stage.wait(job, lambda found: found["state"] == "failed")
    page.goto(f"/jobs/{job}")
    lines = page.get_by_label("Its last lines")
    expect(lines).to_contain_text("the disk is on fire")
    assert lines.inner_text().strip().splitlines()[0] == "row 82"
    page.get_by_role("link", name="All of the log").click()
    expect(page.get_by_role("log")).to_contain_text("row 100")
