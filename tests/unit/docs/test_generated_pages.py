"""Pages that follow from the code, and the Grafana dashboard, are those of this code."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
SUFFIXES = ("_bucket", "_sum", "_count", "_total")


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    import generate

    try:
        for name, page in (("api", generate.api_page()), ("jobs", generate.jobs_page())):
            assert (DOCS / "reference" / f"{name}.md").read_text("utf-8") == page, "python docs/generate.py"
    finally:
        sys.modules.pop("generate", None)


def test_every_metric_of_the_grafana_dashboard_exists(tmp_path: Path) -> None:
    from tests.support.engines import NoEngine

    from skep.server.metrics import ServerMetrics
    from skep.service.live import Live
    from skep.service.store import Store

    live = Live(Store(tmp_path / "skep.db"), lambda live: NoEngine(), lambda: 0.0, cluster=("1x8", "1x8"))
    try:
        text = ServerMetrics(live).text().decode()
    finally:
        live.close()
    known = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    known |= {f"{name}{suffix}" for name in known for suffix in SUFFIXES}
    dashboard = json.loads((DOCS / "grafana.json").read_text("utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for expression in asked for name in re.findall(r"\bskep_\w+", expression)}
    assert named - known == set()
    assert len(named) >= 15
    places = [tuple(panel["gridPos"].values()) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
