"""Pictures of every page, light and dark: `python -m bench.screenshots [FOLDER] [PAGE …]`, from a scripted cluster.

A picture has the whole page; `-narrow` ones are 400 pixels wide, `-top` ones what is seen at first. Needs Chromium
(`SKEP_CHROMIUM` names it) and a built dashboard.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from bench.browser import launch
from bench.scene import Scene, scene, until
from playwright.sync_api import Browser, Page

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 800}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "screenshots")
    wanted = sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with scene() as stage, launch() as browser:
        stage.play()
        study(stage)
        for name, address in addresses(stage):
            if not wanted or name in wanted:
                take(browser, stage, folder, name, address)


def addresses(stage: Scene) -> Iterator[tuple[str, str]]:
    """Each page by a name."""
    ids = {job["name"]: job["id"] for job in stage.client.get("/jobs", params={"all": True}).json()["jobs"]}
    yield "overview", "/"
    yield "jobs", "/jobs?all=true"
    yield "job", f"/jobs/{ids['resnet-50']}"
    yield "logs", f"/jobs/{ids['embed']}?tab=logs"
    yield "curves", f"/jobs/{ids['ranker']}?tab=curves"
    yield "pending", f"/jobs/{ids['too-wide']}"
    yield "failed", f"/jobs/{ids['preprocess']}"
    yield "compare", "/compare?group=tune"
    yield "submit", "/submit"
    yield "virtual-clusters", "/virtual-clusters"
    yield "nodes", "/nodes"
    yield "policy", "/policy"
    yield "studies", "/studies"
    yield "not-found", "/nowhere"
    yield "login", "/login"


def study(stage: Scene) -> None:
    """Of a made trace, as this cluster has no past worth comparing."""
    trace = stage.script.with_name("week.csv")
    words = ["trace", "synth", "--jobs", "800", "--gpus", "64", "--vcs", "4", "--load", "0.9", "--out", str(trace)]
    subprocess.run([sys.executable, "-m", "skep.cli.main", *words], check=True, stdout=subprocess.DEVNULL)
    headers = {"Content-Type": "text/csv"}
    made = stage.client.post("/traces?name=week.csv", content=trace.read_bytes(), headers=headers).json()
    policies = ["fifo", "tiresias-l", "srsf", "yarn-cs"]
    body = {"name": "last week, four policies", "trace": made["id"], "policies": policies, "cluster": "8x8"}
    answer = stage.client.post("/studies", json=body)
    assert answer.status_code == 201, answer.text
    until(lambda: stage.client.get(f"/studies/{answer.json()['id']}").json()["state"] == "done", "the study")


def take(browser: Browser, stage: Scene, folder: Path, name: str, address: str) -> None:
    for theme in ("light", "dark"):
        for size, width in (("", WIDE), ("-narrow", NARROW)):
            page: Page = browser.new_page(viewport=width, color_scheme=theme)  # type: ignore[arg-type]
            page.goto(stage.address + address, wait_until="load")
            page.locator("h1").first.wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=folder / f"{name}-{theme}{size}.png", full_page=True)
            if not size:
                page.screenshot(path=folder / f"{name}-{theme}-top.png")
            page.close()


if __name__ == "__main__":
    main()
