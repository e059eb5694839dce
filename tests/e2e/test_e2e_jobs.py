"""Jobs in the browser: submitted, watched, read, stopped, refused."""

from __future__ import annotations

import re

from bench.scene import Scene
from playwright.sync_api import Page, expect

COUNTING = "for i in $(seq 1000); do echo line $i; sleep 0.2; done"


def test_a_job_is_submitted_by_form_seen_running_read_live_and_stopped(page: Page) -> None:
    page.goto("/submit")
    page.get_by_label("Name").fill("from-the-form")
    page.get_by_label("Command").fill(COUNTING)
    editor = page.get_by_label("Job file")
    expect(editor).to_have_value(re.compile("name: from-the-form"))
    expect(page.get_by_text("The server would take it: 1 job, 1 GPU.")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("from-the-form"))).to_be_visible()
    expect(page.locator(".verdict")).to_contain_text("running")
    page.get_by_role("tab", name="Logs").click()
    log = page.get_by_role("log")
    expect(log).to_contain_text("line 2")
    seen = int(log.inner_text().split("line")[-1])
    expect(log).to_contain_text(f"line {seen + 3}")  # it goes on by itself
    page.get_by_label("Search").fill("line 2")
    expect(page.locator("mark").first).to_have_text("line 2")
    page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox").fill("enough seen")
    dialog.get_by_role("button", name="Stop").click()
    expect(page.locator(".verdict")).to_contain_text("stopped")
    page.get_by_role("tab", name="Events").click()
    expect(page.get_by_text("enough seen").first).to_be_visible()


def test_wrong_input_is_refused_while_typing_in_the_words_of_the_api(page: Page) -> None:
    page.goto("/submit")
    editor = page.get_by_label("Job file")
    editor.fill("name: bad name\ngpus: 1\ncommand: 'true'\n")
    expect(page.locator(".verdicts .problem")).to_contain_text("name")
    expect(page.locator(".editor li.bad")).to_have_text("1")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    editor.fill("name: [\n")
    expect(page.get_by_text("The file cannot be read as one job")).to_be_visible()
    editor.fill("name: fine\ngpus: 1\ncommand: 'true'\n")
    expect(page.get_by_role("button", name="Submit", exact=True)).to_be_enabled()
    page.get_by_label("GPUs").fill("999")
    expect(page.locator(".verdicts .problem")).to_contain_text("can never run here")


def test_examples_are_files_that_the_server_takes(page: Page) -> None:
    page.goto("/submit")
    choice = page.get_by_label("Begin with")
    expect(choice.locator("option")).not_to_have_count(1)
    choice.select_option(index=1)
    expect(page.get_by_label("Job file")).not_to_have_value(re.compile("name: hello\n"))
    expect(page.locator(".verdicts")).to_contain_text("The server would take it")


def test_why_a_job_waits_is_said_and_changes_by_itself(page: Page, stage: Scene) -> None:
    first = stage.submit("holder", "sleep 600", vc="other", gpus=4)
    waiting = stage.submit("waiter", "sleep 600", vc="other", gpus=4)
    page.goto(f"/jobs/{waiting}")
    expect(page.get_by_text("Why it waits:")).to_be_visible()
    expect(page.locator(".why")).to_contain_text(re.compile("asks for 4 GPUs", re.IGNORECASE))
    stage.client.post(f"/jobs/{first}/stop", json={})
    expect(page.locator(".verdict")).to_contain_text("running")
    expect(page.get_by_text("Why it waits:")).to_be_hidden()
    stage.client.post(f"/jobs/{waiting}/stop", json={})


def test_a_fix_is_tried_out_pressed_and_the_job_starts(page: Page, stage: Scene) -> None:
    first = stage.submit("holder", "sleep 600", vc="other", gpus=3)
    waiting = stage.submit("large", "sleep 600", vc="other", gpus=4)
    page.goto(f"/jobs/{waiting}")
    page.get_by_role("button", name="What would let it start?").click()
    offered = page.get_by_role("list", name="Changes that help")
    expect(offered.get_by_role("link", name=f"job {first} holder").first).to_be_visible()  # wait for it to end
    expect(page.get_by_role("button", name=f"stop job {first}")).to_be_visible()
    page.get_by_role("button", name="ask for 1 GPU instead of 4").click()
    expect(page.locator(".verdict")).to_contain_text("running")
    expect(page.locator(".job-facts")).to_contain_text("GPUs1")
    for each in (first, waiting):
        stage.client.post(f"/jobs/{each}/stop", json={})


def test_jobs_are_filtered_by_address_sorted_searched_and_changed_in_bulk(page: Page, stage: Scene) -> None:
    for number in range(3):
        stage.submit(f"bulk-{number}", "sleep 600", gpus=4)
    page.goto("/jobs?q=bulk")
    rows = page.locator(".jobs tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_label("Search").fill("bulk-1")
    expect(rows).to_have_count(1)
    expect(page).to_have_url(re.compile("q=bulk-1"))
    page.get_by_label("Search").fill("bulk")
    page.get_by_role("button", name="Priority").click()
    page.get_by_role("button", name="Job", exact=True).click()
    expect(page).to_have_url(re.compile("sort=id"))
    expect(rows.first).to_contain_text("bulk-0")
    page.get_by_label("Choose all that are loaded").check()
    page.get_by_label("Chosen jobs").get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(page.locator(".toast")).to_contain_text("3 jobs stopped")
    expect(page.get_by_text("No job matches.")).to_be_visible()  # they ended, and ended ones are not shown
    page.get_by_label("ended ones too").check()
    expect(rows).to_have_count(3)


def test_new_jobs_appear_by_themselves(page: Page, stage: Scene) -> None:
    page.goto("/jobs?q=sudden")
    expect(page.get_by_text("No job matches.")).to_be_visible()
    expect(page.locator(".link")).to_have_text("live")
    job = stage.submit("sudden", "sleep 600", gpus=1)
    expect(page.locator(".jobs tbody tr")).to_contain_text("sudden")
    stage.client.post(f"/jobs/{job}/stop", json={})


def test_a_job_is_cloned_and_resubmitted(page: Page, stage: Scene) -> None:
    job = stage.submit("again", "true", gpus=1)
    page.goto(f"/jobs/{job}")
    page.get_by_role("button", name="Resubmit").click()
    page.get_by_role("dialog").get_by_role("button", name="Resubmit").click()
    expect(page.get_by_role("heading", level=1)).not_to_contain_text(f"Job {job} ")
    expect(page.locator(".verdict")).to_contain_text("succeeded")
    page.get_by_role("link", name="Clone").click()
    expect(page.get_by_label("Job file")).to_have_value(re.compile("name: again"))


def test_names_and_log_text_never_become_markup(page: Page, stage: Scene) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    job = stage.submit("markup", f"echo '{evil.replace(chr(39), chr(34))}'; sleep 600", gpus=1, tags=["<b>bold</b>"])
    page.goto(f"/jobs/{job}?tab=logs")
    expect(page.get_by_role("log")).to_contain_text("<img src=x onerror=")
    expect(page.locator("#main img")).to_have_count(0)
    expect(page.get_by_text("<b>bold</b>").first).to_be_visible()
    expect(page).to_have_title("markup (" + job + ") · Skep")
    stage.client.post(f"/jobs/{job}/stop", json={})
