"""`skep trace` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from skep.cli.trace import trace
from skep.core.errors import InputError

BLOX = "job_id,num_gpu,arrival_s,duration_s\n1,2,0,3600\n2,1,3600,60\n3,1,bad,60\n"
GAVEL = "LM\tpython main.py\tcwd\t--steps\t0\t100\t1\t1\t-1\t0\n"


@pytest.fixture
def blox(tmp_path: Path) -> Path:
    path = tmp_path / "blox.csv"
    path.write_text(BLOX)
    return path


def run(*args: object) -> Result:
    found = CliRunner().invoke(trace, [str(arg) for arg in args])
    if isinstance(found.exception, InputError):
        raise found.exception
    return found


@pytest.mark.parametrize("command", [[], ["info"], ["convert"], ["sample"], ["synth"]])
def test_help_has_examples(command: list[str]) -> None:
    found = run(*command, "--help")
    assert found.exit_code == 0
    assert "skep trace" in found.stdout.split("Examples:")[1]


def test_info_shows_the_trace_and_warns_beside_it(blox: Path) -> None:
    found = run("info", blox, "--gpus", 4)
    assert "blox.csv (blox)" in found.stdout
    assert "0.504" in found.stdout
    assert found.stderr == "warning: blox.csv: 1 of 3 rows dropped: arrival_s is not a number of seconds >= 0 (1)\n"


def test_info_as_json_prints_nothing_else(blox: Path) -> None:
    found = json.loads(run("info", blox, "--json").stdout)
    assert (found["jobs"], found["span_s"], found["load"]) == (2, 3600, None)


def test_convert_writes_native(blox: Path, tmp_path: Path) -> None:
    found = run("convert", blox, "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "job_id,submit_s,duration_s,gpus\n1,0,3600,2\n2,3600,60,1\n"
    assert "wrote" in found.stderr
    assert found.stdout == ""


def test_convert_times_a_gavel_trace_by_its_profile(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_text(GAVEL)
    (tmp_path / "t.json").write_text("""{"v100": {"('LM', 1)": {"null": 4.0}}}""")
    run("convert", tmp_path / "a.trace", "--profile", tmp_path / "t.json", "--out", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == "0,0,25,1,LM,100"


def test_a_profile_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.trace").write_text(GAVEL)
    (tmp_path / "t.json").write_text("[]")
    with pytest.raises(InputError, match=r"t\.json:1: the file is an empty list, expected a mapping"):
        run("info", tmp_path / "a.trace", "--profile", tmp_path / "t.json")


def test_sample_takes_jobs_and_days(blox: Path, tmp_path: Path) -> None:
    run("sample", blox, "--jobs", 1, "--seed", 3, "--out", tmp_path / "one.csv")
    assert len((tmp_path / "one.csv").read_text().splitlines()) == 2
    run("sample", blox, "--from-day", 0.02, "--out", tmp_path / "late.csv")
    assert (tmp_path / "late.csv").read_text().splitlines()[1] == "2,1872,60,1"


def test_sample_wants_to_know_what_to_leave_out(blox: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing to do"):
        run("sample", blox, "--out", tmp_path / "out.csv")


def test_synth_writes_the_same_file_for_the_same_options(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        run("synth", "--jobs", 50, "--load", 0.7, "--seed", 4, "--out", tmp_path / name)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


@pytest.mark.parametrize("command", ["convert", "sample", "synth"])
def test_an_existing_file_is_replaced_only_by_force(blox: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "out.csv"
    out.write_text("mine")
    args = [command] if command == "synth" else [command, blox]
    args += [] if command == "convert" else ["--jobs", 1]
    with pytest.raises(InputError, match="already exists"):
        run(*args, "--out", out)
    assert out.read_text() == "mine"
    assert run(*args, "--out", out, "--force").exit_code == 0
    assert out.read_text().startswith("job_id,")


def test_a_place_where_nothing_can_be_written_is_refused_at_once(blox: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        run("convert", blox, "--out", tmp_path)
    with pytest.raises(InputError, match="no such folder"):
        run("convert", blox, "--out", tmp_path / "absent" / "out.csv")
