"""The pages say what is true: links lead somewhere, generated pages are up to date."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```\s*$", re.MULTILINE | re.DOTALL)


def skep(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "skep.cli.main", *shlex.split(command)]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False)


def blocks(page: str, language: str) -> list[str]:
    """What stands between fences of this language (none: without one)."""
    found: list[str] = []
    fence: str | None = None
    for line in (ROOT / page).read_text("utf-8").splitlines(keepends=True):
        if line.startswith("```"):
            fence = line[3:].strip() if fence is None else None
            if fence == language:
                found.append("")
        elif fence == language:
            found[-1] += line
    return found


def test_the_session_of_the_readme_runs_and_prints_what_the_page_shows() -> None:
    assert len(re.findall(r"^\$ skep ", "".join(blocks("README.md", "console")), re.MULTILINE)) == 4
    assert generate().readme_page() == (ROOT / "README.md").read_text("utf-8"), "run python docs/generate.py"


def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_policies(folder: Path) -> None:
    """Those of the guide, as it names their files."""
    for name, code in zip(("mine.py", "pack.py"), blocks("docs/guides/write-a-policy.md", "python"), strict=True):
        (folder / name).write_text(code, "utf-8")


def test_the_policy_of_the_guide_lets_nobody_wait_beyond_its_limit_behind_smaller_jobs(tmp_path: Path) -> None:
    write_policies(tmp_path)
    rows = ["job_id,submit_s,duration_s,gpus", "first,0,10,4", "big,1,10,4"]
    rows += [f"small-{number},{2 + number},10,1" for number in range(100)]
    (tmp_path / "jobs.csv").write_text("\n".join(rows) + "\n", "utf-8")
    started = {}
    for limit_s in (20, 10_000):
        policy = f"./mine.py:Patient:limit_s={limit_s},walk=strict"
        done = skep(f"simulate jobs.csv --cluster 1x4 --policy {policy} --out out-{limit_s}", tmp_path)
        assert done.returncode == 0, done.stderr
        started[limit_s] = {name: float(row["start_s"]) for name, row in rows_of(tmp_path / f"out-{limit_s}").items()}
    assert started[20]["big"] < 40
    assert started[10_000]["big"] > 100


def rows_of(out: Path) -> dict[str, dict[str, str]]:
    """What became of each job, of a run with one policy."""
    (table,) = out.glob("*/jobs.csv")
    return {row["job_id"]: row for row in csv.DictReader(table.read_text().splitlines())}


PAIRS = """
models:
  resnet50: {sharing: {bert: 0.75, gnn: 0.6, resnet50: 0.5}}
  bert: {sharing: {resnet50: 0.5, default: 0.4}}
  gnn: {sharing: {resnet50: 0.6}}
"""


@pytest.mark.parametrize(
    ("models", "profile", "knobs", "finish_s"),
    [
        (("resnet50", "bert"), PAIRS, "", (133.3, 166.7)),  # 1.25: they share; bert is alone for the last 33 s
        (("bert", "resnet50"), PAIRS, "", (166.7, 133.3)),
        (("resnet50", "gnn"), PAIRS, "", (100, 200)),  # 1.2 is not more than 1.2
        (("resnet50", "gnn"), PAIRS, ":least=1.1", (166.7, 166.7)),
        (("resnet50", "resnet50"), PAIRS, "", (100, 200)),
        (("resnet50", "bert"), "default: {scaling: {2: 0.9}}", "", (100, 200)),  # nothing is known of neighbours
        (("resnet50", "bert"), "", "", (100, 200)),
    ],
)
def test_the_packing_policy_of_the_guide_packs_those_who_get_more_done_together(
    models: tuple[str, str], profile: str, knobs: str, finish_s: tuple[float, float], tmp_path: Path
) -> None:
    write_policies(tmp_path)
    (tmp_path / "pairs.yaml").write_text(profile, "utf-8")
    rows = [f"{number},0,100,1,{model}" for number, model in enumerate(models)]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,submit_s,duration_s,gpus,model", *rows]), "utf-8")
    options = "--profile pairs.yaml" if profile else ""
    done = skep(f"simulate jobs.csv --cluster 1x1 {options} --policy ./pack.py:Pack{knobs} --out out", tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows_of(tmp_path / "out")
    assert [float(found[name]["finish_s"]) for name in ("0", "1")] == pytest.approx(list(finish_s), abs=0.1)
    assert (found["1"]["start_s"] == "0") == (finish_s != (100, 200))


def test_the_packing_policy_of_the_guide_packs_nobody_beside_a_job_that_has_its_own_part_of_a_gpu(
    tmp_path: Path,
) -> None:
    write_policies(tmp_path)
    (tmp_path / "pairs.yaml").write_text(PAIRS, "utf-8")
    rows = ["job_id,submit_s,duration_s,gpus,gpu_milli,model", "part,0,100,1,500,resnet50", "whole,0,100,1,1000,bert"]
    (tmp_path / "jobs.csv").write_text("\n".join(rows), "utf-8")
    done = skep("simulate jobs.csv --cluster 1x1 --profile pairs.yaml --policy ./pack.py:Pack --out out", tmp_path)
    assert done.returncode == 0, done.stderr
    found = rows_of(tmp_path / "out")
    assert found["whole"]["start_s"] == found["part"]["finish_s"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in LINK.findall(text):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_policies_is_what_the_registry_says() -> None:
    module = generate()
    assert module.PAGE.read_text("utf-8") == module.policies_page(), "run python docs/generate.py"


def test_the_reference_of_the_command_line_names_every_command_option_and_column() -> None:
    from skep.cli.main import COMMANDS
    from skep.cli.simulate import simulate
    from skep.metrics.run import JobRow, Summary

    page = (ROOT / "docs/reference/cli.md").read_text("utf-8")
    names = [f"skep {name}" for name in COMMANDS]
    names += [parameter.opts[0] for parameter in simulate.params if parameter.opts[0].startswith("--")]
    names += [f"`{field}`" for kind in (JobRow, Summary) for field in kind.__struct_fields__]
    missing = [name for name in names if name not in page]
    assert not missing
