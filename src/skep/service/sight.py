"""Which jobs a reader may see: those of some VCs, or all."""

from __future__ import annotations

import msgspec


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
