"""`skep policies`: the list, one of them, and what is missing somewhere."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from skep.cli.policies import policies


def ask(*args: str) -> Result:
    return CliRunner().invoke(policies, list(args), catch_exceptions=False)


def test_oracles_are_marked_in_the_list() -> None:
    lines = {line.split()[0]: line for line in ask().output.splitlines() if line}
    assert lines["srtf"].split()[1] == "†"
    assert "†" not in lines["tiresias-l"]
    assert "† knows durations, which no real cluster does" in ask().output


def test_what_is_missing_on_a_cluster_is_said_with_what_is_lost() -> None:
    said = ask("afs-l", "--for", "2x8").output.splitlines()
    assert said[0] == "afs-l  assumes throughput, oracle, checkpoint, resize"
    assert [line.split(":")[0].strip() for line in said[1:]] == ["no throughput", "no oracle"]
    assert ask("las", "--for", "2x8").output == "las  assumes checkpoint; all of it is available\n"


def test_as_json() -> None:
    (found,) = json.loads(ask("srtf", "--for", "1x4", "--json").output)
    assert found["needs"] == ["checkpoint", "oracle"]
    assert len(found["missing"]) == 1
    (shown,) = json.loads(ask("srtf", "--json").output)
    assert (shown["oracle"], shown["needs"]) == (True, ["oracle", "checkpoint"])


def test_one_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Mine:\n    needs = {'share'}\n    def plan(self): ...\n")
    spec = f"{tmp_path}/mine.py:Mine"
    assert ask(spec).output == f"{spec} assumes share\n"
    assert "all of it is available" in ask(spec, "--for", "1x4").output
