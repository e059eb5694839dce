"""Chromium as these machines have it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Where it is; None: nowhere."""
    return os.environ.get("SKEP_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def launch(*words: str) -> Iterator[Browser]:
    path = chromium()
    if path is None:
        raise SystemExit("error: there is no Chromium here; `apt-get install chromium`, or SKEP_CHROMIUM=PATH")
    with sync_playwright() as playwright:
        # As root it cannot make its sandbox; it opens only what we serve ourselves.
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox", *words])
