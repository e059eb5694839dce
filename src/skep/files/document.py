"""Files that people write: their text, and YAML values with line numbers.

Values are built from the parser's events rather than by PyYAML's own composer, for three reasons: the composer in C
overruns the stack on deep nesting, aliases can be counted before anything is expanded, and a value keeps its text, so
that a GPU type `3090` or a node `no` is what its author wrote. JSON is read too, because it is YAML. PyYAML is imported
when the first file is read, not when Skep starts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from skep.core.errors import InputError, did_you_mean
from skep.files.text import shorten

DEPTH_MAX = 20
VALUES_MAX = 2_000_000
"""The most values of a file after its aliases are expanded."""

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_INDENTED = re.compile(r" *\t")
_NULLS = ("", "~", "null", "Null", "NULL")
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read_document(text: str, path: str | Path) -> Field:
    """The one document of a YAML or JSON file."""
    import yaml

    shown = str(path)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = _Builder(shown).build(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        raise _syntax_fault(shown, error, text) from None
    return Field(shown, "", root)


def plain_document(value: object, where: str) -> Field:
    """Values that were read by other means, such as JSON; they have no line, and error messages name none."""
    return Field(where, "", _plain(value))


def _plain(value: object) -> Raw:
    if isinstance(value, dict):
        return Raw([_plain(part) for entry in value.items() for part in entry], 0, is_map=True)
    if isinstance(value, list | tuple):
        return Raw([_plain(part) for part in value], 0)
    if value is None:
        return Raw("null", 0, is_plain=True)
    is_text = isinstance(value, str)
    return Raw(str(value), 0, is_plain=not is_text)


def _syntax_fault(shown: str, error: Any, text: str) -> InputError:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else None
    where = f"{shown}:{line}" if line is not None else shown
    if line is not None and _INDENTED.match("".join(text.splitlines()[line - 1 : line])):
        said = "is indented with a tab, which YAML does not allow"
        return InputError(f"{where}: {said}", hint=f"use spaces: `expand -t 2 {shown}` prints the file so").at(
            "", line, said
        )
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    said = f"is not YAML: {' '.join(problem.split())}"
    return InputError(f"{where}: {said}").at("", line, said)


class Raw:
    """A value of a document: text, a list of values, or a list of (key, value)."""

    __slots__ = ("content", "is_map", "is_plain", "line", "size")

    def __init__(self, content: Any, line: int, *, is_plain: bool = False, is_map: bool = False) -> None:
        self.content = content
        self.line = line
        self.is_plain = is_plain
        """Text without quotes."""
        self.is_map = is_map
        self.size = 1
        """The number of values in it, aliases expanded."""


class _Builder:
    """Turns the events of the parser into one tree, without recursion."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.open: list[tuple[Raw, str | None]] = []
        """Lists and mappings not yet ended, with their anchors."""
        self.anchors: dict[str, Raw] = {}
        self.roots: list[Raw] = []

    def build(self, events: Iterable[Any]) -> Raw:
        import yaml

        starts = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
        ends = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
        for event in events:
            if isinstance(event, yaml.ScalarEvent):
                self._no_tag(event)
                self._add(Raw(event.value, line_of(event), is_plain=event.implicit[0]), event.anchor)
            elif isinstance(event, starts):
                self._start(event, is_map=isinstance(event, yaml.MappingStartEvent))
            elif isinstance(event, ends):
                self._add(*self.open.pop())
            elif isinstance(event, yaml.AliasEvent):
                self._add(self._aliased(event), None)
        return self._root()

    def _start(self, event: Any, *, is_map: bool) -> None:
        self._no_tag(event)
        if len(self.open) == DEPTH_MAX:
            raise self._fault(event, f"is nested more than {DEPTH_MAX} deep")
        self.open.append((Raw([], line_of(event), is_map=is_map), event.anchor))

    def _aliased(self, event: Any) -> Raw:
        found = self.anchors.get(event.anchor)
        if found is None:
            raise self._fault(event, f"alias *{event.anchor} has no anchor before it")
        return found

    def _add(self, raw: Raw, anchor: str | None) -> None:
        """An anchor is valid only from its end on, so that nothing can contain itself."""
        if anchor is not None:
            self.anchors[anchor] = raw
        if not self.open:
            self.roots.append(raw)
            return
        parent = self.open[-1][0]
        parent.content.append(raw)
        parent.size += raw.size
        if parent.size > VALUES_MAX:
            raise InputError(
                f"{self.shown}:{raw.line}: has more than {VALUES_MAX:,} values with its aliases expanded",
                hint="write the values out instead of nesting aliases",
            )

    def _root(self) -> Raw:
        if len(self.roots) == 1:
            return self.roots[0]
        count = len(self.roots)
        raise InputError(f"{self.shown}: has {count} YAML documents, expected one")

    def _no_tag(self, event: Any) -> None:
        if event.tag is not None and event.tag != "!":
            raise self._fault(event, f"has the tag {shorten(event.tag)}, expected none")

    def _fault(self, event: Any, problem: str) -> InputError:
        return InputError(f"{self.shown}:{line_of(event)}: {problem}").at("", line_of(event), problem)


def line_of(event: Any) -> int:
    return int(event.start_mark.line) + 1


