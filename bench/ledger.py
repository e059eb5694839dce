"""How fast are the books of the GPUs? Take, give and ask, on 5,000 nodes of 8 GPUs, against a bare loop over a dict.

    python -m bench.ledger            about half a minute
    python -m bench.ledger --quick    500 nodes

Rates depend on the machine, so they are shown beside what is wanted and never fail a run. What can fail it (exit code
1) does not: the time of an operation against one turn of a bare loop of the same run that writes a dict.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from skep.core.cluster import WHOLE, Allocation, Cluster, NodeSpec, Slice
from skep.core.job import Job
from skep.core.model import JobSpec, Role, Shape
from skep.core.plan import Plan
from skep.policies.place.simple import Consolidate

sys.path.insert(0, str(Path(__file__).resolve().parent))  # so that it runs as a file and as a module

from words import is_ok, machine, number, print_columns, yes_no

NODES, GPUS, MEMORY_MIB = 5000, 8, 32 * 1024
ROUNDS, OPERATIONS, QUERIES = 5, 40_000, 4_000
SHARES = (100, 200, 250, 300, 500, 500, 640)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table. `wanted` is only compared; `ratio_max` is the gate."""

    what: str
    per_s: float
    wanted: float | None
    ratio: float
    ratio_max: float

    @property
    def is_within(self) -> bool | None:
        return None if self.wanted is None else self.per_s >= self.wanted

    @property
    def is_ok(self) -> bool | None:
        return is_ok(self.ratio, self.ratio_max)


