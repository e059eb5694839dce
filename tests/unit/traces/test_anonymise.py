"""A trace without names is still the same workload."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from skep.cli.trace import trace as trace_command
from skep.traces.anonymise import anonymised
from skep.traces.read import read_trace

TEXT = """job_id,submit_s,duration_s,gpus,vc,user,model,group,needs,share,gpu_milli,affinity
secret-a,100,60,1,vision,ann,bert,sweep-x,,token,300,warm
secret-b,110,70,2,vision,bob,bert,sweep-x,,,,
secret-c,120,80,4,speech,ann,gpt,,secret-a,,,
secret-d,130,90,8,default,,,,,,,
"""
NAMES = ("secret", "vision", "speech", "ann", "bob", "bert", "gpt", "sweep", "warm")


def test_no_name_is_left_and_the_workload_is_the_same(tmp_path: Path) -> None:
    file, out = tmp_path / "jobs.csv", tmp_path / "shared.csv"
    file.write_text(TEXT)
    ran = CliRunner().invoke(trace_command, ["anonymise", str(file), "--out", str(out)], catch_exceptions=False)
    assert ran.exit_code == 0
    assert not [name for name in NAMES if name in out.read_text()]
    before, after = read_trace(file).jobs, read_trace(out).jobs
    assert [job.submit_s for job in after] == [0, 10, 20, 30]
    assert [(job.work_s, job.spec.shapes) for job in after] == [(job.work_s, job.spec.shapes) for job in before]
    a, b, c, d = (job.spec for job in after)
    assert a.vc == b.vc != c.vc
    assert d.vc == "default"
    assert a.user == c.user != b.user
    assert d.user == d.model == ""
    assert a.model == b.model != c.model
    assert a.group is not None
    assert b.group is not None
    assert a.group.id == b.group.id
    assert c.needs == (a.id,)
    assert a.share is not None
    assert a.share.affinity == "label-1"


def test_the_order_of_names_depends_on_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text("job_id,submit_s,duration_s,gpus\n" + "".join(f"j{n},{n},10,1\n" for n in range(50)))
    found = read_trace(file)
    first, same, other = (
        [job.spec.id for job in anonymised(found, secret).jobs] for secret in (b"one", b"one", b"two")
    )
    assert first == same != other
    assert sorted(first) == sorted(other) != first
