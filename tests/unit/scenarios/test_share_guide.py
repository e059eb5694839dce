"""The commands of `docs/guides/share-a-cluster.md`, on the files it tells to save."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
from scenario_files import ROOT

from skep.cli.main import main
from skep.scenarios.compare import COMPARED
from skep.scenarios.read import OF_STEP

PAGE = (ROOT / "docs" / "guides" / "share-a-cluster.md").read_text("utf-8")


def test_the_commands_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    texts = [text for language, text in blocks if language == "yaml"]
    for name, text in (("lab.yaml", texts[0]), ("shares.yaml", texts[-1])):
        (tmp_path / name).write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [line for language, text in blocks if not language for line in text.splitlines()]
    assert len(lines) == 2
    for line in lines:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as caught:
            main()
        assert caught.value.code == 0, line
    assert "1 scenario: 1 as expected." in capsys.readouterr().out


def test_the_guide_names_every_step_and_expectation() -> None:
    words = [*(op for op in OF_STEP if op not in ("inspect", "listGroups")), *COMPARED]
    assert [word for word in words if f"`{word}`" not in PAGE] == []
