"""The page of a search fills, marks the best, and says why trials were stopped."""

from __future__ import annotations

import re

from bench.scene import PATH, Scene
from playwright.sync_api import Page, expect

RATES = [0.01, 0.02, 0.05, 0.1, 0.2, 0.4]


def submit(stage: Scene, name: str, **search: object) -> None:
    rule = {"metric": "loss", "rule": "asha", "first": 4, "parameters": {"rate": RATES}, **search}
    body = {
        "name": name,
        "command": stage.command("${rate}", steps=30, step_s=0.15),
        "workdir": str(stage.script.parent),
        "env": {"PATH": PATH},
        "gpus": 1,
        "search": rule,
    }
    answer = stage.client.post("/jobs", json=body, headers={"X-Skep-User": "ann"})
    assert answer.status_code == 201, answer.text


def test_the_page_of_a_search_fills_while_it_runs(page: Page, stage: Scene) -> None:
    submit(stage, "tune")
    page.goto("/searches?name=tune")
    expect(page.locator(".verdict")).to_contain_text("tune is running: 6 trials")
    drawing = page.get_by_role("img", name="Parameters and loss of 6 trials")
    expect(drawing.locator("path[data-best]")).to_have_count(1)
    table = page.get_by_role("region", name="Trials")
    expect(table.locator("tbody tr")).to_have_count(6)
    expect(page.locator(".verdict")).to_contain_text("has ended")
    best = table.locator("tr[data-best]")
    expect(best).to_have_count(1)
    expect(best).to_contain_text("0.4")
    expect(best).to_contain_text("succeeded")
    expect(table.locator("tbody tr").first).to_contain_text("best")
    expect(table.get_by_text(re.compile(r"stopped by its search: loss .* at step 4")).first).to_be_visible()
    expect(drawing.locator('path[d^="M"]')).to_have_count(6)
    expect(page.get_by_role("heading", name="Curves")).to_be_visible()
    expect(page.get_by_label("loss by step")).to_be_visible()
    table.locator("tbody tr").last.hover()
    expect(drawing.locator("path[data-marked]")).to_have_count(1)


def test_a_search_is_stopped_and_a_budget_ends_one(page: Page, stage: Scene) -> None:
    submit(stage, "slow", first=1000)
    page.goto("/searches?name=slow")
    page.get_by_role("button", name="Stop slow").click()
    expect(page.locator(".verdict")).to_contain_text("slow has ended")
    expect(page.get_by_role("region", name="Trials").get_by_text("its search was stopped").first).to_be_visible()
    submit(stage, "budget", first=1000, gpu_hours=2 / 3600)
    page.get_by_role("navigation", name="Searches").get_by_role("link", name="budget").click()
    expect(page.locator(".verdict")).to_contain_text("the budget of the search is spent")
