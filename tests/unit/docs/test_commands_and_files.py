"""What pages call a command, an option or a file of Skep is one."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from skep.cli.main import COMMANDS, skep
from skep.clusters.read import read_text
from skep.jobs.read import read_requests

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    if page.name != "CHANGELOG.md" and "decisions" not in page.parts
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(skep [^`]+)`")
LINE = re.compile(r"^(skep .*?)(?:\s{2,}#.*)?$", re.MULTILINE)
LINE_AFTER_PROMPT = re.compile(r"^\$ (skep .*)$", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*|-[a-z])(?![\w-])")
ROOT_COMMAND = click.Context(skep)


def commands_on(text: str) -> set[str]:
    found = set(CODE.findall(BLOCK.sub("", text)))
    for language, block in BLOCK.findall(text):
        if language in ("", "sh", "console"):
            found.update(LINE.findall(block) if language != "console" else LINE_AFTER_PROMPT.findall(block))
    return found


def command_of(line: str) -> tuple[click.Command, list[str]] | None:
    """The command of a line, and the words after it; none if the line is about `skep` in general."""
    words = line.split()[1:]
    if not words or not re.fullmatch(r"[a-z]+", words[0]):
        return None
    found = skep.get_command(ROOT_COMMAND, words[0]) if words[0] in COMMANDS else None
    assert found is not None, f"there is no command {words[0]}"
    rest = words[1:]
    if isinstance(found, click.Group) and rest and (inner := found.get_command(ROOT_COMMAND, rest[0])) is not None:
        return inner, rest[1:]
    return found, rest


def unknown_options(line: str) -> list[str]:
    """Options that its command does not have; those after `--` belong to a job, others to the next command."""
    one = re.split(r" -- | --$|[|;&]| > ", line.replace("\\|", " "), maxsplit=1)[0]
    found = command_of(one)
    if found is None:
        return []
    command, words = found
    group = skep.get_command(ROOT_COMMAND, one.split()[1])
    has = {"--help", "-h"} | {option for each in (command, group) if each for one in each.params for option in one.opts}
    if isinstance(group, click.Group):
        parts = [group.get_command(ROOT_COMMAND, name) for name in group.list_commands(ROOT_COMMAND)]
        if command is group:  # `create|list|…`: those of all of them
            has |= {option for part in parts if part for one in part.params for option in one.opts}
    return [option for option in OPTION.findall(" ".join(words)) if option not in has]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_that_pages_give_them(page: Path) -> None:
    found = {line: unknown_options(line) for line in sorted(commands_on(page.read_text("utf-8")))}
    assert {line: options for line, options in found.items() if options} == {}


@pytest.mark.parametrize(
    ("line", "unknown"),
    [
        ("skep ps --all --mine", []),
        ("skep ps --everything", ["--everything"]),
        ("skep run --gpus 1 -- python train.py --lr 1", []),
        ("skep token create --expires 30d", []),
        ("skep token create --overlap 1h", ["--overlap"]),
        ("skep stop --group g && rm --force x", []),
    ],
)
def test_what_counts_as_an_option(line: str, unknown: list[str]) -> None:
    assert unknown_options(line) == unknown


def files_on(page: Path) -> list[str]:
    return [block for language, block in BLOCK.findall(page.read_text("utf-8")) if language == "yaml"]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if files_on(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_job_and_cluster_files_are_read(page: Path) -> None:
    for text in files_on(page):
        values = yaml.safe_load(text)
        if not isinstance(values, dict):
            continue
        if "name" in values and {"command", "tasks", "argv"} & set(values):
            assert read_requests(text).requests
        elif "nodes" in values or "physicalCluster" in values:
            read_text(text, "page")
