"""Who may see and do what, and a server that goes and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from bench.scene import SMALL, Scene, make_token, scene
from playwright.sync_api import Page, expect

from skep.server.tokens import Tokens


@pytest.fixture(scope="module")
def stage() -> Iterator[Scene]:
    with scene(SMALL, "fifo:walk=skip,borrow=never", needs_token=True) as running:
        yield running


def log_in(page: Page, stage: Scene, user: str, role: str, *vcs: str) -> None:
    page.goto("/jobs?all=true")
    expect(page.get_by_role("heading", name="Log in to this server")).to_be_visible()
    page.get_by_label("Token").fill(make_token(stage.server.data, user, role, *vcs))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Jobs")).to_be_visible()  # where they wanted to go


def test_a_wrong_token_is_refused_in_words(page: Page) -> None:
    page.goto("/")
    page.get_by_label("Token").fill("skep_00000000_nonsense")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("token")


def test_an_admin_may_do_everything(page: Page, stage: Scene) -> None:
    job = stage.submit("somebodys", "sleep 600", vc="default", gpus=1)
    log_in(page, stage, "root", "admin")
    page.goto(f"/jobs/{job}")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.goto("/nodes")
    expect(page.get_by_role("button", name="Drain").first).to_be_visible()
    page.goto("/policy")
    expect(page.get_by_role("button", name="Switch to las", exact=True)).to_be_visible()


def test_a_user_changes_own_jobs_only(page: Page, stage: Scene) -> None:
    other = stage.submit("of-root", "sleep 600", vc="default", gpus=1)
    log_in(page, stage, "ann", "user")
    page.goto("/submit")
    page.get_by_label("Job file").fill("name: of-ann\ngpus: 1\ncommand: sleep 600\n")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.goto(f"/jobs/{other}")
    expect(page.get_by_role("heading", level=1)).to_contain_text("of-root")
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    page.goto("/nodes")
    expect(page.locator("[data-node]")).to_have_count(2)
    expect(page.get_by_role("button", name="Drain")).to_have_count(0)


def test_a_viewer_only_looks_and_can_log_out(page: Page, stage: Scene) -> None:
    log_in(page, stage, "vic", "viewer")
    page.goto("/submit")
    expect(page.get_by_text("Your role only looks.")).to_be_visible()
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    page.get_by_role("button", name="You and the look").click()
    page.get_by_role("menuitem", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_owner_changes_the_jobs_of_the_own_vc(page: Page, stage: Scene) -> None:
    inside, outside = (stage.submit(f"in-{vc}", "sleep 600", vc=vc, gpus=1) for vc in ("default", "other"))
    log_in(page, stage, "olga", "owner", "default")
    page.goto(f"/jobs/{inside}")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.goto(f"/jobs/{outside}")
    expect(page.get_by_role("alert")).to_contain_text("there is no job")  # of another VC it knows nothing


def test_a_token_that_is_revoked_leads_back_to_the_login(page: Page, stage: Scene) -> None:
    log_in(page, stage, "rita", "user")
    with closing(Tokens(stage.server.data)) as tokens:
        for token in tokens.list():
            if token.user == "rita":
                tokens.revoke(token.id)
    # Another question of the page may have led there already.
    page.evaluate("document.querySelector('a[href=\"/nodes\"]')?.click()")
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_restarted_server_is_shown_and_the_page_comes_back_by_itself(page: Page, stage: Scene) -> None:
    log_in(page, stage, "root", "admin")
    expect(page.locator(".link")).to_have_text("live")
    stage.server.stop()
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    stage.server.start()
    stage.submit("after-the-restart", "sleep 600", vc="other", gpus=1)
    expect(page.locator(".link")).to_have_text("live")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator(".jobs tbody")).to_contain_text("after-the-restart")
