"""Which jobs a reader may see: those of some VCs, or all."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from skep.service.values import Json

JOB_NAMED = re.compile(r"\bjob ([0-9]{1,15})(?:/[\w.-]+)?")
"""How sentences name jobs."""


class Sight(msgspec.Struct, frozen=True):
    """`vcs` None: everything; otherwise the jobs of these VCs, and nothing that does not belong to one of them."""

    vcs: frozenset[str] | None = None

    @property
    def is_whole(self) -> bool:
        return self.vcs is None

    def sees(self, vc: str) -> bool:
        return self.vcs is None or vc in self.vcs

    def of(self, vc: str) -> Sight:
        """Restricted to this VC; unrestricted if none is named."""
        return Sight(frozenset({vc} if self.sees(vc) else ())) if vc else self

    def clause(self, column: str = "vc") -> tuple[str, list[str]]:
        """A term for a WHERE clause and its values."""
        if self.vcs is None:
            return "1", []
        return f"{column} IN ({', '.join('?' * len(self.vcs))})", sorted(self.vcs)


EVERYTHING = Sight()


def hide_others(text: str, sight: Sight, vcs: Mapping[str, str]) -> str:
    """The text without the jobs that a reader may not see; `vcs`: the VCs of the jobs that it names, by id."""
    if sight.is_whole:
        return text
    return JOB_NAMED.sub(lambda found: found[0] if sight.sees(vcs.get(found[1], "")) else "a job of another VC", text)


def hide_in(field: str, rows: list[Json], sight: Sight, vcs: Mapping[str, str]) -> list[Json]:
    """`hide_others` for one field of each row."""
    return rows if sight.is_whole else [{**row, field: hide_others(row[field], sight, vcs)} for row in rows]
