"""User-supplied text on a terminal: it must not move the cursor, change the title or turn the reading direction.

Names, reasons and logs come from users. In Skep's own output such characters are escaped, as `\\x1b` or
`\\u202e`; from logs on a terminal they are removed.
"""

from __future__ import annotations

import re

SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, the cursor
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # OSC and similar: titles, links
    r"|\x1b[ -/]*[0-OQ-WYZ\\`-~]"
)
UNFINISHED = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*\x1b?|\x1b[ -/]*)\Z"
)
HELD_MAX = 4096
"""The longest sequence; a longer one is not a sequence: its first character is removed and the rest is shown."""
KEPT = "\n\r\t"


def clean(text: str) -> str:
    """One line: white space becomes a blank, unprintable characters are escaped."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def clean_lines(text: str) -> str:
    return "\n".join(map(clean, text.split("\n")))


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    if char in "\t\n\r\x0b\x0c\u2028\u2029":
        return " "
    return ascii(char)[1:-1]


def escape_json(text: str) -> str:
    """JSON with all unprintable characters escaped; it means the same."""
    return "".join(char if char.isprintable() or char == "\n" else _in_json(char) for char in text)


def _in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


class Plain:
    """A log in pieces without terminal sequences, wherever the pieces are cut."""

    def __init__(self) -> None:
        self._held = ""

    def cleaned(self, text: str) -> str:
        text = self._held + text
        found = UNFINISHED.search(text)
        cut = found.start() if found is not None and len(text) - found.start() <= HELD_MAX else len(text)
        self._held = text[cut:]
        shown = SEQUENCE.sub("", text[:cut])
        return shown if shown.isprintable() else "".join(filter(_is_shown, shown))


def _is_shown(char: str) -> bool:
    return char.isprintable() or char in KEPT
