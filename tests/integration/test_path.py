"""How many files a job crosses between its POST and its process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench import path


@pytest.mark.slow
def test_a_job_crosses_few_files() -> None:
    ran = subprocess.run([sys.executable, "-m", "bench.path"], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    crossed = [line.split()[0] for line in ran.stdout.splitlines()[:-1]]
    assert {"server/routes/submit.py", "service/writer.py", "core/plan.py", "engines/local/begin.py"} <= set(crossed)


def test_too_many_files_fail(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    many = {f"{path.SOURCE}{number}.py": {"writer"} for number in range(path.FILES_MAX + 1)}
    monkeypatch.setattr(path, "cross", lambda: many)
    with pytest.raises(SystemExit) as ended:
        path.main()
    assert ended.value.code == 1
    assert capsys.readouterr().out.endswith(f"{len(many)} files (at most {path.FILES_MAX}), 1 threads\n")
