"""Scores of all nodes for one kind of task. Only nodes that have changed are scored again."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from skep.core.changes import Changes
from skep.core.view import NodeView

Score = TypeVar("Score", int, tuple[int, ...])

Entry = tuple[int, int]
"""The score of a node, higher is better, and the mask of the GPUs that the task would get there."""


class Board(Generic[Score]):
    """For each score the nodes that have it, as the bits of one integer; nodes without enough left have none."""

    __slots__ = ("entries", "epoch", "nodes_of", "scores", "seen")

    def __init__(self) -> None:
        self.epoch = self.seen = -1
        self.entries: dict[int, tuple[Score, int]] = {}
        self.nodes_of: dict[Score, int] = {}
        self.scores: list[Score] = []
        """The scores that any node has or has had, ascending."""

    def follow(
        self,
        changes: Changes,
        nodes: Sequence[NodeView],
        judge: Callable[[NodeView], tuple[Score, int] | None],
    ) -> None:
        if self.epoch != changes.epoch:
            self.entries, self.nodes_of, self.scores = {}, {}, []
            self.epoch = changes.epoch
            for node in nodes:
                self._set(node.index, node.bit, judge(node))
        else:
            for index in changes.since(self.seen):
                node = nodes[index]
                self._set(index, node.bit, judge(node))
        self.seen = changes.count

    def _set(self, index: int, bit: int, entry: tuple[Score, int] | None) -> None:
        before = self.entries.get(index)
        if entry is None:
            if before is not None:
                del self.entries[index]
                self.nodes_of[before[0]] ^= bit
            return
        self.entries[index] = entry
        score = entry[0]
        if before is not None:
            if before[0] == score:
                return
            self.nodes_of[before[0]] ^= bit
        if score in self.nodes_of:
            self.nodes_of[score] |= bit
        else:
            self.nodes_of[score] = bit
            bisect.insort(self.scores, score)

    def best(self, among: int) -> tuple[int, int] | None:
        """(node, GPUs) with the highest score among these nodes (bits), the lowest node on ties."""
        nodes_of = self.nodes_of
        for score in reversed(self.scores):
            nodes = nodes_of[score] & among
            if nodes:
                index = (nodes & -nodes).bit_length() - 1
                return index, self.entries[index][1]
        return None
