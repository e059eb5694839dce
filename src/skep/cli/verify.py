"""`skep verify [NAME…]`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from skep.verify.check import Check, Finding, Result

INDENT = " " * 9
WIDTH_MAX = 110


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--list", "is_listed", is_flag=True, help="Name the checks without running them.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as one JSON list.")
@click.option(
    "--limit",
    "limit_s",
    type=click.FloatRange(min=0.001, max=1e6),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for each check. One that takes longer is stopped and differs; the others go on.",
)
def verify(names: tuple[str, ...], is_listed: bool, as_json: bool, limit_s: float) -> None:
    """Check the policies against answers that are known: from their papers, or worked by hand.

    NAME is a policy, a placement or a single check; without one all are asked. Each check prints what is expected and
    why, and what was seen; the exit code is 1 if anything differs. Times are in seconds; jobs are called a, b, c, … in
    the order in which they come. On a terminal a line names the check that runs.

    \b
    Examples:
      skep verify
      skep verify drf tiresias-l
      skep verify fifo-easy
    """
    from skep.verify.registry import select

    chosen = select(names)
    if is_listed:
        print_list(chosen)
        return
    results = ask(chosen, limit_s, is_shown=not as_json)
    if as_json:
        print_json(results)
    if not all(result.holds for result in results):
        click.get_current_context().exit(1)


def print_list(chosen: list[Check]) -> None:
    for check in chosen:
        click.echo(f"{check.name:<22} {check.policy:<12} {check.title}")


def ask(chosen: list[Check], limit_s: float, *, is_shown: bool) -> list[Result]:
    """Each result is shown as soon as it is available."""
    from skep.verify.check import perform

    results = []
    for number, check in enumerate(chosen, start=1):
        show_progress(f"{number} of {len(chosen)}: {check.name}")
        results.append(perform(check, limit_s))
        show_progress("")
        if is_shown:
            show_result(results[-1])
    if is_shown:
        show_verdict(results)
    return results


def show_progress(text: str) -> None:
    """On a terminal: this line on stderr, until the next one."""
    if sys.stderr.isatty():
        click.echo(f"\r\033[K{text}", nl=False, err=True)


def show_result(result: Result) -> None:
    check = result.check
    mark = click.style("ok", fg="green") if result.holds else click.style("DIFFERS", fg="red", bold=True)
    gap = " " * (len(INDENT) - (2 if result.holds else 7))
    click.echo(mark + gap + click.style(check.name, bold=True))
    click.echo(wrapped(check.title))
    click.echo(click.style(wrapped(check.source), dim=True))
    for line in finding_lines(result.findings):
        click.echo(INDENT + line)
    click.echo()


def wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, screen_width(), initial_indent=INDENT, subsequent_indent=INDENT)


def screen_width() -> int:
    import shutil

    return min(shutil.get_terminal_size().columns, WIDTH_MAX)


def finding_lines(findings: list[Finding]) -> list[str]:
    """In columns; if one does not fit the screen, both answers go below the question."""
    what = max(len(finding.what) for finding in findings) + 2
    room = screen_width() - len(INDENT) - what - len("expected   seen ")
    wide = [finding for finding in findings if len(finding.expected) + len(finding.seen) > room]
    expected = max((len(finding.expected) for finding in findings if finding not in wide), default=0) + 2
    lines = []
    for finding in findings:
        seen = finding.seen if finding.holds else click.style(finding.seen, fg="red", bold=True)
        if finding in wide:
            lines += [finding.what, f"  expected {finding.expected}", f"  seen     {seen}"]
        else:
            lines.append(f"{finding.what:<{what}}expected {finding.expected:<{expected}}seen {seen}")
    return lines


def show_verdict(results: list[Result]) -> None:
    wrong = [result.check.name for result in results if not result.holds]
    answers = sum(len(result.findings) for result in results)
    if not wrong:
        click.echo(f"{plural(len(results), 'check')}, {plural(answers, 'answer')}: all as expected.")
        return
    verb = "differs" if len(wrong) == 1 else "differ"
    click.secho(f"{len(wrong)} of {plural(len(results), 'check')} {verb}: {', '.join(wrong)}", fg="red", bold=True)


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_json(results: list[Result]) -> None:
    import json

    import msgspec

    values = [
        {
            "name": result.check.name,
            "policy": result.check.policy,
            "title": result.check.title,
            "source": result.check.source,
            "holds": result.holds,
            "findings": msgspec.to_builtins(result.findings),
        }
        for result in results
    ]
    click.echo(json.dumps(values, indent=2))
