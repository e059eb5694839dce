"""A profile from a file, recognised by what is in it."""

from __future__ import annotations

from pathlib import Path

from skep.files.text import load_text
from skep.profiles.profile import Profile

WHAT = "a profile (YAML or JSON, Gavel's table of throughputs, or a folder with tables of goodput)"


def read_profile(path: str | Path) -> Profile:
    """The speeds of models in a file: Skep's own format, or Gavel's published table; or in a folder with tables of
    goodput."""
    from skep.profiles.gavel import is_gavel_table, read_gavel_table
    from skep.profiles.native import read_native

    if Path(path).is_dir():
        from skep.profiles.goodput_speed import read_goodput

        return read_goodput(Path(path))
    shown = str(path)
    text = load_text(path, what=WHAT)
    return read_gavel_table(text, shown) if is_gavel_table(text) else read_native(text, shown)
