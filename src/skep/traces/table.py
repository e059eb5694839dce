"""Reading tables: the common mechanism of every format made of rows and columns.

A format declares its columns and how one row becomes a job. Everything else is here: opening the file, finding the
columns, checking cells, and deciding what a bad row means. In a strict format it is an error that names the line; in a
published one it is dropped and counted, because published files cannot be repaired.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from skep.core.errors import InputError, did_you_mean
from skep.core.model import JobSpec, Shape, gpu_shape
from skep.core.weights import WEIGHT_MAX
from skep.files.text import load_text
from skep.traces.trace import Trace, TraceJob

Draft = tuple[float, float, JobSpec]
"""(submission, work, spec) of a row, before the times of all rows are known."""
Columns = dict[str, int]
"""Column name → index, for the known columns that the file has."""
RowParser = Callable[[int, list[str]], Draft]
"""(number of the row counted from 0, its cells) → job, or `BadRow`."""

TIME_MAX_S = 1e12
"""Later than any trace, and small enough to keep seconds exact; dates in milliseconds are larger."""

COUNT_MAX = 10**9
"""Beyond any cluster: a larger count is a typing error, and would overflow somewhere less clear."""


NOTHING_RENAMED: Mapping[str, str] = {}


class Source(NamedTuple):
    """A file as text, with the path as the user typed it for messages."""

    path: str
    text: str
    renamed: Mapping[str, str] = NOTHING_RENAMED
    """Columns of the format, by their names in this file."""

    @property
    def name(self) -> str:
        return Path(self.path).name


class TableFormat(NamedTuple):
    """The declaration of a format."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    parser: Callable[[Columns], RowParser]
    is_strict: bool = False
    is_dated: bool = False
    """True if times are dates, so that the first submission becomes 0."""
    has_header: bool = True
    """Without a header the columns are `required`, in this order."""
    delimiter: str = ","
    """Quotes have a meaning only if it is a comma."""
    check: Callable[[Source, list[Draft], dict[str, int]], None] | None = None
    """A check that needs all rows; it gets the line of each job."""


class BadRow(Exception):
    """A row that cannot be used; `reason` is the same for all rows with this error, to be counted."""

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


WHAT = "a trace"
HINT = "a trace is CSV, JSON or tabbed text in UTF-8; ours starts with job_id,submit_s,duration_s,gpus"


def load(path: str | Path) -> Source:
    return Source(str(path), load_text(path, what=WHAT, hint=HINT, size_max=None))


def read_table(source: Source, table: TableFormat) -> Trace:
    """All usable rows of a table as a trace."""
    rows = _rows(source, table)
    width, parse, ignored = _open(source, table, rows)
    drafts: list[Draft] = []
    dropped: dict[str, int] = {}
    lines: dict[str, int] = {}
    for number, (line, row) in enumerate(rows):
        try:
            if len(row) != width:
                raise BadRow(f"{len(row)} cells, expected {width}", reason="wrong number of cells")
            draft = parse(number, row)
            id = draft[2].id
            first = lines.setdefault(id, line)
            if first != line:
                raise BadRow(f"job_id {printable(id)} is already in line {first}", reason="job_id is used twice")
        except BadRow as bad:
            if table.is_strict:
                raise InputError(f"{source.path}:{line}: {bad}") from None
            dropped[bad.reason] = dropped.get(bad.reason, 0) + 1
        else:
            drafts.append(draft)
    if table.check is not None:
        table.check(source, drafts, lines)
    trace = build_trace(source, table.name, drafts, dropped, is_dated=table.is_dated)
    trace.ignored = ignored
    return trace


def build_trace(source: Source, format: str, drafts: list[Draft], dropped: dict[str, int], *, is_dated: bool) -> Trace:
    """Jobs in order of (submission, row); a trace without any is an error."""
    if not drafts:
        raise _nothing_usable(source, dropped)
    drafts.sort(key=itemgetter(0))
    origin = drafts[0][0] if is_dated else 0.0
    jobs = [TraceJob(at - origin, work, spec) for at, work, spec in drafts]
    return Trace(name=source.name, format=format, jobs=jobs, dropped=dropped)


def count_dropped(dropped: dict[str, int]) -> str:
    """`never ran (12), job_id is used twice (3)`, the most frequent first."""
    ranked = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason} ({count})" for reason, count in ranked)


def _nothing_usable(source: Source, dropped: dict[str, int]) -> InputError:
    if not dropped:
        return InputError(f"{source.path}: has no jobs", hint="there is nothing below the header")
    return InputError(f"{source.path}: has no usable job: {count_dropped(dropped)}")


