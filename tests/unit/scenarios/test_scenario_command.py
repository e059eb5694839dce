"""`skep scenario` as typed: what it prints and writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scenario_files import CLUSTER, ROOT, ask, skep_scenario, write_json

Patch = pytest.MonkeyPatch
Screen = pytest.CaptureFixture[str]

GOOD = [
    ask("first", expect={"result": "bind"}),
    ask(
        "second", priority=5, expect={"result": "preempt", "victims": ["first"], "groups": {"test/first": "Allocated"}}
    ),
    {"op": "delete", "pod": "first", "expect": {"groups": {}}},
    ask("second", priority=5, expect={"result": "bind", "affinity": "NODE", "leafCells": [3, 2, 1, 0]}),
    ask("third", expect={"result": "wait", "waitClass": "insufficient-capacity-vc"}),
    ask("other", vc="nobody", expect={"result": "error", "error": {"class": "user_error"}}),
]


def test_one_file_shows_every_step(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    file = write_json(tmp_path / "good.json", GOOD, description="A small one.")
    assert skep_scenario(monkeypatch, file) == 0
    assert capsys.readouterr().out == (
        "A small one.\n"
        "\n"
        "  1  first asks for a, priority 0       bind     n0, GPU 0 1 2 3\n"
        "  2  second asks for a, priority 5      preempt  first must leave first\n"
        "  3  first ends\n"
        "  4  second asks for a, priority 5      bind     n0, GPU 0 1 2 3\n"
        "  5  third asks for a, priority 0       wait     its VC has too few free GPUs\n"
        "  6  other asks for nobody, priority 0  error    there is no virtual cluster 'nobody'\n"
        "\n"
        "ok       good  6 steps\n"
        "\n"
        "1 scenario: 1 as expected.\n"
    )


def test_yaml_names_its_cluster_beside_it(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "two.yaml").write_text(CLUSTER, "utf-8")
    (tmp_path / "s.yml").write_text(
        "cluster: layouts/two.yaml\n"
        "steps:\n"
        "- op: schedule\n"
        "  pod: p\n"
        "  spec: {virtualCluster: a, leafCellNumber: 4}\n"
        "  expect: {result: bind}\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path.parent)
    assert skep_scenario(monkeypatch, tmp_path) == 0
    assert "1 scenario: 1 as expected.\n1 file of other kinds passed over.\n" in capsys.readouterr().out


def test_a_difference_is_exit_code_1_and_is_named(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    write_json(tmp_path / "good.json", GOOD)
    write_json(
        tmp_path / "wrong.json",
        [ask("p", expect={"result": "bind"}), ask("q", expect={"result": "preempt", "victims": ["p"]})],
    )
    assert skep_scenario(monkeypatch, tmp_path) == 1
    out = capsys.readouterr().out
    assert "differs  wrong  step 2 (q): result expected preempt, seen wait\n" in out
    assert "ok       good   6 steps\n" in out
    assert out.endswith("2 scenarios: 1 as expected, 1 different.\n")


@pytest.mark.parametrize(
    ("expect", "shown"),
    [
        ({"node": "n1"}, "node expected n1, seen n0"),
        ({"leafCells": [0]}, "leafCells expected 0, seen 0 1 2 3"),
        ({"groups": {}}, "groups expected none, seen test/p=Allocated"),
        ({"result": "wait"}, "result expected wait, seen bind"),
        ({"waitClass": "bad-node"}, "waitClass expected bad-node, seen nothing"),
        ({"victims": ["x"]}, "victims expected x, seen nothing"),
        ({"error": {"class": "user_error"}}, "error expected user_error, seen nothing"),
        ({"cellChain": "OTHER"}, "cellChain expected OTHER, seen POOL"),
        ({"groupAffinity": "POOL"}, "groupAffinity expected POOL, seen NODE"),
    ],
)
def test_whatever_is_expected_is_compared(
    expect: dict[str, object], shown: str, tmp_path: Path, monkeypatch: Patch, capsys: Screen
) -> None:
    file = write_json(tmp_path / "s.json", [ask("p", expect=expect)])
    assert skep_scenario(monkeypatch, file) == 1
    assert shown in capsys.readouterr().out


def test_nothing_expected_is_said(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    file = write_json(tmp_path / "s.json", [ask("p")])
    assert skep_scenario(monkeypatch, file) == 0
    assert "-        s  1 step, nothing is expected of them" in capsys.readouterr().out


def test_answers_go_to_a_file_or_to_stdout(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    file = write_json(tmp_path / "s.json", [ask("p"), {"op": "node_bad", "node": "n1"}], id="mine")
    out = tmp_path / "answers.jsonl"
    out.write_text("old", "utf-8")
    assert skep_scenario(monkeypatch, file, "--out", out) == 0
    capsys.readouterr()
    (answer,) = map(json.loads, out.read_text("utf-8").splitlines())
    assert answer["id"] == "mine"
    assert answer["steps"][0]["result"] == "bind"
    assert answer["steps"][1] == {"groups": {"test/p": "Allocated"}}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.jsonl", "s.json"]
    assert skep_scenario(monkeypatch, file, "--out", "-") == 0
    assert json.loads(capsys.readouterr().out) == answer


@pytest.mark.parametrize("out", ["", "missing/answers.jsonl"])
def test_an_out_that_cannot_be_written_is_refused_before_the_work(
    out: str, tmp_path: Path, monkeypatch: Patch, capsys: Screen
) -> None:
    file = write_json(tmp_path / "s.json", [ask("p")])
    assert skep_scenario(monkeypatch, file, "--out", tmp_path / out) == 2
    captured = capsys.readouterr()
    assert "folder" in captured.err
    assert not captured.out


def test_a_faulty_file_does_not_keep_the_others_from_being_played(
    tmp_path: Path, monkeypatch: Patch, capsys: Screen
) -> None:
    write_json(tmp_path / "a.json", [{"op": "shedule"}])
    write_json(tmp_path / "b.json", GOOD)
    assert skep_scenario(monkeypatch, tmp_path, "--out", tmp_path / "out.jsonl") == 2
    captured = capsys.readouterr()
    assert "a.json: step 1: unknown op 'shedule', did you mean schedule?" in captured.err
    assert "1 scenario: 1 as expected, 1 not usable." in captured.out
    assert len((tmp_path / "out.jsonl").read_text("utf-8").splitlines()) == 1


def test_files_of_other_kinds_are_passed_over_and_counted(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    write_json(tmp_path / "s.json", GOOD)
    write_json(tmp_path / "ext.json", [{"op": "addNode"}], kind="extender")
    (tmp_path / "index.json").write_text("[]", "utf-8")
    (tmp_path / "README.md").write_text("# about", "utf-8")
    (tmp_path / ".hidden.json").write_text("{", "utf-8")
    assert skep_scenario(monkeypatch, tmp_path, tmp_path / "s.json") == 0
    assert "3 files of other kinds passed over." in capsys.readouterr().out


def test_nothing_to_play_is_an_error(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    (tmp_path / "index.json").write_text("[]", "utf-8")
    assert skep_scenario(monkeypatch, tmp_path) == 2
    assert "no scenario in" in capsys.readouterr().err


def test_configurations_are_answered_too(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    wrong = {"kind": "config-error", "config": {"physicalCluster": {}}, "expectConfigError": {"reasonClass": "x"}}
    (tmp_path / "wrong.json").write_text(json.dumps(wrong), "utf-8")
    write_json(tmp_path / "fine.json", [], kind="config-parse")
    assert skep_scenario(monkeypatch, tmp_path, "--out", tmp_path / "o.jsonl") == 0
    answers = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text("utf-8").splitlines()]
    assert answers == [{"id": "fine", "configError": False}, {"id": "wrong", "configError": True}]
    assert "configuration, refused: config: physicalCluster.cellTypes is missing" in capsys.readouterr().out
    (tmp_path / "wrong.json").write_text(json.dumps({**wrong, "kind": "config-parse"}), "utf-8")
    assert skep_scenario(monkeypatch, tmp_path) == 1


def test_names_that_cannot_be_printed_do_not_stop_the_table(tmp_path: Path, monkeypatch: Patch, capsys: Screen) -> None:
    steps = [ask(name) for name in ("\ud800", "[bold]x[/]", "名前", "a\nb", "x" * 300)]
    assert skep_scenario(monkeypatch, write_json(tmp_path / "s.json", steps, id="\ud800")) == 0
    out = capsys.readouterr().out
    assert "[bold]x[/] asks" in out
    assert "名前 asks" in out
    assert max(map(len, out.splitlines())) < 200


def test_the_experiments_of_the_lab_come_as_expected(monkeypatch: Patch, capsys: Screen) -> None:
    assert skep_scenario(monkeypatch, ROOT / "examples" / "lab6") == 0
    assert "5 scenarios: 5 as expected." in capsys.readouterr().out


def test_every_step_of_the_lab_that_asks_says_what_it_expects() -> None:
    from skep.scenarios.read import read_scenario

    files = sorted((ROOT / "examples" / "lab6").glob("[1-5]-*.yaml"))
    assert len(files) == 5
    for file in files:
        found = read_scenario(file)
        assert found is not None
        asked = [step for step in found.steps if step.op == "schedule"]
        assert asked, file
        assert all(step.expect for step in asked), file
