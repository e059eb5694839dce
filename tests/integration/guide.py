"""Runs a page as a reader would: its commands in order, in one shell and folder, with the output that the page shows.

In the Markdown, a comment before a block says what the block alone does not:

    <!-- file: train.py -->      the block is the content of this file
    <!-- not run: why -->        the block is not run
    <!-- run: command -->        run here too, unseen by the reader: what a reader would have at hand, or wait for

Blocks without a language, of `sh` and of `console` are run; those of other languages are only shown. In a `console`
block the lines after a command are its output, if there are any: `…` alone stands for any number of lines, within a
line for any text. A command whose output has a line `error: …` or `skep: job N failed …` must fail, every other one
must succeed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

RUN = ("", "sh", "console")
COMMENT = re.compile(r"<!-- (file|not run|run): (.*?) -->", re.DOTALL)
COMMAND_S = 180
PLACE = "/srv/skep"
"""How pages call the folder in which their commands are run."""
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|\d\d:\d\d:\d\d"), "00:00:00"),
    (re.compile(r"http://(127\.0\.0\.1|0\.0\.0\.0):\d+"), r"http://\1:7437"),
    (re.compile(r"(?<![0-9a-z])[0-9a-f]{8}(?=[ _]|$)"), "01234567"),
    (re.compile(r"[\d,]+ bytes"), "N bytes"),
    (re.compile(r"-\d{8}-\d{6}"), "-DATE"),
    (re.compile(r"\s+"), " "),
)


@dataclass
class Save:
    name: str
    text: str


@dataclass
class Run:
    line: int
    command: str
    shown: list[str] = field(default_factory=list)

    @property
    def must_fail(self) -> bool:
        return any(re.match(r"error: |skep: job \d+ failed", line) for line in self.shown)


def steps_of(text: str) -> Iterator[Save | Run]:
    """What a page does, in its order."""
    lines = text.splitlines()
    said: dict[str, str] = {}
    at = 0
    while at < len(lines):
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        if lines[at].startswith("<!-- "):
            comment, at = comment_at(lines, at)
            kind, value = comment
            if kind == "run":
                yield Run(at, value)
            elif kind:
                said[kind] = value
        elif lines[at].lstrip().startswith("```"):
            end = next(number for number in range(at + 1, len(lines)) if lines[number].strip() == "```")
            block = [line.removeprefix(indent) for line in lines[at + 1 : end]]
            yield from of_block(lines[at].strip().removeprefix("```"), block, at + 2, said)
            said, at = {}, end + 1
        else:
            said = said if not lines[at].strip() else {}
            at += 1


def comment_at(lines: list[str], at: int) -> tuple[tuple[str, str], int]:
    end = next(number for number in range(at, len(lines)) if lines[number].rstrip().endswith("-->"))
    found = COMMENT.fullmatch("\n".join(lines[at : end + 1]).strip())
    return (found.groups() if found else ("", "")), end + 1  # type: ignore[return-value]


def of_block(language: str, block: list[str], line: int, said: dict[str, str]) -> Iterator[Save | Run]:
    if "file" in said:
        yield Save(said["file"], "\n".join(block) + "\n")
    elif language in RUN and "not run" not in said:
        yield from runs_of(block, line, is_console=language == "console")


def runs_of(block: list[str], line: int, *, is_console: bool) -> Iterator[Run]:
    run: Run | None = None
    for number, text in enumerate(block, line):
        if run is not None and run.command.endswith("\\"):
            run.command = f"{run.command[:-1]} {text.strip()}"
        elif text.startswith("$ ") or not is_console:
            if run is not None:
                yield run
            run = Run(number, text.removeprefix("$ "))
        elif run is not None:
            run.shown.append(text)
    if run is not None:
        yield run


class Shell:
    """Commands one after another, which keep the folder and the variables."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.root = self.folder = folder
        self.env = env

    def run(self, command: str) -> tuple[int, str]:
        kept = self.root / ".kept"
        script = f"{command}\ncode=$?; {{ pwd; env -0; }} > {kept}; exit $code"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        folder, _, variables = kept.read_text().partition("\n")
        pairs = (each.partition("=") for each in variables.split("\0") if each)
        self.folder, self.env = Path(folder), {name: value for name, _, value in pairs}
        return done.returncode, done.stdout


def play(page: Path, shell: Shell, more: dict[str, str]) -> None:
    """Run a page; `more` is appended to the files that it names."""
    for step in steps_of(page.read_text("utf-8")):
        if isinstance(step, Save):
            (shell.folder / step.name).write_text(step.text + more.get(step.name, ""), "utf-8")
            continue
        code, output = shell.run(step.command)
        where = f"{page.name}:{step.line}: {step.command}"
        assert (code != 0) == step.must_fail, f"{where}\nexit code {code}\n{output}"
        assert "Traceback" not in output, f"{where}\n{output}"
        if step.shown:
            found = output.replace(str(shell.root), PLACE)
            assert matches(step.shown, found), (
                f"{where}\n--- the page shows\n{chr(10).join(step.shown)}\n--- got\n{found}"
            )


def matches(shown: list[str], output: str) -> bool:
    """Blank lines do not count, nor does what differs from run to run."""
    wanted = [plain(line) for line in shown if line.strip()]
    pattern = "".join(r"(?:.*\n)*" if line in ("…", "...") else f"{any_text(line)}\n" for line in wanted)
    found = "".join(f"{plain(line)}\n" for line in output.splitlines() if line.strip())
    return re.fullmatch(pattern, found) is not None


def plain(line: str) -> str:
    for pattern, stands_for in VARIES:
        line = pattern.sub(stands_for, line)
    return line.strip()


def any_text(line: str) -> str:
    return ".*".join(re.escape(part) for part in line.split("…"))


def reader_env(folder: Path, skep: str) -> dict[str, str]:
    """A home, a `skep` and a `python` of its own, which every account may use."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "skep").write_text(skep)
    (bin_folder / "skep").chmod(0o755)
    (bin_folder / "python").symlink_to("/usr/bin/python3")
    (folder / "home").mkdir()
    settings = {"LANG": "C.UTF-8", "TZ": "UTC", "COLUMNS": "200", "LOGNAME": "ann"}
    return {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(folder / "home"), **settings}