def _rows(source: Source, table: TableFormat) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row that is not blank; the line is where the row ends."""
    text = io.StringIO(source.text, newline="")
    is_csv = table.delimiter == ","
    reader = csv.reader(text, delimiter=table.delimiter, quoting=csv.QUOTE_MINIMAL if is_csv else csv.QUOTE_NONE)
    try:
        for row in reader:
            if len(row) > 1 or (row and row[0].strip()):
                yield reader.line_num, row
    except csv.Error as error:
        raise InputError(f"{source.path}:{reader.line_num}: is not CSV: {error}") from None


def _open(
    source: Source, table: TableFormat, rows: Iterator[tuple[int, list[str]]]
) -> tuple[int, RowParser, tuple[str, ...]]:
    """Number of cells of a row, the parser for the columns that exist, and notes about the others."""
    if not table.has_header:
        return len(table.required), table.parser({name: at for at, name in enumerate(table.required)}), ()
    line, header = next(rows)
    names = [cell.strip() for cell in header]
    _check_renamed(f"{source.path}:{line}", names, source.renamed)
    names = [source.renamed.get(name, name) for name in names]
    known = table.required + table.optional
    if table.is_strict:
        _check_names(f"{source.path}:{line}", names, known)
    columns = {name: names.index(name) for name in known if name in names}
    missing = [name for name in table.required if name not in columns]
    if missing:
        near = did_you_mean(missing[0], [name for name in names if name not in known])
        raise InputError(
            f"{source.path}:{line}: no column {missing[0]}, expected {','.join(table.required)}",
            hint=f"it was read as {table.name}; --map {missing[0]}=NAME says which column of the file it is"
            + (f" ({near})" if near else "")
            + ", --format names another format",
        )
    ignored = [name for name in names if name not in known] if table.is_strict else []
    return len(header), table.parser(columns), tuple(_ignored(name, known) for name in ignored)


def _check_renamed(where: str, names: list[str], renamed: Mapping[str, str]) -> None:
    for theirs, ours in renamed.items():
        if theirs not in names:
            hint = f"it has {', '.join(printable(name) for name in names[:20])}"
            raise InputError(f"{where}: no column {printable(theirs)}, which --map names for {ours}", hint=hint)


def _check_names(where: str, names: list[str], known: tuple[str, ...]) -> None:
    for at, name in enumerate(names):
        if name in known and name in names[:at]:
            raise InputError(f"{where}: column {name} is given twice")


def _ignored(name: str, known: tuple[str, ...]) -> str:
    return f"column {printable(name)} is ignored" + did_you_mean(name, known, start="; ")


def shape_cache() -> Callable[..., tuple[Shape, ...]]:
    """`gpu_shape` as the shapes of a job, with the same object for equal requests."""

    def shapes(*args: int, **wants: object) -> tuple[Shape, ...]:
        return (gpu_shape(*args, **wants),)  # type: ignore[arg-type]

    return cache(shapes)


def bad_cell(cell: str, column: str, expected: str) -> BadRow:
    return BadRow(f"{column} is {printable(cell)}, expected {expected}", reason=f"{column} is not {expected}")


def printable(cell: str) -> str:
    """Text of a file for a message: on one line, not too long, and without terminal sequences."""
    cell = cell.strip()
    if not cell:
        return "empty"
    if len(cell) > 40:
        cell = cell[:40] + "…"
    return cell if cell.isprintable() else repr(cell)


def seconds(cell: str, column: str) -> float:
    """A time or duration: not negative, and not beyond any history."""
    value = _number(cell)
    if 0 <= value <= TIME_MAX_S:
        return value
    limit = "from 0 to 1e12" if TIME_MAX_S < value < math.inf else ">= 0"
    raise bad_cell(cell, column, f"a number of seconds {limit}")


SPAN = re.compile(r"(?:(\d{1,6})-)?(\d{1,6}):([0-5]\d):([0-5]\d(?:\.\d+)?)")


def span(cell: str, column: str) -> float:
    """Seconds, or `hh:mm:ss` with days before it if there are any: `1-02:30:00`."""
    found = SPAN.fullmatch(cell.strip()) if ":" in cell else None
    if found is None:
        return seconds(cell, column)
    days, hours, minutes, rest = found.groups()
    return int(days or 0) * 86400 + int(hours) * 3600 + int(minutes) * 60 + float(rest)


def amount(cell: str, column: str) -> float:
    """An amount: finite and not negative."""
    value = _number(cell)
    if 0 <= value < math.inf:
        return value
    raise bad_cell(cell, column, "a number >= 0")


def whole(cell: str, column: str, *, least: int = 0, most: int = COUNT_MAX) -> int:
    """A count; `4.0` is one too, because spreadsheets and pandas write it."""
    value = _number(cell)
    if least <= value <= most and value == int(value):
        return int(value)
    limit = f">= {least}" if most == COUNT_MAX and not most < value < math.inf else f"from {least} to {most}"
    raise bad_cell(cell, column, f"a whole number {limit}")


def identity(cell: str, column: str) -> str:
    name = cell.strip()
    if not name:
        raise bad_cell(cell, column, "a name")
    return name


def needs_something(gpus: int, cpu: float) -> None:
    if not gpus and not cpu:
        message = "gpus is 0 and cpu is 0, expected one of them above 0"
        raise BadRow(message, reason="asks for neither GPUs nor CPUs")


def gpu_types(cell: str) -> tuple[str, ...]:
    """Types joined by `|`, in lower case as everywhere in Skep, each once."""
    return tuple(dict.fromkeys(name for part in cell.lower().split("|") if (name := part.strip())))


def _number(cell: str) -> float:
    """NaN, which fails every comparison, for anything that is not a number."""
    try:
        value = float(cell)
    except ValueError:
        return math.nan
    # Python reads 1_000 as a number, which no trace means.
    return value if "_" not in cell else math.nan


def weight(cell: str, column: str) -> float:
    found = amount(cell, column)
    if not 0 < found <= WEIGHT_MAX:
        raise bad_cell(cell, column, f"a number above 0, at most {WEIGHT_MAX:,.0f}")
    return found
