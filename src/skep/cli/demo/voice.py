"""Printing of the demo's text."""

from __future__ import annotations

import click

WIDTH_MAX = 100


def tell(*paragraphs: str) -> None:
    """Wrapped to the screen; indented commands and addresses are not broken."""
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    for text in paragraphs:
        is_whole = text.startswith("  ")
        hanging = "  " if text.startswith("- ") else ""
        click.echo(text if is_whole else textwrap.fill(text, width, subsequent_indent=hanging))
