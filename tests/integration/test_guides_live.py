"""The guides run as written, on a real server: a plain one, and one with VCs whose jobs run as other accounts."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from guide import Run, Save, Shell, matches, play, reader_env, steps_of
from local_world import reachable_folder

from skep.engines.local.accounts import missing_rights

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs/guides"
TEAMS = """
nodes: [{count: 2, name: n, gpus: 4, socket: 2}]
vcs: {prod: 1 socket, research: 1 node}
"""
SKEP = """#!/bin/sh
# The reader's `skep`. A server is in the background, on a port of its own, and as this test wants it.
[ "$1" = up ] || exec {python} -m skep.cli.main "$@"
shift
exec {python} -m skep.cli.main up --port {port} {config} "$@" -d
"""
PLAIN, TEAM = "plain", "VCs and separate"


@pytest.fixture(params=[PLAIN, TEAM])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == TEAM and missing_rights():
        pytest.skip("accounts cannot be changed here")
    return str(request.param)


@pytest.fixture
def shell(kind: str) -> Iterator[Shell]:
    with reachable_folder() as folder:
        (folder / "teams.yaml").write_text(TEAMS)
        (folder / "team.yaml").write_text("cluster: teams.yaml\nrun_as: separate\n")
        config = f"--config {folder / 'team.yaml'}" if kind == TEAM else ""
        skep = SKEP.format(python=sys.executable, port=free_port(), config=config)
        env = reader_env(folder, skep)
        work = folder / "work"
        work.mkdir()
        work.chmod(0o777)  # A reader's own folder; jobs of other accounts write there too.
        try:
            yield Shell(work, env)
        finally:
            for file in [*folder.rglob("server.json")]:
                end_server(file.parent, env)


def end_server(data: Path, env: dict[str, str]) -> None:
    """With its jobs, whatever login it requires."""

    def skep(*words: str, **more: str) -> str:
        line = [sys.executable, "-m", "skep.cli.main", *words, "--data", str(data)]
        ran = subprocess.run(line, env={**env, **more}, capture_output=True, text=True, timeout=120, check=True)
        return ran.stdout.strip()

    token = skep("token", "create", "--user", "test", "--role", "admin")
    skep("down", "--stop-jobs", SKEP_TOKEN=token)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


SERVER = ["README", "first-job", "training", "search", "share-a-gpu", "share-a-cluster", "admin"]
"""Guides whose commands use a server; those of the others simulate."""
SIMULATED = ["compare-on-your-own-trace", "failures-and-restarts", "traces", "write-a-policy", "demo", "study"]


@pytest.mark.parametrize("guide", SERVER)
def test_a_guide_runs(guide: str, kind: str, shell: Shell) -> None:
    page = ROOT / "README.md" if guide == "README" else GUIDES / f"{guide}.md"
    play(page, shell, {"skep.yaml": "run_as: separate\n"} if kind == TEAM else {})


@pytest.mark.parametrize("guide", SIMULATED)
def test_a_guide_runs_without_a_server(guide: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, reader_env(tmp_path, SKEP.format(python=sys.executable, port=0, config="")))
    write_published(tmp_path)
    play(GUIDES / f"{guide}.md", shell, {})


def write_published(folder: Path) -> None:
    """Small files in the published formats, under the names that the guide to traces uses, and a `sacct`."""
    attempt = {"start_time": "2017-10-01 00:02:00", "end_time": "2017-10-01 00:03:00"}
    held = {**attempt, "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}
    job = {"status": "Pass", "vc": "a", "jobid": "j1", "user": "u", "submitted_time": "2017-10-01 00:01:00"}
    (folder / "cluster_job_log").write_text(json.dumps([{**job, "attempts": [held]}]))
    columns = "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    times = "2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 00:02:00,60,60"
    (folder / "cluster_log.csv").write_text(f"{columns}\n7,u,vc1,train,2,8,1,COMPLETED,{times}\n")
    (folder / "a.trace").write_text("LM (batch size 5)\tpython main.py\tcwd\t--steps\t0\t800\t1\t1\t-1.000000\t12.5\n")
    (folder / "simulation_throughputs.json").write_text('{"v100": {"(\'LM (batch size 5)\', 1)": {"null": 2.0}}}')
    history = "JobID|Submit|Start|End|AllocTRES|User|Account|Partition\n"
    history += "7|2026-01-05T08:00:00|2026-01-05T08:00:10|2026-01-05T09:00:10|cpu=1,gres/gpu=2|ann|vision|long\n"
    (folder / "bin" / "sacct").write_text(f"#!/bin/sh\ncat <<'END'\n{history}END\n")
    (folder / "bin" / "sacct").chmod(0o755)


@pytest.mark.parametrize(("auth", "mode"), [("none", 0o755), ("token", 0o755), ("token", 0o700)])
def test_the_lines_that_skep_up_prints_next_work(kind: str, auth: str, mode: int, shell: Shell) -> None:
    """Also in a folder that is closed to the accounts of jobs."""
    shell.folder.chmod(mode)
    code, said = shell.run(f"skep up --auth {auth} --data data")
    assert code == 0, said
    lines = [line.strip() for line in said.partition("next:\n")[2].splitlines()]
    assert any(line.startswith("skep run ") for line in lines)
    for line in lines:
        code, output = shell.run(line)
        assert code == 0, f"{line}\n{output}"
        if line.startswith("skep run "):
            assert output.splitlines()[-1] == "hello"
            assert ("VC research was chosen" in output) == (kind == TEAM)
    assert "skep is down" in output


def test_every_guide_is_run() -> None:
    """Those without commands are only read."""
    pages = {page.stem: [*steps_of(page.read_text("utf-8"))] for page in GUIDES.glob("*.md")}
    with_commands = {name for name, steps in pages.items() if any(isinstance(step, Run) for step in steps)}
    assert with_commands == {*SERVER, *SIMULATED} - {"README"}


PAGE = """
# A page

<!-- file: a.txt -->
```text
hello
```

<!-- run: echo unseen -->

```console
$ cat a.txt \\
  a.txt
hello
…
$ false
error: it says …
```

<!-- not run: it would take a day -->
```
sleep 86400
```

  ```sh
  echo indented
  ```
"""


def test_what_a_page_does() -> None:
    assert [*steps_of(PAGE)] == [
        Save("a.txt", "hello\n"),
        Run(9, "echo unseen"),
        Run(12, "cat a.txt  a.txt", ["hello", "…"]),
        Run(16, "false", ["error: it says …"]),
        Run(26, "echo indented"),
    ]


@pytest.mark.parametrize(
    ("shown", "output", "is_same"),
    [
        (["a", "…", "d"], "a\nb\nc\nd\n", True),
        (["a", "…", "d"], "a\nd\n", True),
        (["a", "d"], "a\nb\nd\n", False),
        (["a"], "a\nb\n", False),
        (["at 10:00:00, job 7"], "at 23:59:01, job 7\n", True),
        (["at 10:00:00, job 7"], "at 23:59:01, job 8\n", False),
        (["ID   NAME"], "ID  NAME  \n", True),
        (["token … for ann"], "token 0af34d01 for ann\n", True),
        (["up at http://127.0.0.1:7437 now"], "up at http://127.0.0.1:5050 now\n", True),
    ],
)
def test_what_counts_as_the_output_that_is_shown(shown: list[str], output: str, is_same: bool) -> None:
    assert matches(shown, output) == is_same
