"""Modules, classes, functions and fields that pages on architecture name exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/architecture").glob("*.md"))]
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?=\(|$)")
PACKAGE = re.compile(r"(?:[a-z_]+/)+")


FILE = re.compile(r".*\.(?:py|ts|tsx|md|css|js|db|log|yaml)")
OF_A_JOB = {"own/", "work/", "checkpoint/"}
"""Folders of a running job, not of this tree."""


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    folders = [ROOT / "src/skep", ROOT / "bench", *(each for each in (ROOT / "tests").iterdir() if each.is_dir())]
    files = [file for folder in folders for file in folder.rglob("*.py") if file.parent != Path(__file__).parent]
    return [(file, ast.parse(file.read_text("utf-8"))) for file in [*files, *(ROOT / "tests").glob("*.py")]]


@cache
def defined() -> frozenset[str]:
    """Every name of the code: modules, classes, functions, parameters, fields, and words that it compares with."""
    found = {"skep", "web"}
    for file, tree in trees():
        found |= {file.stem, file.parent.name}
        for node in ast.walk(tree):
            found |= names_in(node)
    for file in (ROOT / "web/src").rglob("*.ts*"):
        found.update(re.findall(r"[A-Za-z_]\w+", file.read_text("utf-8")))
    return frozenset(found)


def names_in(node: ast.AST) -> set[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.arg(arg=name):
            return {name}
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return {name}
        case ast.Constant(value=str(text)):
            return {text}  # commands, states, columns
    return set()


@cache
def members() -> dict[str, tuple[set[str], list[str]]]:
    """Of every class: what its body and its methods define, and its bases."""
    found: dict[str, tuple[set[str], list[str]]] = {}
    for file, tree in trees():
        for node in ast.walk(tree) if "src" in file.parts else ():
            if isinstance(node, ast.ClassDef):
                own = {name for inner in ast.walk(node) for name in names_in(inner)} - {node.name}
                known, bases = found.setdefault(node.name, (set(), []))
                known |= own
                bases += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return found


def has_member(owner: str, name: str) -> bool:
    own, bases = members().get(owner, (set[str](), []))
    return name in own or any(has_member(base, name) for base in bases)


def exists(name: str) -> bool:
    """`Class.name` is one of this class; of other names every part is defined somewhere."""
    parts = name.split(".")
    if len(parts) > 1 and parts[-2] in members() and not has_member(*parts[-2:]):
        return False
    return set(parts) <= defined()


def names_on(text: str) -> set[str]:
    """What stands as code and reads like a name of the code, `a.b.c` and `f(x)` too."""
    codes = [code.strip() for code in CODE.findall(FENCE.sub("", text))]
    whole = re.compile(NAME.pattern + r"(\(.*\))?")
    return {code.partition("(")[0] for code in codes if whole.fullmatch(code) and not FILE.fullmatch(code)}


def missing(text: str) -> list[str]:
    return sorted(name for name in names_on(text) if not exists(name))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_named_exists(page: Path) -> None:
    assert missing(page.read_text("utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_folders_that_are_named_exist(page: Path) -> None:
    named = {code for code in CODE.findall(page.read_text("utf-8")) if PACKAGE.fullmatch(code)} - OF_A_JOB
    roots = (ROOT, ROOT / "src/skep", ROOT / "src/skep/policies", ROOT / "web/src")
    assert sorted(each for each in named if not any((root / each).is_dir() for root in roots)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`State.advance`, `Plan.commit` and `advance(at_s, events)`", ["Plan.commit"]),
        ("`State.no_such_door`", ["State.no_such_door"]),
        ("`NoSuchClass` beside `Plan`", ["NoSuchClass"]),
        ("`skep up --new`, `python -m x`, `a/b.py`", []),
    ],
)
def test_a_name_that_does_not_exist_is_found(text: str, found: list[str]) -> None:
    assert missing(text) == found


def test_the_list_of_packages_is_the_tree() -> None:
    block = re.search(r"## The packages\n\n```\n(.*?)```", (ROOT / "ARCHITECTURE.md").read_text("utf-8"), re.DOTALL)
    assert block is not None
    named = set(re.findall(r"(?:^|\s{2,})([a-z]+)(?:/[a-z]+)?(?=\s)", block[1], re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "src/skep").glob("*/__init__.py")}
    assert packages - named == set()