def is_merge(key: Raw) -> bool:
    return key.is_plain and key.content == "<<"


class Field:
    """A value with its position: what the readers of a schema use, and what error messages name."""

    __slots__ = ("file", "path", "raw")

    def __init__(self, file: str, path: str, raw: Raw) -> None:
        self.file = file
        self.path = path
        self.raw = raw

    def fields(self, known: Sequence[str] = (), *, required: Sequence[str] = ()) -> dict[str, Field]:
        """The entries of a mapping, each key once; with `known` no other key is allowed."""
        if not self.raw.is_map:
            raise self.fault("a mapping (key: value)")
        found: dict[str, Field] = {}
        for key, value in self._entries(self.raw):
            name = self._key(key, known)
            if name in found:
                raise self.trouble(f"{self._inside(name)} is given twice", line=key.line)
            found[name] = Field(self.file, self._inside(name), value)
        for name in required:
            if name not in found:
                raise self.trouble(f"{self._inside(name)} is missing")
        return found

    def _entries(self, mapping: Raw) -> list[tuple[Raw, Raw]]:
        """Its keys and values; `<<: *other` adds what it does not have itself."""
        entries = list(zip(mapping.content[::2], mapping.content[1::2], strict=True))
        own = [(key, value) for key, value in entries if not is_merge(key)]
        names = {key.content for key, _ in own if isinstance(key.content, str)}
        for other in (value for key, value in entries if is_merge(key)):
            for source in other.content if not other.is_map and isinstance(other.content, list) else [other]:
                if not source.is_map:
                    raise self.trouble(f"{self._inside('<<')} is not a mapping", line=source.line)
                new = [(key, value) for key, value in self._entries(source) if key.content not in names]
                names.update(key.content for key, _ in new)
                own += new
        return own

    def _key(self, key: Raw, known: Sequence[str]) -> str:
        if not isinstance(key.content, str) or (key.is_plain and key.content in _NULLS):
            raise self.trouble("a key is not text", line=key.line)
        if known and key.content not in known:
            near = did_you_mean(key.content, known, start=", ")
            problem = f"unknown key {self._inside(shorten(key.content))}{near}"
            hint = f"known keys: {', '.join(known)}"
            raise self.trouble(problem, line=key.line, hint=hint, path=self._inside(key.content))
        return key.content

    def items(self) -> list[Field]:
        if self.raw.is_map or not isinstance(self.raw.content, list):
            raise self.fault("a list")
        return [Field(self.file, f"{self.path}[{at}]", raw) for at, raw in enumerate(self.raw.content)]

    @property
    def is_mapping(self) -> bool:
        return self.raw.is_map

    @property
    def is_list(self) -> bool:
        return not self.raw.is_map and isinstance(self.raw.content, list)

    @property
    def is_null(self) -> bool:
        """Nothing after the colon, or `null`."""
        return self.raw.is_plain and self.raw.content in _NULLS

    def flag(self) -> bool:
        content = self.raw.content
        word = content.lower() if isinstance(content, str) and self.raw.is_plain else ""
        if word not in _FLAGS:
            raise self.fault("true or false")
        return _FLAGS[word]

    def text(self, expected: str = "a name") -> str:
        """A text as written; numbers and `yes` are texts too if one is expected."""
        content = self.raw.content
        if not isinstance(content, str) or (self.raw.is_plain and content in _NULLS):
            raise self.fault(expected)
        word = content.strip()
        if not word or not word.isprintable():
            raise self.fault(expected)
        return word

    def whole(self, *, least: int, most: int) -> int:
        value = self._number()
        if least <= value <= most and value == int(value):
            return int(value)
        raise self.fault(f"a whole number from {least} to {most:,}")

    def number(self, *, above: float | None = None, least: float = 0.0, most: float = math.inf) -> float:
        """At least `least`, or more than `above` where that is given, up to `most`."""
        value = self._number()
        if (value >= least if above is None else value > above) and value <= most and value < math.inf:
            return value
        low = f">= {least:g}" if above is None else f"above {above:g}"
        raise self.fault(f"a number {low}" + (f", at most {most:g}" if most < math.inf else ""))

    def _number(self) -> float:
        """NaN, which fails every comparison, for anything that is not a number."""
        content = self.raw.content
        if isinstance(content, str) and self.raw.is_plain and _NUMBER.fullmatch(content):
            return float(content)
        return math.nan

    def fault(self, expected: str, *, hint: str = "") -> InputError:
        return self.trouble(f"{self.path or 'the file'} is {self._shown()}, expected {expected}", hint=hint)

    def trouble(self, problem: str, *, line: int | None = None, hint: str = "", path: str | None = None) -> InputError:
        at = line or self.raw.line
        where = f"{self.file}:{at}" if at else self.file
        return InputError(f"{where}: {problem}", hint=hint).at(self.path if path is None else path, at or None, problem)

    def _shown(self) -> str:
        content = self.raw.content
        if self.raw.is_map:
            return "a mapping"
        if isinstance(content, list):
            return "a list" if content else "an empty list"
        if self.raw.is_plain:
            return "empty" if content in _NULLS else shorten(content)
        return f'"{shorten(content)}"'

    def _inside(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name
