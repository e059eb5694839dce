"""Tokens: the user of a request, and what this user may do.

Only the SHA-256 of a token is stored; a token has 256 random bits, so no slow hash is needed. The file is read at every
request, so that a token created or revoked by `skep token` takes effect at once.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from skep.core.errors import InputError
from skep.server.datadir import prepare_folder
from skep.service.values import SqlRow

ROLES = ("admin", "owner", "user", "viewer")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
LIFE_MAX_S = 10 * 366 * 86400.0
"""The longest life of a token that expires: ten years."""
VERSION = 1
_TOKEN = re.compile(r"skep_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_TABLE = """CREATE TABLE IF NOT EXISTS tokens
    (id TEXT PRIMARY KEY, digest TEXT NOT NULL, user TEXT NOT NULL, vcs TEXT NOT NULL, role TEXT NOT NULL,
     created_s REAL NOT NULL)"""
_CHANGES = """CREATE TABLE IF NOT EXISTS changes
    (number INTEGER PRIMARY KEY, at_s REAL NOT NULL, by TEXT NOT NULL, text TEXT NOT NULL)"""
_COLUMNS = "id, user, vcs, role, created_s, expires_s"


class Token(msgspec.Struct, frozen=True):
    """`vcs` empty: every VC. `expires_s` None: never."""

    id: str
    user: str
    vcs: tuple[str, ...]
    role: str
    created_s: float
    expires_s: float | None = None

    @property
    def is_expired(self) -> bool:
        return self.expires_s is not None and self.expires_s <= now_s()


class TokenChange(msgspec.Struct, frozen=True):
    """What was done to a token, and by whom; kept until the server has recorded it as an event."""

    number: int
    at_s: float
    by: str
    text: str

    @property
    def age_s(self) -> float:
        return now_s() - self.at_s


class Tokens:
    def __init__(self, data: Path, by: str = "") -> None:
        """`by`: who changes tokens through this object, unless a call names another user."""
        self._by = by
        prepare_folder(data)
        path = data / "tokens.db"
        try:
            # SQLite would make it readable for all accounts.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
            _prepare(self._db, path)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{path} cannot be used: {reason}") from None
        self._lock = threading.Lock()

    def create(
        self, user: str, role: str, vcs: tuple[str, ...] = (), life_s: float | None = None, *, by: str = ""
    ) -> tuple[Token, str]:
        """The token and its secret text, which is not stored. `life_s` None: the token does not expire."""
        for word in (user, *vcs):
            if not NAME.fullmatch(word):
                raise InputError(
                    f"{word[:80]!r} is not a valid name of a user or VC", hint="letters, digits, . _ - and @"
                )
        if role not in ROLES:
            raise InputError(f"role {role[:80]!r} is unknown", hint=f"one of {', '.join(ROLES)}")
        if role == "owner" and not vcs:
            raise InputError("role owner needs a VC", hint="use --vc NAME; for all VCs use role admin")
        if life_s is not None and not 0 < life_s <= LIFE_MAX_S:
            raise InputError(
                f"a token cannot expire after {life_s:g} s", hint="expected more than 0 s, at most 10 years"
            )
        token_id = secrets.token_hex(4)
        secret = f"skep_{token_id}_{secrets.token_urlsafe(32)}"
        created_s = round(now_s(), 3)
        expires_s = None if life_s is None else created_s + life_s
        token = Token(token_id, user, tuple(dict.fromkeys(vcs)), role, created_s, expires_s)
        row = (token.id, _digest(secret), token.user, ",".join(token.vcs), token.role, created_s, expires_s)
        where = f" in {', '.join(token.vcs)}" if token.vcs else ""
        with self._changing(f"token {token.id} was created for {user} ({role}{where})", by):
            self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        return token, secret

    def find(self, secret: str) -> Token | None:
        """The token with this secret, expired or not."""
        match = _TOKEN.fullmatch(secret)
        if match is None:
            return None
        with self._lock:
            row = self._db.execute(f"SELECT {_COLUMNS}, digest FROM tokens WHERE id = ?", match.groups()).fetchone()
        known = row[-1] if row else _digest("")
        is_equal = hmac.compare_digest(known, _digest(secret))
        return _token(row) if row and is_equal else None

    def get(self, token_id: str) -> Token | None:
        with self._lock:
            row = self._db.execute(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", (token_id,)).fetchone()
        return _token(row) if row else None

    def valid(self, ids: Iterable[str]) -> set[str]:
        """Tokens that are neither revoked nor expired."""
        found = (self.get(token_id) for token_id in ids)
        return {token.id for token in found if token is not None and not token.is_expired}

    def list(self) -> list[Token]:
        with self._lock:
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM tokens ORDER BY created_s, id").fetchall()
        return [_token(row) for row in rows]

    def rotate(self, token_id: str, overlap_s: float = 0.0, *, by: str = "") -> tuple[Token, str] | None:
        """Create another token of the same user, role, VCs and life; the old one ends now, or after `overlap_s`."""
        old = self.get(token_id)
        if old is None:
            return None
        life_s = None if old.expires_s is None else min(max(old.expires_s - old.created_s, 1.0), LIFE_MAX_S)
        made = self.create(old.user, old.role, old.vcs, life_s, by=by)
        if overlap_s > 0:
            until_s = min(now_s() + overlap_s, old.expires_s if old.expires_s is not None else float("inf"))
            with self._changing(f"token {token_id} of {old.user} expires in {overlap_s:g} s", by):
                self._db.execute("UPDATE tokens SET expires_s = ? WHERE id = ?", (until_s, token_id))
        else:
            self.revoke(token_id, by=by)
        return made

    def revoke(self, token_id: str, *, by: str = "") -> bool:
        old = self.get(token_id)
        if old is None:
            return False
        with self._changing(f"token {token_id} of {old.user} was revoked", by):
            return self._db.execute("DELETE FROM tokens WHERE id = ?", (token_id,)).rowcount > 0

    @contextmanager
    def _changing(self, text: str, by: str) -> Iterator[None]:
        """The change and its record are one transaction."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute(
                    "INSERT INTO changes (at_s, by, text) VALUES (?, ?, ?)", (now_s(), by or self._by, text)
                )
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def changes(self) -> tuple[TokenChange, ...]:
        """Those that are not recorded yet."""
        with self._lock:
            rows = self._db.execute("SELECT number, at_s, by, text FROM changes ORDER BY number").fetchall()
        return tuple(TokenChange(*row) for row in rows)

    def forget_change(self, number: int) -> None:
        with self._lock:
            self._db.execute("DELETE FROM changes WHERE number = ?", (number,))

    def close(self) -> None:
        self._db.close()


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    """The first format had no version and no expiry."""
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise InputError(f"{path} was written by a newer version of Skep", hint="use that version")
    db.execute("BEGIN IMMEDIATE")
    db.execute(_TABLE)
    db.execute(_CHANGES)
    if version == 0 and "expires_s" not in {row[1] for row in db.execute("PRAGMA table_info(tokens)")}:
        db.execute("ALTER TABLE tokens ADD COLUMN expires_s REAL")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def now_s() -> float:
    return time.time()  # noqa: TID251 (the edge has a clock)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(row: SqlRow) -> Token:
    return Token(row[0], row[1], tuple(row[2].split(",")) if row[2] else (), row[3], row[4], row[5])
