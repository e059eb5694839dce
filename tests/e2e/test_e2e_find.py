"""Finding one's way: compared sweeps, views, many jobs at once, drafts, addresses that lead nowhere, the first run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from bench.scene import SMALL, Scene, scene
from playwright.sync_api import Browser, Page, expect

RATES = [round(0.01 * 1.3**number, 4) for number in range(20)]


def test_a_sweep_is_one_sortable_table_with_its_parameters_and_the_best(page: Page, stage: Scene) -> None:
    command = stage.command("${rate}", steps=20, step_s=0.01)
    stage.submit("sweep-${rate}", command, sweep={"rate": RATES})
    stage.wait(f"sweep-{RATES[-1]}", lambda job: job["state"] == "succeeded")
    page.goto("/compare?group=sweep")
    table = page.get_by_role("region", name="Jobs side by side")
    expect(table.locator("table")).to_have_attribute("aria-rowcount", "21")  # all of them, and the heading
    expect(page.locator(".verdict")).to_contain_text("20 jobs")
    expect(table.get_by_role("columnheader", name="rate")).to_be_visible()
    for job in stage.client.get("/jobs", params={"group": "sweep", "all": True}).json()["jobs"]:
        stage.wait(job["id"], lambda found: found["state"] == "succeeded")
    best = table.locator("tr[data-best]")
    expect(best).to_have_count(1)
    expect(best).to_contain_text(f"sweep-{RATES[-1]}")  # the loss falls fastest
    expect(best).to_contain_text("best")
    expect(table.locator("tbody tr").first).to_contain_text("best")
    rate = table.locator('tbody tr [data-column="p.rate"]')
    table.get_by_role("button", name="rate").click()
    expect(rate.first).to_have_text(str(RATES[0]))
    table.get_by_role("button", name="rate").click()
    expect(rate.first).to_have_text(str(RATES[-1]))
    expect(page).to_have_url(re.compile(r"sort=-p\.rate"))
    page.get_by_label("What is better").select_option("high")
    expect(best).to_contain_text(f"sweep-{RATES[0]} ")
    expect(page.get_by_text("Of 8 of 20 jobs")).to_be_visible()
    page.get_by_label("Draw job").nth(8).check()
    expect(page.get_by_text("Of 9 of 20 jobs")).to_be_visible()


def test_an_address_that_leads_nowhere_keeps_the_frame(page: Page) -> None:
    for address in ("/jobs/1/nothing", "/policy/x/y", "/nowhere"):
        page.goto(address)
        expect(page.get_by_text("There is no page at this address.")).to_be_visible()
        expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Jobs").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()


def test_the_first_page_of_a_new_server_says_three_commands_that_work(browser: Browser, tmp_path: Path) -> None:
    cluster = SMALL.replace("default: 1 node", "first: 1 node")
    with scene(cluster, "fifo") as fresh:
        page = browser.new_page(base_url=fresh.address)
        page.goto("/")
        expect(page.get_by_role("heading", name="Nothing has run here yet")).to_be_visible()
        commands = page.get_by_label("Command").all_inner_texts()
        assert len(commands) == 3
        lines = [*page.get_by_label("In a new shell").all_inner_texts(), *commands]
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
        done = subprocess.run(
            ["bash", "-ec", "\n".join(lines)], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("hello") >= 2  # as it ran, and in its log
        expect(page.locator(".tiles")).to_contain_text("1 job succeeded")
        expect(page.get_by_text("Nothing has run here yet")).to_have_count(0)
        page.close()


def test_long_names_are_cut_and_their_titles_have_all(page: Page, stage: Scene) -> None:
    name = "a-very-" + "long-" * 40 + "name"
    job = stage.submit(name, "sleep 600", vc="default", gpus=1, user="u" * 60)
    stage.wait(job, lambda found: found["state"] == "running")
    for address, place in (
        (f"/jobs/{job}", "h1"),
        ("/jobs", f'.jobs tbody a[href="/jobs/{job}"]'),
        ("/nodes", ".gpus a"),
        ("/", f'.events a[href="/jobs/{job}"]'),
        (f"/compare?jobs={job}", f'.compared a[href="/jobs/{job}"]'),
    ):
        page.goto(address)
        shown = page.locator(place).first
        expect(shown).to_have_attribute("title", re.compile(name))
        box = shown.bounding_box()
        assert box is not None
        assert box["height"] < 30, address  # one line
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    stage.client.post(f"/jobs/{job}/stop", json={})


def test_mine_and_saved_views(page: Page, stage: Scene) -> None:
    for user in ("ann", "bob"):
        stage.client.post(
            "/jobs", json={"name": f"of-{user}", "command": "true", "hold": True}, headers={"X-Skep-User": user}
        )
    page.goto("/jobs?q=of-")
    rows = page.locator(".jobs tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_label("mine").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill("bob")
    dialog.get_by_role("button", name="Show them").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("of-bob")
    expect(page).to_have_url(re.compile("mine=true"))
    page.get_by_role("button", name="Save view").click()
    dialog.get_by_label("Name of the view").fill("my waiting ones")
    dialog.get_by_role("button", name="Save").click()
    page.goto("/jobs?all=true")
    page.get_by_label("Saved views").select_option("my waiting ones")
    expect(page).to_have_url(re.compile("q=of-.*mine=true|mine=true.*q=of-"))
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Forget view").click()
    expect(page.get_by_label("Saved views")).to_have_count(0)


def test_all_that_match_are_changed_and_not_only_those_that_are_loaded(page: Page, stage: Scene) -> None:
    body = {"name": "many", "command": "true", "hold": True, "sweep": {"n": list(range(430))}}
    assert stage.client.post("/jobs", json=body).status_code == 201
    page.goto("/jobs?group=many")
    expect(page.get_by_text("430 jobs, 200 loaded")).to_be_visible()
    page.get_by_label("Choose all that are loaded").check()
    page.get_by_role("button", name="Choose all 430 that match").click()
    bulk = page.get_by_label("Chosen jobs")
    expect(bulk).to_contain_text("430 jobs chosen")
    bulk.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".toast")).to_contain_text("430 jobs stopped")
    counts = stage.client.get("/jobs", params={"group": "many", "all": True, "counts": True, "limit": 1}).json()[
        "counts"
    ]
    assert counts["stopped"] == 430


def test_a_draft_survives_back_and_a_reload(page: Page) -> None:
    page.goto("/jobs")
    page.get_by_role("link", name="Submit a job").click()
    page.get_by_label("Job file").fill("name: half-written\ngpus: 1\ncommand: sleep 1\n")
    page.go_back()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    page.go_forward()
    editor = page.get_by_label("Job file")
    expect(editor).to_have_value(re.compile("half-written"))
    page.reload()
    expect(editor).to_have_value(re.compile("half-written"))
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("half-written")
    page.go_back()
    expect(editor).not_to_have_value(re.compile("half-written"))  # it was submitted


def test_the_vcs_of_a_trace_are_checked_before_a_study_runs(page: Page, stage: Scene) -> None:
    trace = "job_id,submit_s,duration_s,gpus,vc\n1,0,60,1,elsewhere\n2,5,60,1,other\n"
    page.goto("/studies")
    page.get_by_label("or a trace file").set_input_files(
        {"name": "vcs.csv", "mimeType": "text/csv", "buffer": trace.encode()}
    )
    expect(page.get_by_text(re.compile("vcs.csv: 2 jobs"))).not_to_have_count(0)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("VCs that this cluster does not have: elsewhere")
    assert stage.client.get("/studies").json() == []
    page.get_by_label("On", exact=True).fill("2x4")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.locator("[data-study] .state")).to_have_text("done")


def test_on_a_phone_the_navigation_shows_where_one_is(browser: Browser, stage: Scene) -> None:
    page = browser.new_page(base_url=stage.address, viewport={"width": 400, "height": 800})
    for address in ("/studies", "/policy", "/jobs", "/"):
        page.goto(address)
        here = page.locator('nav [aria-current="page"]')
        expect(here).to_be_in_viewport(ratio=1)
        nav, box = page.locator("header nav").bounding_box(), here.bounding_box()
        assert nav is not None
        assert box is not None
        assert nav["x"] <= box["x"]
        assert box["x"] + box["width"] <= nav["x"] + nav["width"]
    page.close()
