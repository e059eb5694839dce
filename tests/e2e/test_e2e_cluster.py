"""The cluster in the browser: preemption, drains, policies, studies."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from bench.scene import Scene, scene
from playwright.sync_api import Page, expect

CLUSTER = "name: pair\nnodes:\n  - {count: 2, name: n, gpus: 2}\n"


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    """Jobs that have had thirty GPU-seconds give way to new ones."""
    with scene(CLUSTER, "tiresias-l:queues=30") as running:
        yield running


@pytest.fixture(autouse=True)
def clean(stage: Scene) -> Iterator[None]:
    yield
    ids = [job["id"] for job in stage.client.get("/jobs", params={"limit": 1000}).json()["jobs"]]
    if ids:
        stage.client.post("/jobs:bulk", json={"ids": ids, "action": "stop"})


def test_a_job_is_seen_preempted_and_resumed(page: Page, stage: Scene) -> None:
    old = stage.train("old", vc="default", count=2, gpus=2, step_s=0.2)
    stage.wait(old, lambda job: (job["progress"] or {}).get("step", 0) > 8)
    page.goto(f"/jobs/{old}")
    expect(page.locator(".verdict")).to_contain_text("running")
    new = stage.submit("new", "sleep 1", vc="default", count=2, gpus=2)
    row = page.get_by_role("region", name="Attempts").locator("tbody tr")
    expect(row.last).to_contain_text("preempted")
    stage.wait(new, lambda job: job["state"] == "succeeded")
    expect(page.locator(".verdict")).to_contain_text("in 2 attempts")
    expect(row).to_have_count(2)
    page.get_by_role("tab", name="Curves").click()
    expect(page.get_by_role("heading", name="loss")).to_be_visible()
    page.goto("/policy")
    expect(page.get_by_role("region", name="Last decisions")).to_contain_text("makes room for job")


def test_a_drain_says_what_it_affects_and_shows(page: Page, stage: Scene) -> None:
    job = stage.submit("resident", "sleep 600", vc="default", count=2, gpus=2)
    stage.wait(job, lambda found: found["state"] == "running")
    page.goto("/nodes")
    node = page.locator('[data-node="n0"]')
    node.get_by_role("button", name="Drain").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("resident")
    expect(dialog).to_contain_text("2 GPUs of the cluster remain")
    dialog.get_by_role("button", name="Drain").click()
    expect(node.locator(".state")).to_have_text("drained")
    node.get_by_role("button", name="Use again").click()
    page.get_by_role("dialog").get_by_role("button", name="Use again").click()
    expect(node.locator(".state")).to_have_text("up")


def test_the_policy_is_switched_after_a_question(page: Page, stage: Scene) -> None:
    page.goto("/policy")
    expect(page.locator(".verdict")).to_contain_text("tiresias-l:queues=30 decides")
    page.get_by_role("button", name="Switch to las", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.locator(".verdict")).to_contain_text("tiresias-l")
    page.get_by_role("button", name="Switch to tiresias-l").click()
    dialog.get_by_label(re.compile("^queues")).fill("nonsense")
    dialog.get_by_role("button", name="Switch", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("queues")  # refused, in the API's words
    dialog.get_by_label(re.compile("^queues")).fill("31")
    dialog.get_by_role("button", name="Switch", exact=True).click()
    expect(page.locator(".verdict")).to_contain_text("tiresias-l:queues=31 decides")
    stage.client.put("/policy", json={"policy": "tiresias-l:queues=30"})
    expect(page.locator(".verdict")).to_contain_text("queues=30 decides")


def test_the_overview_shows_what_runs(page: Page, stage: Scene) -> None:
    job = stage.submit("visible", "sleep 600", vc="default", gpus=2)
    stage.wait(job, lambda found: found["state"] == "running")
    page.goto("/")
    expect(page.locator(".verdict")).to_contain_text("2 of 4 GPUs are at work")
    page.get_by_text("As a list").click()
    expect(page.get_by_label("Nodes and their jobs")).to_contain_text("visible")
    expect(page.locator(".gantt canvas")).to_be_visible()
    expect(page.locator(".chart canvas").first).to_be_visible()
    expect(page.locator(".events")).to_contain_text("runs on")
    stage.client.post(f"/jobs/{job}/stop", json={})
    expect(page.locator(".verdict")).to_contain_text("0 of 4 GPUs are at work")


TRACE = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"{n},{n * 10},{60 + n % 7 * 40},{1 + n % 2}\n" for n in range(60)
)


def test_a_study_runs_on_an_uploaded_trace_and_its_report_is_shown(page: Page) -> None:
    page.goto("/studies")
    page.get_by_label("or a trace file").set_input_files(
        {"name": "week.csv", "mimeType": "text/csv", "buffer": TRACE.encode()}
    )
    expect(page.get_by_text(re.compile("week.csv: 60 jobs"))).not_to_have_count(0)
    page.get_by_label("Name", exact=True).fill("tried")
    page.get_by_role("button", name="Run", exact=True).click()
    study = page.locator("[data-study]").filter(has_text="tried")
    expect(study.locator(".state")).to_have_text("done")
    expect(study.get_by_role("row", name=re.compile("fifo"))).to_contain_text("100%")
    study.get_by_role("button", name="Report").click()
    expect(page.frame_locator("iframe.report").get_by_role("heading", name="Policies")).to_be_visible()
    page.reload()
    expect(study.locator(".state")).to_have_text("done")  # past studies stay
    study.get_by_role("button", name="Remove").click()
    expect(study).to_have_count(0)


def test_a_wrong_trace_is_refused_in_words(page: Page) -> None:
    page.goto("/studies")
    page.get_by_label("or a trace file").set_input_files(
        {"name": "no.csv", "mimeType": "text/csv", "buffer": b"who,what\n1,2\n"}
    )
    expect(page.get_by_role("alert")).to_be_visible()
