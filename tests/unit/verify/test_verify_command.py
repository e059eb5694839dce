"""`skep verify` as typed: what it prints, and that a mismatch is exit code 1."""

from __future__ import annotations

import json
import sys

import pytest

from skep.cli.main import main
from skep.cli.verify import finding_lines
from skep.verify import registry
from skep.verify.check import Check, Finding, same

GOOD = Check("good", "fifo", "A title", "by hand: one", lambda: [same("value", 1, 1)])
WRONG = Check("wrong", "srsf", "Another", "by hand: two", lambda: [same("first", 1, 1), same("second", 2, 3)])


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "checks", lambda: {"good": GOOD, "wrong": WRONG})


def status(monkeypatch: pytest.MonkeyPatch, *args: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["skep", "verify", *args])
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code


@pytest.mark.usefixtures("injected")
def test_a_mismatch_is_exit_code_1_and_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch) == 1
    out = capsys.readouterr().out
    assert "DIFFERS  wrong" in out
    assert "second  expected 2  seen 3" in out
    assert out.endswith("1 of 2 checks differs: wrong\n")


def test_one_that_hangs_is_stopped_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hang() -> list[Finding]:
        while True:
            pass

    hangs = Check("hangs", "fifo", "A title", "by hand: one", hang)
    monkeypatch.setattr(registry, "checks", lambda: {"hangs": hangs, "good": GOOD})
    assert status(monkeypatch, "--limit", "0.1") == 1
    out = capsys.readouterr().out
    assert "expected ends within 0.1 s" in out
    assert "stopped, still running" in out
    assert "ok       good" in out
    assert out.endswith("1 of 2 checks differs: hangs\n")


def test_a_terminal_is_told_which_check_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "checks", lambda: {"good": GOOD})
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert status(monkeypatch) == 0
    assert "1 of 1: good" in capsys.readouterr().err


@pytest.mark.usefixtures("injected")
def test_all_as_expected_is_exit_code_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(monkeypatch, "fifo") == 0
    assert capsys.readouterr().out == (
        "ok       good\n"
        "         A title\n"
        "         by hand: one\n"
        "         value  expected 1  seen 1\n"
        "\n"
        "1 check, 1 answer: all as expected.\n"
    )


@pytest.mark.usefixtures("injected")
def test_json_is_all_there_is_on_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(monkeypatch, "--json") == 1
    good, wrong = json.loads(capsys.readouterr().out)
    assert good == {
        "name": "good",
        "policy": "fifo",
        "title": "A title",
        "source": "by hand: one",
        "holds": True,
        "findings": [{"what": "value", "expected": "1", "seen": "1", "holds": True}],
    }
    assert not wrong["holds"]
    assert [finding["holds"] for finding in wrong["findings"]] == [True, False]


@pytest.mark.usefixtures("injected")
def test_the_list_runs_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert status(monkeypatch, "--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["good", "wrong"]


def test_an_unknown_name_is_exit_code_2_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, "tiresias") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: there is no check 'tiresias'")
    assert "did you mean tiresias-l" in err


def test_real_checks_say_what_why_and_what_was_seen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status(monkeypatch, "drf") == 0
    out = capsys.readouterr().out
    assert "Ghodsi et al., NSDI 2011" in out
    assert "tasks of A and of B  expected 3 2     seen 3 2" in out


def test_answers_that_are_too_wide_go_below_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    long = "a@0 b@50 a@100 b@200 a@300"
    lines = finding_lines([Finding("turns", long, long, True), Finding("ends", "1", "1", True)])
    assert lines == ["turns", f"  expected {long}", f"  seen     {long}", "ends   expected 1  seen 1"]
