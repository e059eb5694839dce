"""What is shown is true: sums over attempts, progress, nodes, names, colours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from bench.scene import Scene, scene, until
from playwright.sync_api import Page, expect

CLUSTER = "name: pair\nnodes:\n  - {count: 2, name: n, gpus: 4}\n"
FAILS_ONCE = "if [ $SKEP_LAUNCH = 1 ]; then sleep 3; exit 1; fi; sleep 600"


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene(CLUSTER, "fifo") as running:
        yield running


@pytest.fixture(autouse=True)
def clean(stage: Scene) -> Iterator[None]:
    yield
    ids = [job["id"] for job in stage.client.get("/jobs", params={"limit": 1000}).json()["jobs"]]
    if ids:
        stage.client.post("/jobs:bulk", json={"ids": ids, "action": "stop"})
        until(lambda: not stage.client.get("/jobs").json()["jobs"], "the end of all jobs")


def skep(stage: Scene, *words: str) -> str:
    env = {**os.environ, "SKEP_URL": stage.address, "COLUMNS": "200"}
    command = [sys.executable, "-m", "skep.cli.main", *words]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def seconds(text: str) -> float:
    """`42 s`, `1.5 min`."""
    number, unit = re.search(r"([\d.]+) (s|min)\b", text).groups()  # type: ignore[union-attr]
    return float(number) * (60 if unit == "min" else 1)


def clock(text: str) -> int:
    """`1:02`."""
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total


def test_times_are_sums_over_attempts_with_the_one_that_runs(page: Page, stage: Scene) -> None:
    body = {"name": "twice", "command": FAILS_ONCE, "gpus": 2, "retries": 2}
    job = stage.client.post("/jobs", json=body, headers={"X-Skep-User": "ann"}).json()["id"]
    stage.wait(job, lambda found: found["attempts"] == 2 and found["state"] == "running")
    stage.wait(job, lambda found: found["ran_s"] > 5)
    found: dict[str, Any] = stage.job(job)
    ran = sum((each["end_s"] or found["at_s"]) - each["start_s"] for each in found["history"])
    assert abs(found["ran_s"] - ran) < 0.01
    assert abs(found["service_gpu_s"] - 2 * ran) < 0.02
    assert abs(found["waited_s"] + found["ran_s"] - (found["at_s"] - found["submit_s"])) < 0.01
    idle_s = found["history"][1]["start_s"] - found["history"][0]["end_s"]
    assert idle_s > 1  # else there would be nothing to tell apart
    page.goto(f"/jobs/{job}")
    facts = page.locator(".job-facts")
    shown = seconds(facts.locator("div", has_text=re.compile("^Ran")).inner_text())
    now = stage.job(job)
    assert abs(shown - now["ran_s"]) <= 2
    waited = seconds(facts.locator("div", has_text=re.compile("^Waited")).inner_text())
    assert abs(waited - now["waited_s"]) <= 2
    expect(facts.locator("div", has_text=re.compile("^GPU-hours"))).not_to_have_text("GPU-hours0")
    row = page.goto(f"/jobs?q={job}") and page.locator(".jobs tbody tr")
    shown = seconds(row.locator('[data-column="ran"]').inner_text())
    assert abs(shown - stage.job(job)["ran_s"]) <= 2
    assert abs(clock(skep(stage, "ps").splitlines()[1].split()[7]) - stage.job(job)["ran_s"]) <= 2
    told = re.search(r"waited ([\d:]+), ran ([\d:]+), [\d.]+ GPU-hours", skep(stage, "show", job))
    assert told is not None
    assert abs(clock(told[2]) - stage.job(job)["ran_s"]) <= 2


def test_a_wrong_clock_of_the_reader_changes_no_time(page: Page, stage: Scene) -> None:
    job = stage.submit("clocked", "sleep 600", gpus=1)
    stage.wait(job, lambda found: found["state"] == "running")
    page.add_init_script("const right = Date.now; Date.now = () => right() + 3600_000;")
    page.goto(f"/jobs/{job}")
    ran = page.locator(".job-facts div", has_text=re.compile("^Ran"))
    page.wait_for_timeout(2500)
    assert abs(seconds(ran.inner_text()) - stage.job(job)["ran_s"]) <= 3


def test_progress_in_the_table_is_live(page: Page, stage: Scene) -> None:
    stage.train("moving", gpus=1, steps=400, step_s=0.2)
    page.goto("/jobs")
    cell = page.locator('.jobs tbody [data-column="progress"] .meter')
    expect(cell).to_have_attribute("title", re.compile("step"))
    before = int(re.search(r"step (\d+)", cell.get_attribute("title") or "")[1])  # type: ignore[index]
    expect(cell).not_to_have_attribute("title", re.compile(rf"step {before}\b"), timeout=8000)
    later = re.search(r"step (\d+)", cell.get_attribute("title") or "")
    assert later is not None
    assert int(later[1]) > before


def test_the_sentence_on_nodes_is_true(page: Page, stage: Scene) -> None:
    job = stage.submit("resident", "sleep 600", gpus=3)
    stage.wait(job, lambda found: found["state"] == "running")
    page.goto("/nodes")
    verdict = page.locator(".verdict")
    expect(verdict).to_have_text("3 of 8 GPUs used; no node out of use.")
    stage.client.patch("/nodes/n1", json={"state": "drained"})
    expect(verdict).to_have_text("3 of 8 GPUs used; n1 is drained.")
    stage.client.patch("/nodes/n1", json={"state": "up"})
    link = page.locator('[data-node="n0"] .gpus a')
    expect(link).to_have_text(f"{job} resident")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("resident")


def test_events_name_their_jobs_and_link_those_they_speak_of(page: Page, stage: Scene) -> None:
    stage.client.put("/policy", json={"policy": "tiresias-l:queues=5"})
    old = stage.submit("old-one", "sleep 600", count=2, gpus=4)
    stage.wait(old, lambda found: found["ran_s"] > 2)
    new = stage.submit("new-one", "sleep 4", count=2, gpus=4)
    page.goto("/")
    events = page.locator(".events")
    expect(events.get_by_role("link", name=f"{old} old-one", exact=True).first).to_be_visible()
    page.goto(f"/jobs/{old}?tab=events")
    speaks = page.locator(".events").get_by_role("link", name=f"job {new} new-one").first
    expect(speaks).to_be_visible()
    speaks.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("new-one")
    assert " new-one " in skep(stage, "events", "--last", "20")
    stage.client.put("/policy", json={"policy": "fifo"})


def test_neighbours_on_the_map_have_different_colours(page: Page, stage: Scene) -> None:
    """Ids that differ by eight had the same colour."""
    for name in ("first", "second"):
        while int(stage.submit("between", "true", gpus=1)) % 8 != 7:
            pass
        job = stage.submit(name, "sleep 600", gpus=1)
        assert int(job) % 8 == 0
        stage.wait(job, lambda found: found["state"] == "running")
    until(lambda: len(stage.client.get("/jobs").json()["jobs"]) == 2, "the others")
    page.goto("/")
    page.get_by_role("radio", name="Job").first.click()
    page.wait_for_timeout(500)
    count = page.evaluate(
        """() => {
          const canvas = document.querySelector('.map canvas');
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Map();
          for (let at = 0; at < data.length; at += 4) {
            const [r, g, b, a] = data.slice(at, at + 4);
            const strong = a === 255 && Math.max(r, g, b) - Math.min(r, g, b) > 60;
            if (strong) { const key = [r, g, b].join(); seen.set(key, (seen.get(key) ?? 0) + 1); }
          }
          return [...seen.values()].filter((pixels) => pixels > 150).length;
        }"""
    )
    assert count == 2


def test_curves_over_time_say_that_their_values_are_means(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".card .note", has_text="Means over")).to_have_text("Means over 30 s.")
