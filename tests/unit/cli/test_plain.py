"""Text of others: escaped in what Skep prints, left out of logs on a terminal."""

from __future__ import annotations

import json

import pytest

from skep.cli.plain import HELD_MAX, Plain, clean, clean_lines, escape_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, größe, 文字", "plain, größe, 文字"),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\x9b31m", "a\\x9b31m"),
        ("two\nlines\tand a tab", "two lines and a tab"),
        ("turned \u202eround\u2066\u200f", "turned \\u202eround\\u2066\\u200f"),
        ("zero\u200bwidth\ufeff\x7f\x00", "zero\\u200bwidth\\ufeff\\x7f\\x00"),
        ("far \U000e0041", "far \\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_clean_is_one_printable_line(text: str, shown: str) -> None:
    assert clean(text) == shown
    assert clean(text).isprintable()
    assert clean_lines(f"{text.splitlines()[0]}\n{text.splitlines()[0]}").count("\n") == 1


def test_escaped_json_means_the_same() -> None:
    value = {"a": "\x1b]0;x\x07\u202e\x9b\u2028\U000e0041é文\n", "b": ["\x7f"]}
    text = escape_json(json.dumps(value, ensure_ascii=False, indent=2))
    assert json.loads(text) == value
    assert text.replace("\n", "").isprintable()
    assert "é文" in text


HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b[2J\x1b[1;1Hx", "x"),
    ("\x1b]0;title\x07x", "x"),
    ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x1bP+q\x1b\\x", "x"),
    ("\x9b31mx\x9d0;t\x9cy", "xy"),
    ("\x1b(B\x1bc\x1b=x", "x"),
    ("\x08\x07\x7f\x00x\u202ey\u2066", "xy"),
    ("50%\r100%\n\ttab é文", "50%\r100%\n\ttab é文"),
    ("\x1b[31", ""),
    ("\x1b]0;never ended", ""),
    ("a\x1b\x1b[31mb", "ab"),
]


@pytest.mark.parametrize(("text", "shown"), HOSTILE)
def test_logs_are_plain_wherever_they_are_cut(text: str, shown: str) -> None:
    for at in range(len(text) + 1):
        plain = Plain()
        assert plain.cleaned(text[:at]) + plain.cleaned(text[at:]) == shown, at
    plain = Plain()
    assert "".join(map(plain.cleaned, text)) == shown


def test_a_sequence_without_end_does_not_swallow_the_log() -> None:
    plain = Plain()
    shown = plain.cleaned("\x1b]0;" + "x" * HELD_MAX) + plain.cleaned("line\n" * 10)
    assert shown.count("line\n") == 10
    assert "\x1b" not in shown
