"""Elements of HTML and SVG as text. All data goes through here and is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import msgspec

_VOID = frozenset({"br", "meta", "col"})
_LONGEST_NAME = 200


def escape(text: object) -> str:
    """Text for a body or an attribute."""
    return html.escape(str(text))


def tag(name: str, body: str = "", /, **attributes: object) -> str:
    """One element around ready markup: `class_` is `class`, `aria_label` `aria-label`, `True` a bare name."""
    words = [name]
    for key, value in attributes.items():
        word = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(word)
        elif value is not None and value is not False:
            words.append(f'{word}="{escape(value)}"')
    opening = f"<{' '.join(words)}>"
    return opening if name in _VOID else f"{opening}{body}</{name}>"


def clip(text: str, most: int = _LONGEST_NAME) -> str:
    """A name short enough to show."""
    return text if len(text) <= most else text[: most - 1] + "…"


def script_json(value: Any) -> str:
    """JSON that can neither end the `<script>` around it nor open a comment in it."""
    text = msgspec.json.encode(value).decode()
    for risky in "<>&\u2028\u2029":
        text = text.replace(risky, f"\\u{ord(risky):04x}")
    return text


class TableCell(msgspec.Struct, frozen=True):
    """One cell of a table: its text, its sort key, and whether it is the best of its kind."""

    text: str
    value: float | None = None
    is_best: bool = False
    note: str = ""
    series: int | None = None
    """The policy it belongs to, in a table with policies side by side."""


class Head(msgspec.Struct, frozen=True):
    """One column of a table; neighbours with the same group share a heading above theirs."""

    label: str
    group: str = ""
    note: str = ""
    is_text: bool = False
    series: int | None = None
    """The policy whose colour the group carries."""


class TextLine(msgspec.Struct, frozen=True):
    """One row: its name, then its cells; `series` marks the policy it belongs to."""

    name: str
    cells: Sequence[TableCell]
    series: int | None = None
    badge: str = ""
    """Ready markup after the name."""


def data_table(heads: Sequence[Head], lines: Sequence[TextLine], *, caption: str) -> str:
    """A table sortable by each column; the script does the sorting."""
    head = _group_row(heads) + tag("tr", "".join(_heading(head) for head in heads))
    body = "".join(_row(line) for line in lines)
    parts = tag("caption", escape(caption), class_="unseen") + tag("thead", head) + tag("tbody", body)
    return tag("div", tag("table", parts), class_="scroll", tabindex=0, role="region", aria_label=caption)


def _group_row(heads: Sequence[Head]) -> str:
    if not any(head.group for head in heads):
        return ""
    cells, start = [], 0
    for end in range(1, len(heads) + 1):
        if end == len(heads) or (heads[end].group, heads[end].series) != (
            heads[start].group,
            heads[start].series,
        ):
            cells.append(_group(heads[start], end - start))
            start = end
    return tag("tr", "".join(cells), class_="groups")


def _group(head: Head, width: int) -> str:
    if not head.group:
        return tag("td", colspan=width)
    text = (swatch(head.series) if head.series is not None else "") + escape(clip(head.group, 60))
    return tag(
        "th",
        tag("span", text, class_="name", title=clip(head.group)),
        colspan=width,
        scope="colgroup",
        data_p=head.series,
    )


def _heading(head: Head) -> str:
    mark = swatch(head.series) if head.series is not None and not head.group else ""
    label = tag("span", mark + escape(clip(head.label, 60)), class_="name")
    button = tag("button", label, type="button", title=head.note or None)
    return tag("th", button, scope="col", class_="text" if head.is_text else None, data_p=head.series)


def _row(line: TextLine) -> str:
    mark = swatch(line.series) if line.series is not None else ""
    text = tag("span", mark + escape(clip(line.name, 120)), class_="name", title=clip(line.name))
    cells = [tag("th", text + line.badge, scope="row", data_v=clip(line.name, 60))]
    cells += [_cell(cell) for cell in line.cells]
    return tag("tr", "".join(cells), data_p=line.series)


def _cell(cell: TableCell) -> str:
    text = escape(cell.text)
    if cell.is_best:
        text = tag("b", text + tag("span", " (best)", class_="unseen"))
    value = None if cell.value is None else f"{cell.value:.6g}"
    return tag("td", text, data_v=value, title=cell.note or None, data_p=cell.series)


def swatch(series: int) -> str:
    """The line style of a policy, as a small sample."""
    line = tag("line", x1=1, y1=5, x2=21, y2=5, class_=f"line {series_class(series)}")
    return tag("svg", line, class_="swatch", viewBox="0 0 22 10", aria_hidden="true")


SERIES, STROKES = 8, 3
"""The number of colours in the style sheet, and of line styles in each of them."""


def series_class(series: int) -> str:
    """Colour and stroke of a policy: 24 of them look different."""
    return f"s{series % SERIES} w{series // SERIES % STROKES}"
