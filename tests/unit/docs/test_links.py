"""Relative links of all pages lead to a file and a heading that exist; pages on architecture name existing files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SKIPPED = {".venv", "node_modules", ".git", ".pytest_cache", "dist", "build"}
PAGES = sorted(
    page
    for page in ROOT.rglob("*.md")
    if not SKIPPED & set(page.relative_to(ROOT).parts) and "site-packages" not in str(page)
)
ARCHITECTURE = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/architecture").glob("*.md"))]
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NAMED = re.compile(r"`([\w./*-]+\.(?:py|ts|md|css|js))`")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = HEADING.findall(FENCE.sub("", page.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in found}


def broken(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


@pytest.mark.parametrize("page", ARCHITECTURE, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    if not listed:
        pytest.skip("not a git checkout")
    files = ["/" + each for each in listed]
    missing = []
    for name in NAMED.findall(page.read_text("utf-8")):
        pattern = re.compile("/" + re.escape(name).replace(r"\*", "[^/]*") + "$")
        if not any(pattern.search(file) for file in files):
            missing.append(name)
    assert missing == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md#a-heading) [b](there.md#none) [c](gone.md) [d](https://x.org)\n```\n[e](no.md)\n```\n", "utf-8"
    )
    assert broken(page) == ["there.md#none", "gone.md"]
