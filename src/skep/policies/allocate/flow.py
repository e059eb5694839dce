"""A maximum flow from users over their kinds of work to sites: small, without a library."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

EPS = 1e-9

Node = tuple[str, int] | tuple[str, int, int]
SOURCE: Node = ("source", 0)
SINK: Node = ("sink", 0)


class Flow:
    """`users`: what each wants, and how much work it has for each set of sites; `sites`: what each has."""

    def __init__(self, users: Sequence[tuple[float, Mapping[frozenset[int], float]]], sites: Sequence[float]) -> None:
        self.left: dict[Node, dict[Node, float]] = {}
        self.wanted = sum(want for want, _ in users)
        self.kinds = [len(work) for _, work in users]
        for user, (want, work) in enumerate(users):
            self._edge(SOURCE, ("user", user), want)
            for kind, (where, amount) in enumerate(sorted(work.items(), key=lambda each: sorted(each[0]))):
                self._edge(("user", user), ("work", user, kind), amount)
                for site in sorted(where):
                    self._edge(("work", user, kind), ("site", site), amount)
        for site, amount in enumerate(sites):
            self._edge(("site", site), SINK, amount)
        self.value = 0.0
        while path := self._path():
            most = min(self.left[one][other] for one, other in path)
            for one, other in path:
                self.left[one][other] -= most
                self.left[other][one] += most
            self.value += most

    def given(self, user: int, site: int) -> float:
        """How much of the site the user gets."""
        place: Node = ("site", site)
        return sum(self.left.get(place, {}).get(("work", user, kind), 0.0) for kind in range(self.kinds[user]))

    def full_sites(self) -> frozenset[int] | None:
        """The sites that keep users from what they want (a minimum cut); None: all users get it."""
        if self.value >= self.wanted - EPS * max(self.wanted, 1.0):
            return None
        reached = self._reached()
        return frozenset(node[1] for node in reached if node[0] == "site")

    def _edge(self, one: Node, other: Node, amount: float) -> None:
        self.left.setdefault(one, {})[other] = amount
        self.left.setdefault(other, {}).setdefault(one, 0.0)

    def _reached(self) -> dict[Node, Node | None]:
        """Every node that more could flow to, and from where."""
        found: dict[Node, Node | None] = {SOURCE: None}
        todo = deque([SOURCE])
        while todo and SINK not in found:
            one = todo.popleft()
            for other, amount in self.left.get(one, {}).items():
                if amount > EPS and other not in found:
                    found[other] = one
                    todo.append(other)
        return found

    def _path(self) -> list[tuple[Node, Node]]:
        found = self._reached()
        path: list[tuple[Node, Node]] = []
        node: Node = SINK
        while node in found and (before := found[node]) is not None:
            path.append((before, node))
            node = before
        return path
