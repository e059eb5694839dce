"""Ways in which the files of a store can be damaged, each a small function of a folder and a seeded chance; and whether
a service on a damaged store keeps its promise: refused in one line, or everything that can be asked is answered."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.support.engines import NoEngine

from skep.core.errors import InputError
from skep.jobs.request import Request, TaskRole
from skep.service.files import open_store
from skep.service.live import Live
from skep.service.store import JobFilter

PAGE = 4096


def damage(folder: Path, kind: str, seed: int) -> None:
    """The folder of a server that does not run."""
    KINDS[kind](folder, random.Random(f"{kind} {seed}"))


def _change(path: Path, change: Callable[[bytearray], None]) -> None:
    content = bytearray(path.read_bytes())
    if content:
        change(content)
        path.write_bytes(content)


def flip_bits(path: Path, chance: random.Random) -> None:
    def change(content: bytearray) -> None:
        for _ in range(chance.choice((1, 1, 3, 20))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)

    _change(path, change)


def truncate(path: Path, chance: random.Random) -> None:
    keep = chance.random()
    _change(path, lambda content: content.__delitem__(slice(int(len(content) * keep), None)))


def zero_page(path: Path, chance: random.Random) -> None:
    def change(content: bytearray) -> None:
        page = chance.randrange(max(len(content) // PAGE, 1)) * PAGE
        content[page : page + PAGE] = bytes(len(content[page : page + PAGE]))

    _change(path, change)


def swap_pages(path: Path, chance: random.Random) -> None:
    def change(content: bytearray) -> None:
        count = max(len(content) // PAGE, 1)
        one, other = (slice(page * PAGE, page * PAGE + PAGE) for page in (chance.randrange(count) for _ in range(2)))
        if len(content[one]) == len(content[other]):
            content[one], content[other] = content[other], content[one]

    _change(path, change)


def _main(hurt: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    return lambda folder, chance: hurt(folder / "skep.db", chance)


def _journal(hurt: Callable[[Path, random.Random], None]) -> Callable[[Path, random.Random], None]:
    def change(folder: Path, chance: random.Random) -> None:
        if (folder / "skep.db-wal").exists():
            hurt(folder / "skep.db-wal", chance)

    return change


def lose_journal(folder: Path, chance: random.Random) -> None:
    (folder / "skep.db-wal").unlink(missing_ok=True)


def lose_store(folder: Path, chance: random.Random) -> None:
    (folder / "skep.db").unlink()


def empty_store(folder: Path, chance: random.Random) -> None:
    (folder / "skep.db").write_bytes(b"")


def swap_with_journal(folder: Path, chance: random.Random) -> None:
    store, journal = folder / "skep.db", folder / "skep.db-wal"
    if journal.exists():
        first, second = store.read_bytes(), journal.read_bytes()
        store.write_bytes(second)
        journal.write_bytes(first)


def another_database(folder: Path, chance: random.Random) -> None:
    lose_journal(folder, chance)
    lose_store(folder, chance)
    db = sqlite3.connect(folder / "skep.db")
    db.execute("CREATE TABLE tokens (id TEXT)")
    db.commit()
    db.close()


def not_a_database(folder: Path, chance: random.Random) -> None:
    (folder / "skep.db").write_bytes(chance.randbytes(3 * PAGE))


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "flip-bits": _main(flip_bits),
    "truncate": _main(truncate),
    "zero-page": _main(zero_page),
    "swap-pages": _main(swap_pages),
    "flip-bits-of-journal": _journal(flip_bits),
    "truncate-journal": _journal(truncate),
    "zero-page-of-journal": _journal(zero_page),
    "lose-journal": lose_journal,
    "lose-store": lose_store,
    "empty-store": empty_store,
    "swap-with-journal": swap_with_journal,
    "another-database": another_database,
    "not-a-database": not_a_database,
}


def outcome(folder: Path, now_s: float) -> str:
    """`refused`, `serves`, or what is wrong with the refusal; an exception is what a request would have met."""
    try:
        live = Live(open_store(folder), lambda live: NoEngine(), lambda: now_s)
    except InputError as error:
        is_one_line = "\n" not in str(error) and bool(error.hint)
        return "refused" if is_one_line else str(error)
    try:
        ask_everything(live)
    finally:
        live.close()
    return "serves"


def ask_everything(live: Live) -> None:
    rows = live.jobs(JobFilter(all=True), 100_000, None)[0]
    for row in rows:
        live.job(row["id"])
        live.explain(row["id"])
        live.events(0, row["id"], 1000)
    for state in ("pending", "running", "succeeded", "failed"):
        live.jobs(JobFilter(states=(state,)), 100_000, None)
    live.events(0, None, 10_000)
    for by in ("user", "vc", "job"):
        live.usage(by, None, None)
    live.cluster()
    live.stats()
    request = Request(name="new", tasks={"task": TaskRole(gpus=1, command="true")}, user="ann")
    assert live.submit([request], "ann", "a key of its own").result(60)
    live.submit([request], "ann", "key-3")  # refused or known: it is answered
