"""What a job names on this machine is looked for when it is submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.jobs.request import Request, TaskRole
from skep.server.routes.submit import BELIEVED_S, FileChecks, remarks


def request(*argv: str, workdir: str = "", **more: object) -> Request:
    role = TaskRole(argv=argv, env={"PATH": "/bin:/usr/bin"}) if argv else TaskRole(command="true")
    return Request("a", {"main": role}, workdir=workdir, **more)  # type: ignore[arg-type]


def test_a_workdir_that_is_not_there_is_said(tmp_path: Path) -> None:
    FileChecks().check([request(workdir=str(tmp_path))])
    with pytest.raises(InputError, match="workdir /nowhere does not exist"):
        FileChecks().check([request(workdir="/nowhere")])
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="does not exist"):
        FileChecks().check([request(workdir=str(tmp_path / "file"))])


def test_a_command_that_is_not_there_is_said(tmp_path: Path) -> None:
    FileChecks().check([request("sh", workdir=str(tmp_path))])
    with pytest.raises(InputError, match="command nosuchprogram was not found"):
        FileChecks().check([request("nosuchprogram", workdir=str(tmp_path))])
    with pytest.raises(InputError, match=r"command \./run\.sh does not exist"):
        FileChecks().check([request("./run.sh", workdir=str(tmp_path))])
    (tmp_path / "run.sh").write_text("")
    FileChecks().check([request("./run.sh", workdir=str(tmp_path))])


def test_what_needed_jobs_may_make_is_not_asked_for() -> None:
    FileChecks().check([request("nosuchprogram", workdir="/nowhere", needs=("1",))])


def test_what_was_found_is_believed_for_a_while(tmp_path: Path) -> None:
    now = [0.0]
    checks = FileChecks(lambda: now[0])
    asked = [request(workdir=str(tmp_path / "w"))]
    (tmp_path / "w").mkdir()
    assert not checks.are_known(asked)
    checks.check(asked)
    assert checks.are_known(asked)
    (tmp_path / "w").rmdir()
    checks.check(asked)
    now[0] = BELIEVED_S
    with pytest.raises(InputError):
        checks.check(asked)


def test_names_that_several_jobs_have_and_labels_for_vcs_are_remarked() -> None:
    assert remarks([request()], lambda: {"default"}) == []
    assert remarks([request(), request()], lambda: {"default"}) == [
        "several jobs are called a: a name means the latest of them"
    ]
    assert remarks([request(vc="foo")], lambda: {"default"}) == [
        "this cluster has no virtual clusters: vc foo is kept as a label only"
    ]
    assert remarks([request(vc="foo")], lambda: {"foo", "bar"}) == []
