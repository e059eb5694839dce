"""Plain English: GPU and CPU in capitals in prose, and none of the words that make a reader think twice."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = {ROOT / "docs/reference/api.md"}
"""It contains field names outside of code."""
ROOMS = sorted(each.name for each in (ROOT / "src/skep").iterdir() if each.is_dir() and each.name != "__pycache__")
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")} - GENERATED)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`+[^`]*`+|<!--.*?-->|\]\([^)]*\)|^(?: {4}|\t).*$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"(?<![\w./=:+])(?<!--)[gcGC]pus?(?![\w=/(]|[.:]\w)")


def lower_case(prose: str) -> list[str]:
    return WORD.findall(CODE.sub(" ", FENCE.sub(" ", prose)))


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Those of modules, classes and functions, and strings beneath what they describe."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_and_comments(room: str) -> None:
    found = []
    for file in sorted((ROOT / "src/skep" / room).rglob("*.py")):
        text = file.read_text("utf-8")
        for line, prose in (*docstrings(ast.parse(text)), *comments(text)):
            found += [f"{file.relative_to(ROOT)}:{line}: {word}" for word in lower_case(prose)]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: Path) -> None:
    assert lower_case(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("prose", "count"),
    [
        ("Two gpus and a cpu.", 2),
        ("Gpus of a node, 8-gpu nodes", 2),
        ("GPUs, `gpus: 2`, gpu_type, --cpus, node.gpus, gpu=1", 0),
        ("```yaml\ngpus: 2\n```\nno more", 0),
    ],
)
def test_what_counts_as_prose(prose: str, count: int) -> None:
    assert len(lower_case(prose)) == count


RIDDLES = re.compile(
    r"\b(nobody|whoever|somebody|anybody|everybody|no ear|its like|worthless|in vain"
    r"|(?:is|was|are|were|be|been|being) (?:told|heard)|told (?:of|again|twice|late)|stands? still|stood still)\b",
    re.IGNORECASE,
)
"""Words that make a reader think twice. An engine *reports*, the log has *events*, the server *notifies* clients."""


def texts(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            yield from token.string.splitlines()


def riddles(file: Path) -> list[str]:
    lines = [line.strip() for line in texts(file.read_text("utf-8")) if RIDDLES.search(line)]
    return [f"{file.relative_to(ROOT)}: {line}" for line in lines]


PLAIN = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(
        page
        for name in ("guides", "reference", "architecture", "decisions")
        for page in sorted((ROOT / "docs" / name).glob("*.md"))
    ),
]


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: page.name)
def test_no_riddles_on_pages(page: Path) -> None:
    assert [line for line in page.read_text("utf-8").splitlines() if RIDDLES.search(line)] == []


def test_no_riddles() -> None:
    found = [each for file in sorted((ROOT / "src/skep").rglob("*.py")) for each in riddles(file)]
    assert not found, "write who does what; these lines do not:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ('"""Nobody is told."""', 1),
        ("x = 1  # whoever asks", 1),
        ("nobody = 1", 0),
        ('"""The engine reports it."""', 0),
        ('"""Somebody\nwaits in vain."""', 2),
    ],
)
def test_what_counts_as_a_riddle(source: str, count: int) -> None:
    assert sum(bool(RIDDLES.search(line)) for line in texts(source)) == count
