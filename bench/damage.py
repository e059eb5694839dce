"""Ways in which the files of a store can be damaged, each a small function of a folder and a seeded chance."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

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
