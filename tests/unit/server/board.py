"""A real service on paper jobs, and answers held against their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_world import World, maker
from pydantic import TypeAdapter

API = "/api/v1"
CLUSTER = """
nodes: [{count: 2, name: a, gpus: 4, rack: r0}, {count: 2, name: b, gpus: 4, rack: r1}]
vcs: {red: 2 nodes, blue: 2 nodes}
"""


class Board(World):
    def __init__(self, folder: Path, cluster: str = CLUSTER, policy: str = "fifo", **flags: Any) -> None:
        super().__init__(folder, maker(cluster, policy), **flags)

    def get(self, path: str, shape: Any, who: dict[str, str] | None = None) -> Any:
        """The answer, which must be of exactly this shape."""
        answer = self.client.get(f"{API}{path}", headers=who)
        assert answer.status_code == 200, answer.text
        TypeAdapter(shape).validate_json(answer.content, strict=True)
        return answer.json()
