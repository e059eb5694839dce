"""Tokens: who somebody is, and what they may do.

Only the SHA-256 of a token is kept; a token has 256 random bits, so no slow hash is needed. The file is read at every
request, so that a token made or revoked by `skep token` counts at once.
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
from pathlib import Path
from typing import Any

import msgspec

from skep.core.errors import InputError
from skep.server.datadir import prepare_folder

ROLES = ("admin", "owner", "user", "viewer")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_TOKEN = re.compile(r"skep_([0-9a-f]{8})_[A-Za-z0-9_-]{43}")
_TABLE = """CREATE TABLE IF NOT EXISTS tokens
    (id TEXT PRIMARY KEY, digest TEXT NOT NULL, user TEXT NOT NULL, vcs TEXT NOT NULL, role TEXT NOT NULL,
     created_s REAL NOT NULL)"""


class Token(msgspec.Struct, frozen=True):
    """`vcs` empty: every VC."""

    id: str
    user: str
    vcs: tuple[str, ...]
    role: str
    created_s: float


class Tokens:
    def __init__(self, data: Path) -> None:
        prepare_folder(data)
        path = data / "tokens.db"
        try:
            # SQLite would make it readable for everybody.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
            self._db.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{path} cannot be used: {reason}") from None
        self._lock = threading.Lock()

    def create(self, user: str, role: str, vcs: tuple[str, ...] = ()) -> tuple[Token, str]:
        """The token, and its secret text, which nobody can show again."""
        for word in (user, *vcs):
            if not NAME.fullmatch(word):
                raise InputError(f"{word[:80]!r} is no name of a user or VC", hint="letters, digits, . _ - and @")
        if role not in ROLES:
            raise InputError(f"role {role[:80]!r} is unknown", hint=f"one of {', '.join(ROLES)}")
        if role == "owner" and not vcs:
            raise InputError("role owner needs a VC", hint="say --vc NAME; over all VCs that is role admin")
        token_id = secrets.token_hex(4)
        secret = f"skep_{token_id}_{secrets.token_urlsafe(32)}"
        token = Token(token_id, user, tuple(dict.fromkeys(vcs)), role, round(time.time(), 3))  # noqa: TID251 (the edge has a clock)
        row = (token.id, _digest(secret), token.user, ",".join(token.vcs), token.role, token.created_s)
        with self._lock:
            self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?)", row)
        return token, secret

    def find(self, secret: str) -> Token | None:
        match = _TOKEN.fullmatch(secret)
        if match is None:
            return None
        with self._lock:
            row = self._db.execute(
                "SELECT id, user, vcs, role, created_s, digest FROM tokens WHERE id = ?", match.groups()
            ).fetchone()
        known = row[5] if row else _digest("")
        is_equal = hmac.compare_digest(known, _digest(secret))
        return _token(row) if row and is_equal else None

    def list(self) -> list[Token]:
        with self._lock:
            rows = self._db.execute(
                "SELECT id, user, vcs, role, created_s FROM tokens ORDER BY created_s, id"
            ).fetchall()
        return [_token(row) for row in rows]

    def revoke(self, token_id: str) -> bool:
        with self._lock:
            return self._db.execute("DELETE FROM tokens WHERE id = ?", (token_id,)).rowcount > 0

    def close(self) -> None:
        self._db.close()


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _token(row: tuple[Any, ...]) -> Token:
    return Token(row[0], row[1], tuple(row[2].split(",")) if row[2] else (), row[3], row[4])