@dataclasses.dataclass(frozen=True)
class Case:
    """`prepare` makes a cluster and gives what is timed: it returns how many operations it did."""

    what: str
    wanted: float | None
    ratio_max: float
    prepare: Callable[[int, random.Random], Callable[[], int]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ledger", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quick", action="store_true", help="500 nodes only")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each figure (default %(default)s)")
    given = parser.parse_args()
    rows = list(measure(NODES // 10 if given.quick else NODES, max(given.rounds, 1)))
    if given.json:
        found = [{**dataclasses.asdict(row), "is_within": row.is_within, "is_ok": row.is_ok} for row in rows]
        print(json.dumps({"machine": machine(), "rows": found}, indent=2))
    else:
        print_table(rows)
    return 1 if any(row.is_ok is False for row in rows) else 0


def measure(nodes: int, rounds: int) -> Iterator[Row]:
    for case in CASES:
        costs, loops = [], []
        for seed in range(rounds):
            timed = case.prepare(nodes, random.Random(seed))
            costs.append(cost_s(timed))
            loops.append(cost_s(dict_loop))
        seen_s = statistics.median(costs)
        yield Row(case.what, 1 / seen_s, case.wanted, seen_s / statistics.median(loops), case.ratio_max)


def cost_s(timed: Callable[[], int]) -> float:
    """CPU seconds of one operation."""
    gc.collect()
    gc.disable()
    begun_s = time.process_time()
    count = timed()
    spent_s = time.process_time() - begun_s
    gc.enable()
    return spent_s / count


def dict_loop() -> int:
    """One turn reads a slot, writes it, and takes it away again."""
    table: dict[int, int] = {}
    for turn in range(OPERATIONS):
        key = turn & 1023
        table[key] = table.get(key, 0) ^ turn
        del table[key]
    return OPERATIONS


# What is timed ---------------------------------------------------------------------------------------------------


def empty(nodes: int) -> Cluster:
    return Cluster([NodeSpec(f"n{index}", GPUS, gpu_mem_mib=MEMORY_MIB) for index in range(nodes)])


def in_turns(cluster: Cluster, held: list[tuple[Allocation, int]], chance: random.Random) -> Callable[[], int]:
    """Everything is taken; then one after the other is given back and taken again, in any order."""
    for allocation, owner in held:
        cluster.take(allocation, owner)
    picked = [chance.choice(held) for _ in range(OPERATIONS // 2)]

    def timed() -> int:
        take, give = cluster.take, cluster.give
        for allocation, owner in picked:
            give(allocation, owner)
            take(allocation, owner)
        return 2 * len(picked)

    return timed


def whole_gpus(nodes: int, chance: random.Random, *, memory_mib: int = 0) -> Callable[[], int]:
    held = []
    for node in range(nodes):
        for mask in chance.choice([(0b11111111,), (0b1111, 0b110000), (0b1, 0b10, 0b11100)]):
            allocation = Allocation((Slice(node, mask, gpu_mem_mib=memory_mib),), mask.bit_count())
            held.append((allocation, len(held)))
    return in_turns(empty(nodes), held, chance)


def whole_with_memory(nodes: int, chance: random.Random) -> Callable[[], int]:
    return whole_gpus(nodes, chance, memory_mib=8 * 1024)


def shares(nodes: int, chance: random.Random) -> Callable[[], int]:
    return in_turns(empty(nodes), made_shares(nodes, chance, 1), chance)


def shares_and_asking(nodes: int, chance: random.Random) -> Callable[[], int]:
    """After each change somebody asks for what nobody has: the index has to follow every time."""
    cluster, held = empty(nodes), made_shares(nodes, chance, 1)
    for allocation, owner in held:
        cluster.take(allocation, owner)
    picked = [chance.choice(held) for _ in range(QUERIES)]
    pool = cluster.pools[0]

    def timed() -> int:
        for allocation, owner in picked:
            cluster.give(allocation, owner)
            assert not any(pool.shares(999, 0))
            cluster.take(allocation, owner)
            assert not any(pool.shares(999, 0))
        return 2 * len(picked)

    return timed


def halves_of_two(nodes: int, chance: random.Random) -> Callable[[], int]:
    return in_turns(empty(nodes), made_shares(nodes, chance, 2), chance)


def made_shares(nodes: int, chance: random.Random, width: int) -> list[tuple[Allocation, int]]:
    """Every GPU is filled with shares until the next does not fit; `width` GPUs at a time."""
    held = []
    for node in range(nodes):
        for gpu in range(0, GPUS, width):
            left, mask = 1000, (1 << width) - 1 << gpu
            while (milli := chance.choice(SHARES)) <= left:
                left -= milli
                piece = Slice(node, mask, milli=milli, gpu_mem_mib=chance.choice((512, 1024, 2048)))
                held.append((Allocation((piece,), milli * width / 1000), len(held)))
    return held


def failing(milli: int, memory_gib: int) -> Callable[[int, random.Random], Callable[[], int]]:
    """Ask for a share that no GPU has room for: every GPU has tenants."""

    def prepare(nodes: int, chance: random.Random) -> Callable[[], int]:
        cluster = empty(nodes)
        for node in cluster.nodes:
            for gpu in range(GPUS):
                used = chance.randrange(401, 1000)
                piece = Slice(node.index, 1 << gpu, milli=used, gpu_mem_mib=chance.randrange(28 * 1024, 30 * 1024))
                cluster.take(Allocation((piece,), used / 1000), node.index)
        pool = cluster.pools[0]
        pool.follow()  # What it costs to follow is in the rows above.

        def timed() -> int:
            for _ in range(QUERIES):
                for _found in pool.shares(milli, memory_gib * 1024):
                    raise AssertionError("nothing should fit")
            return QUERIES

        return timed

    return prepare


def nowhere(role: Role) -> Callable[[int, random.Random], Callable[[], int]]:
    """Ask a placement for a job that fits on no node: every GPU is taken, some with a little left."""

    def prepare(nodes: int, chance: random.Random) -> Callable[[], int]:
        cluster = empty(nodes)
        for node in cluster.nodes:
            for gpu in range(GPUS):
                milli = chance.choice((WHOLE, 700, 800, 900))
                cluster.take(Allocation((Slice(node.index, 1 << gpu, milli=milli),), milli / WHOLE), node.index)
        cluster.pools[0].follow()
        place, plan, asking = Consolidate(), Plan({}, cluster), Job(JobSpec("asking", (Shape((role,)),)), 0, 0.0)

        def timed() -> int:
            for _ in range(QUERIES):
                if place.find(cluster, plan, asking, asking.spec.shapes[0], 0.0) is not None:
                    raise AssertionError("nothing should fit")
            return QUERIES

        return timed

    return prepare


CASES = (
    Case("whole GPUs, take or give", 1_000_000, 9, whole_gpus),
    Case("whole GPUs with GPU memory, take or give", None, 14, whole_with_memory),
    Case("shares, take or give", 250_000, 50, shares),
    Case("shares, take or give, and ask", None, 250, shares_and_asking),
    Case("shares of two GPUs, take or give", None, 90, halves_of_two),
    Case("ask for 600 milli, 400 left at most", 50_000, 100, failing(600, 0)),
    Case("ask for 100 milli and 6 GiB, 4 GiB left at most", 50_000, 300, failing(100, 6)),
    Case("place half a GPU, 300 milli left at most", 50_000, 300, nowhere(Role(1, 1, gpu_milli=500))),
    Case("place 2 GPUs with 4 CPUs, none free", 50_000, 300, nowhere(Role(1, 2, cpu=4.0))),
)


def print_table(rows: list[Row]) -> None:
    table = [["what", "per second", "wanted", "× dict loop", "gate", "kept"]]
    for row in rows:
        wanted = "" if row.wanted is None else f"{row.wanted:,.0f}"
        gate = f"{row.ratio_max:.0f}"
        table.append([row.what, f"{row.per_s:,.0f}", wanted, number(row.ratio, 1), gate, yes_no(row.is_ok)])
    print_columns(table)


if __name__ == "__main__":
    sys.exit(main())
