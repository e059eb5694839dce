"""The page Submit on a cluster with VCs, none of which is called `default`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from bench.scene import Scene, scene
from playwright.sync_api import Page, expect

TEAMS = """\
nodes: [{count: 2, name: n, gpus: 4, socket: 2}]
vcs: {empty: , prod: 1 socket, research: 1 node}
"""
CHOSEN = "VC research was chosen: this cluster has no VC default, and no other is named"


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene(TEAMS, "fifo") as running:
        yield running


def test_the_first_file_goes_to_a_vc_with_gpus_and_the_page_says_which(page: Page, stage: Scene) -> None:
    page.goto("/submit")
    expect(page.locator(".verdicts")).to_contain_text(CHOSEN)
    expect(page.get_by_label("Virtual cluster")).to_have_attribute("placeholder", "research")
    page.get_by_label("Virtual cluster").fill("prod")
    expect(page.locator(".verdicts")).not_to_contain_text(CHOSEN)
    page.get_by_label("Virtual cluster").fill("")
    expect(page.locator(".verdicts")).to_contain_text(CHOSEN)
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("hello"))).to_be_visible()
    (job,) = stage.client.get("/jobs?all=true").json()["jobs"]
    assert job["vc"] == "research"


def test_every_example_is_taken(page: Page) -> None:
    page.goto("/submit")
    choice = page.get_by_label("Begin with")
    expect(choice.locator("option")).not_to_have_count(1)
    names = [option.get_attribute("value") for option in choice.locator("option").all()]
    for name in filter(None, names):
        choice.select_option(name)
        expect(page.get_by_label("Job file")).not_to_have_value(re.compile("name: hello\n"))
        expect(page.locator(".verdicts .good")).to_contain_text("The server would take it")
        expect(page.locator(".verdicts")).to_contain_text(CHOSEN)
