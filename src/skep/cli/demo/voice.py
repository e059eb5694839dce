"""How the demo speaks."""

from __future__ import annotations

import click

WIDTH_MAX = 100


def tell(*paragraphs: str) -> None:
    """Wrapped to the screen; commands and addresses, which are indented, stay whole."""
    import shutil
    import textwrap

    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    for text in paragraphs:
        is_whole = text.startswith("  ")
        hanging = "  " if text.startswith("- ") else ""
        click.echo(text if is_whole else textwrap.fill(text, width, subsequent_indent=hanging))
