"""`skep token`: made, listed, rotated and revoked without a server."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.cli.main import skep
from skep.core.errors import InputError, NotFound
from skep.server.tokens import Tokens


def run(folder: Path, *words: str) -> Result:
    (folder / "skep.db").touch()  # as a server leaves it
    return CliRunner().invoke(skep, ["token", *words, "--data", str(folder)], catch_exceptions=False)


def test_a_token_from_its_making_to_its_end(tmp_path: Path) -> None:
    made = run(tmp_path, "create", "--user", "ann", "--vc", "lab", "--expires", "30d")
    secret = made.stdout.strip()
    assert "for ann (user in lab, until " in made.stderr
    (listed,) = json.loads(run(tmp_path, "list", "-o", "json").stdout)
    assert abs(listed["expires_s"] - time.time() - 30 * 86400) < 600
    table = run(tmp_path, "list").stdout.splitlines()
    assert table[0].split() == ["ID", "USER", "ROLE", "VCS", "CREATED", "EXPIRES"]
    rotated = run(tmp_path, "rotate", listed["id"], "--overlap", "1h")
    assert f"token {listed['id']} expires 3600 s from now" in rotated.stderr
    assert rotated.stdout.strip() not in ("", secret)
    again = run(tmp_path, "rotate", listed["id"])
    assert f"token {listed['id']} is revoked" in again.stderr
    tokens = Tokens(tmp_path)
    assert tokens.find(secret) is None
    new = tokens.find(rotated.stdout.strip())
    assert new is not None
    assert (new.user, new.vcs) == ("ann", ("lab",))
    run(tmp_path, "revoke", new.id)
    assert tokens.find(rotated.stdout.strip()) is None
    tokens.close()


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no token 00000000"):
        run(tmp_path, "rotate", "00000000")
    with pytest.raises(InputError, match="role owner needs a VC"):
        run(tmp_path, "create", "--user", "ann", "--role", "owner")
    assert run(tmp_path, "create", "--user", "ann", "--expires", "soon").exit_code == 2
