"""Reports of pods: only with the token of a launch that runs, and whatever they contain."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.kube_plane import free_port

from skep.core.actions import Checkpoint
from skep.engines.kube.reports import BODY_MAX, ReportListener, ReportTokens, keep_metrics, report_path
from skep.engines.local.ask import ask
from skep.train.link import Link


class Stage:
    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.told: list[tuple] = []
        self.tokens = ReportTokens(folder)
        (folder / "task").mkdir()
        self.listener = ReportListener(
            f"http://127.0.0.1:{self.port}", self.tokens, self.folder_of, lambda *words: self.told.append(words)
        )

    def folder_of(self, job_id: str, launch: int, task: str) -> Path | None:
        return self.folder / "task" if (job_id, launch, task) == ("1/w-0", 2, "w-0") else None

    def post(self, path: str, body: bytes, token: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", path, body, {"Authorization": f"Bearer {token}"})
        return connection.getresponse().status


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.listener.close()


def test_a_report_needs_the_token_of_its_launch(stage: Stage) -> None:
    path, good = report_path("1/w-0", 2, "w-0"), stage.tokens.of("1/w-0", 2)
    body = b'{"progress": {"step": 3}}'
    assert stage.post(path, body, good) == 200
    assert stage.told == [("1/w-0", 2, {"step": 3})]
    for wrong in ("", "x", "\xff", stage.tokens.of("1/w-0", 1), stage.tokens.of("1", 2)):
        assert stage.post(path, body, wrong) == 401
    assert stage.post(report_path("1/w-0", 3, "w-0"), body, stage.tokens.of("1/w-0", 3)) == 409
    assert len(stage.told) == 1
    assert ReportTokens(stage.folder).of("1/w-0", 2) == good  # after a restart of the server


@pytest.mark.parametrize("path", ["/", "/reports", "/reports/1/x/t", "/reports/1/2/3/4", "/../../etc/passwd"])
def test_other_paths_are_nothing(stage: Stage, path: str) -> None:
    assert stage.post(path, b"{}", "") == 404


@pytest.mark.parametrize("body", [b"", b"[", b"[]", b'{"progress": 1}', b'{"progress": {"a": []}}', b"\xff"])
def test_a_bad_report_changes_nothing(stage: Stage, body: bytes) -> None:
    assert stage.post(report_path("1/w-0", 2, "w-0"), body, stage.tokens.of("1/w-0", 2)) == 400
    assert stage.told == []


def test_a_large_report_is_not_read(stage: Stage) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", stage.port, timeout=30)
    connection.putrequest("POST", report_path("1/w-0", 2, "w-0"))
    connection.putheader("Content-Length", str(BODY_MAX + 1))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_the_curve_arrives_once_and_requests_come_back(stage: Stage, tmp_path: Path) -> None:
    pod = tmp_path / "pod"
    pod.mkdir()
    url = f"http://127.0.0.1:{stage.port}{report_path('1/w-0', 2, 'w-0')}"
    link = Link(pod, url, stage.tokens.of("1/w-0", 2))
    link._closing.set()  # Only the exchanges of this test.
    (pod / "progress.json").write_text('{"step": 2}')
    (pod / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"st')
    link.exchange()
    (pod / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n')
    ask(stage.folder / "task", Checkpoint("1", 2))
    link.exchange()
    link.exchange()
    assert (stage.folder / "task" / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 2}\n{"step": 3}\n'
    assert json.loads((pod / "asked.json").read_text())["save"] > 0
    keep_metrics(stage.folder / "task" / "metrics.jsonl", 12, b'{"step": 2}\n')  # A report that came twice.
    assert (stage.folder / "task" / "metrics.jsonl").read_text().count("\n") == 3


def test_a_server_that_is_away_costs_nothing(tmp_path: Path) -> None:
    link = Link(tmp_path, f"http://127.0.0.1:{free_port()}/reports/1/1/w-0", "x")
    link.close()
