"""Studies: real processes beside the server, on small traces."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from board import API, Board

from skep.clusters import spec as spec_module
from skep.policies.registry import ROUND, policies
from skep.server import security
from skep.server.datadir import DataDir
from skep.server.shapes import StudySchema, TraceSchema
from skep.server.studies import studies as module
from skep.server.studies import traces
from skep.server.studies.caps import Cap
from skep.server.studies.studies import UPLOADS_MAX
from skep.server.studies.traces import TraceCheck

OVER = ("done", "failed", "cancelled", "interrupted")
TRACE = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at * 10},{60 + at % 7},{1 + at % 4}\n" for at in range(40)
)
ENDLESS = "job_id,submit_s,duration_s,gpus\n" + "".join(
    f"j{at},{at},{50 + at % 9},{1 + at % 3}\n" for at in range(60_000)
)
CSV = {"Content-Type": "text/csv"}


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    with Board(tmp_path_factory.mktemp("studies"), "2x4") as made:
        yield made


def upload(board: Board, text: str, name: str = "small.csv", **headers: str) -> httpx.Response:
    return board.client.post(f"{API}/traces?name={name}", content=text, headers={**CSV, **headers})


def start(board: Board, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return board.client.post(f"{API}/studies", json={"policies": ["fifo"], **fields}, headers=headers)


def wait_for(board: Board, study_id: str, *states: str) -> dict[str, Any]:
    by_s = time.monotonic() + 120
    while (found := board.get(f"/studies/{study_id}", StudySchema))["state"] not in states:
        assert time.monotonic() < by_s, found
        time.sleep(0.02)
    return dict(found)


@pytest.mark.slow
def test_an_uploaded_trace_is_studied_and_the_report_stays(board: Board) -> None:
    made = upload(board, TRACE)
    assert made.status_code == 201, made.text
    trace = made.json()
    assert (trace["format"], trace["jobs"], trace["name"]) == ("native", 40, "small.csv")
    assert trace in board.get("/traces", list[TraceSchema])
    asked = start(board, trace=trace["id"], policies=["fifo", "srtf", "fifo"], name="two policies")
    assert asked.status_code == 201, asked.text
    found = wait_for(board, asked.json()["id"], *OVER)
    assert (found["state"], found["error"], found["progress"]) == ("done", "", 1.0)
    assert [part["policy"] for part in found["parts"]] == ["fifo", "srtf"]
    assert all(part["summary"]["finished"] == 40 and part["done"] == 40 for part in found["parts"])
    assert found["parts"][1]["summary"]["jct_avg_s"] <= found["parts"][0]["summary"]["jct_avg_s"]
    report = board.client.get(f"{API}/studies/{found['id']}/report")
    assert report.status_code == 200
    assert "two policies" in report.text
    assert "sandbox allow-scripts" in report.headers["content-security-policy"]
    assert report.headers["x-frame-options"] == "SAMEORIGIN"
    assert board.client.delete(f"{API}/traces/{trace['id']}").json() == {"removed": trace["id"]}
    assert board.client.get(f"{API}/studies/{found['id']}/report").status_code == 200
    assert board.client.delete(f"{API}/studies/{found['id']}").status_code == 200
    assert board.client.get(f"{API}/studies/{found['id']}").status_code == 404


@pytest.mark.slow
def test_the_history_of_this_cluster_is_studied(board: Board) -> None:
    for number in range(3):
        board.end(board.run(name=f"past{number}", gpus=1 + number))
    board.run(name="still-running", gpus=1)
    found = wait_for(board, start(board, trace="history", cluster="1x4").json()["id"], *OVER)
    assert (found["state"], found["error"]) == ("done", "")
    assert found["parts"][0]["jobs"] == 3
    assert start(board, trace="history", since_s=1, until_s=2).status_code == 400


@pytest.mark.slow
def test_a_study_is_cancelled_and_others_wait_their_turn(board: Board) -> None:
    trace = upload(board, ENDLESS, "endless.csv").json()["id"]
    first, second = (start(board, trace=trace, policies=["srtf"]).json()["id"] for _ in range(2))
    running = wait_for(board, first, "running")
    assert running["start_s"] is not None
    assert board.get(f"/studies/{second}", StudySchema)["state"] == "queued"
    assert board.client.get(f"{API}/studies/{first}/report").status_code == 409
    for study in (second, first):
        assert board.client.post(f"{API}/studies/{study}/cancel").json()["state"] == "cancelled"
    assert board.client.post(f"{API}/studies/{first}/cancel").status_code == 409
    small = upload(board, TRACE).json()["id"]
    assert wait_for(board, start(board, trace=small).json()["id"], *OVER)["state"] == "done"
    assert wait_for(board, first, *OVER)["state"] == "cancelled"


@pytest.mark.slow
def test_a_restart_marks_what_it_interrupted(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4") as board:
        trace = upload(board, ENDLESS).json()["id"]
        running, queued = (start(board, trace=trace, policies=["srtf"]).json()["id"] for _ in range(2))
        wait_for(board, running, "running")
    with Board(tmp_path, "2x4") as board:
        for study in (running, queued):
            found = board.get(f"/studies/{study}", StudySchema)
            assert (found["state"], found["error"]) == ("interrupted", "the server was stopped meanwhile")


@pytest.mark.slow
@pytest.mark.parametrize("text", ["what is this", "job_id,submit_s,duration_s,gpus\na,1,x,1\n", "", "\0\1\2"])
def test_what_is_no_trace_is_refused_in_one_line(board: Board, text: str) -> None:
    answer = upload(board, text, "odd.csv")
    assert answer.status_code == 400, answer.text
    said = answer.json()["error"]
    assert "\n" not in said
    assert "Traceback" not in said
    assert str(board.config.data) not in said
    assert all(trace["name"] != "odd.csv" for trace in board.get("/traces", list[TraceSchema]))


@pytest.mark.parametrize(
    "fields",
    [
        {"trace": "history", "policies": ["nosuch"]},
        {"trace": "history", "policies": ["./mine.py:Mine"]},
        {"trace": "history", "policies": ["yarn-cs:quotas=/etc/passwd"]},
        {"trace": "history", "policies": []},
        {"trace": "history", "cluster": "/etc/passwd"},
        {"trace": "history", "cluster": "0x0"},
        {"trace": "../../x"},
    ],
)
def test_a_study_that_cannot_be_is_refused(board: Board, fields: dict[str, Any]) -> None:
    assert start(board, **fields).status_code == 400


def test_unknown_ones_are_not_found(board: Board) -> None:
    assert start(board, trace="00000000").status_code == 404
    for path in ("studies/00000000", "studies/00000000/report"):
        assert board.client.get(f"{API}/{path}").status_code == 404
    for path in ("studies/00000000", "traces/00000000"):
        assert board.client.delete(f"{API}/{path}").status_code == 404


def test_a_trace_has_a_limit_of_its_own(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    assert board.client.post(f"{API}/traces", content="x", headers={"Content-Type": "text/plain"}).status_code == 415
    assert board.client.post(f"{API}/jobs", content="x", headers=CSV).status_code == 415
    monkeypatch.setattr(security, "TRACE_MAX", 100)
    assert upload(board, TRACE).status_code == 413
    pieces = iter([TRACE.encode()[:90], TRACE.encode()[90:]])
    assert board.client.post(f"{API}/traces", content=pieces, headers=CSV).status_code == 413
    assert not list((board.config.data / "traces").glob("*.part"))


def test_caps_are_shared_by_users(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    ann, bob, cid = ({"X-Skep-User": name} for name in ("ann", "bob", "cid"))
    monkeypatch.setattr(board.context.studies, "_run_one", lambda study_id: None)
    before = len(board.get("/traces", list[TraceSchema]))
    monkeypatch.setattr(traces, "TRACES", Cap(2, before + 3))
    mine = [upload(board, TRACE, **ann) for _ in range(3)]
    assert [each.status_code for each in mine] == [201, 201, 409]
    assert mine[2].json()["error"] == "ann may have 2 traces"
    assert upload(board, TRACE, **bob).status_code == 201
    refused = upload(board, TRACE, **cid)
    assert (refused.status_code, refused.json()["error"]) == (409, f"all users together may have {before + 3} traces")
    monkeypatch.setattr(traces, "TRACES", Cap(100, 100))
    monkeypatch.setattr(traces, "TRACE_MIB", Cap(0, 1000))
    assert upload(board, TRACE + "#" * (1 << 20), **bob).status_code in (400, 409)
    trace = mine[0].json()["id"]
    waiting = sum(study["state"] in ("queued", "running") for study in board.get("/studies", list[StudySchema]))
    monkeypatch.setattr(module, "WAITING", Cap(2, waiting + 3))
    asked = [start(board, ann, trace=trace) for _ in range(3)]
    assert [each.status_code for each in asked] == [201, 201, 429]
    assert asked[2].headers["retry-after"] == "60"
    assert asked[2].json()["error"] == "ann may have 2 studies that have not ended"
    assert [start(board, who, trace=trace).status_code for who in (bob, cid)] == [201, 429]
    monkeypatch.setattr(module, "WAITING", Cap(1000, 1000))
    monkeypatch.setattr(module, "STUDIES", Cap(2, 1000))
    assert start(board, ann, trace=trace).status_code == 409
    for study in board.get("/studies", list[StudySchema]):
        if study["state"] == "queued":
            board.client.post(f"{API}/studies/{study['id']}/cancel")


@pytest.mark.parametrize("name", ["trace.json", "study.json", "errors.txt", "studies.db", "report.html", "0"])
def test_a_name_is_only_shown_and_a_content_is_no_record(board: Board, name: str) -> None:
    kept = upload(board, TRACE).json()
    secret = board.config.data / "secret.csv"
    secret.write_text(TRACE)
    forged = {**kept, "name": "../../secret.csv", "user": "", "jobs": 1}
    before = board.get("/traces", list[TraceSchema])
    for content in (json.dumps(forged), json.dumps([forged])):
        assert upload(board, content, name).status_code == 400
    made = upload(board, TRACE, name).json()
    assert board.get("/traces", list[TraceSchema]) == [made, *before]
    folder = board.config.data / "traces"
    assert {path.name for path in folder.iterdir()} == {trace["id"] for trace in [made, *before]}
    assert board.client.delete(f"{API}/traces/{made['id']}").status_code == 200
    assert (folder / kept["id"]).read_text() == TRACE


def test_while_a_trace_is_checked_its_content_is_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Board(tmp_path, auth="token") as board, ThreadPoolExecutor(1) as pool:
        ann, eve = board.bearer("ann", "user"), board.bearer("eve", "user")
        kept = upload(board, TRACE, **ann).json()
        checking, go = threading.Event(), threading.Event()

        def check(path: Path, name: str) -> TraceCheck:
            checking.set()
            go.wait(60)
            return TraceCheck("native", 1, [])

        monkeypatch.setattr(board.context.studies.traces, "_check", check)
        forged = json.dumps({**kept, "user": "eve", "created_s": 1e12})
        asked = pool.submit(upload, board, forged, "trace.json", **eve)
        assert checking.wait(60)
        assert board.get("/traces", list[TraceSchema], ann) == [kept]
        assert board.client.delete(f"{API}/traces/{kept['id']}", headers=eve).status_code == 403
        go.set()
        assert asked.result().json()["user"] == "eve"
        assert kept in board.get("/traces", list[TraceSchema], ann)


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".hidden", "a%00b", "%2e%2e%2fx", "x" * 300])
def test_a_name_with_a_path_is_refused(board: Board, name: str) -> None:
    assert upload(board, TRACE, name).status_code == 400


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["link", "hard link to another's", "fifo", "folder"])
def test_only_a_file_of_the_server_is_simulated(board: Board, kind: str, tmp_path: Path) -> None:
    trace = upload(board, TRACE).json()["id"]
    file, secret = board.config.data / "traces" / trace, tmp_path / "secret.csv"
    secret.write_text(TRACE)
    file.unlink()
    if kind == "link":
        file.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        if os.geteuid():
            pytest.skip("only root can make a file of another account")
        os.chown(secret, 12345, 12345)
        file.hardlink_to(secret)
    asked = start(board, trace=trace)
    if asked.status_code == 201:
        found = wait_for(board, asked.json()["id"], *OVER)
        assert found["state"] == "failed"
        assert "regular file" in found["error"] or "belong to the server" in found["error"]
    else:
        assert kind == "folder"
    assert board.client.delete(f"{API}/traces/{trace}").status_code == 200 or kind == "folder"


def test_what_a_crash_left_goes_at_the_start(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4") as board:
        kept = upload(board, TRACE).json()["id"]
    for name in ("traces/01234567.part", "traces/89abcdef", "studies/01234567"):
        (tmp_path / name).write_text("x")
    (tmp_path / "studies" / "89abcdef").mkdir()
    (tmp_path / "studies" / "89abcdef" / "study.json").write_text("{}")
    for name in (".backup-x.part", ".server.json.1.part"):
        (tmp_path / name).write_text("x")
    DataDir(tmp_path).close()
    with Board(tmp_path, "2x4"):
        assert [path.name for path in (tmp_path / "traces").iterdir()] == [kept]
        assert list((tmp_path / "studies").iterdir()) == []
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.slow
def test_a_study_whose_process_dies_fails_with_a_word(board: Board) -> None:
    trace = upload(board, ENDLESS, "endless.csv").json()["id"]
    study = start(board, trace=trace, policies=["srtf"]).json()["id"]
    wait_for(board, study, "running")
    while (process := board.context.studies._process) is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    found = wait_for(board, study, *OVER)
    assert (found["state"], found["error"]) == ("failed", "it was killed: it took too much time or memory")


def test_a_study_that_cannot_be_started_fails(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*args: object, **more: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    trace = upload(board, TRACE).json()["id"]
    monkeypatch.setattr(module, "start_worker", no_process)
    assert wait_for(board, start(board, trace=trace).json()["id"], *OVER)["state"] == "failed"
    monkeypatch.setattr(traces, "start_worker", no_process)
    assert upload(board, TRACE).status_code == 409


def test_a_process_of_a_study_has_limits() -> None:
    code = """
import resource
from skep.server.studies.worker import hold_back, memory_max
hold_back(1 << 30)
try:
    bytearray(2 << 30)
except MemoryError:
    print("refused")
print(resource.getrlimit(resource.RLIMIT_CPU)[0], memory_max() <= 4 << 30)
print(open("/proc/self/oom_score_adj").read())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["refused", "7200", "True", "1000"]


@pytest.mark.parametrize("cluster", ["100000x1000", "1601x1000", "100000x16+1x1", "60000x8+60000x8", "x".join("99")])
def test_the_size_of_a_cluster_is_checked_before_it_is_built(
    board: Board, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board.context.studies, "_run_one", lambda study_id: None)
    monkeypatch.setattr(spec_module, "NodeSpec", None)  # building a node would fail
    trace = upload(board, TRACE).json()["id"]
    asked = start(board, trace=trace, cluster=cluster)
    assert asked.status_code == (201 if cluster == "9x9" else 400), asked.text
    if asked.status_code == 201:
        board.client.post(f"{API}/studies/{asked.json()['id']}/cancel")


def naming_files() -> list[str]:
    """Every knob of every policy, as if it were the name of a file."""
    files = ("secret.yaml", "./secret", "secret")
    knobs = [(policy.name, knob) for policy in policies().values() for knob in (ROUND, *policy.knobs)]
    return [f"{name}:{knob.name}={file}" for name, knob in knobs for file in files]


def test_no_knob_of_a_study_opens_a_file(board: Board, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("secret.yaml", "secret"):
        os.mkfifo(name)  # whoever opens it waits for ever
    trace = upload(board, TRACE).json()["id"]
    for spec in [*naming_files(), "secret.yaml.py:Mine", "./secret.py:Mine:x=1", "secret.py:Mine"]:
        answer = start(board, trace=trace, policies=[spec])
        assert answer.status_code == 400, spec
        assert "\n" not in answer.json()["error"]


def test_sixty_uploads_at_once_leave_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Board(tmp_path, "2x4", auth="token") as board:
        hangs = threading.Event()
        checked = TraceCheck("native", 1, [])
        monkeypatch.setattr(board.context.studies.traces, "_check", lambda path, name: (hangs.wait(120), checked)[1])
        users = [board.bearer(f"user{number}", "user") for number in range(20)]
        with ThreadPoolExecutor(60) as pool:
            asked = [pool.submit(upload, board, TRACE, **users[number % 20]) for number in range(60)]
            time.sleep(0.3)
            for _ in range(5):  # all uploads hang: whatever waited for one would fail after a minute
                assert board.client.get(f"{API}/jobs", headers=users[0]).status_code == 200
            hangs.set()
            answers = [each.result() for each in asked]
        refused = [each for each in answers if each.status_code != 201]
        assert len(answers) - len(refused) >= UPLOADS_MAX
        assert {each.status_code for each in refused} == {429}
        assert all(each.headers["retry-after"] == "5" for each in refused)
        assert not list((tmp_path / "traces").glob("*.part"))


def test_slow_uploads_hold_no_thread_and_only_their_places(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4", auth="token") as board, ExitStack() as stack:
        wires = []
        for number in range(60):
            token = board.bearer(f"user{number % 20}", "user")["Authorization"]
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", board.port), timeout=30))
            head = f"POST {API}/traces?name=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n"
            wire.sendall(f"{head}Content-Type: text/csv\r\nContent-Length: 99\r\n\r\njob_id".encode())
            wires.append(wire)
        who = board.bearer("ann", "user")
        for _ in range(5):  # the uploads never go on: whatever waited for one would fail after a minute
            assert board.client.get(f"{API}/jobs", headers=who).status_code == 200
        ready = select.select(wires, [], [], 5)[0]
        by_s = time.monotonic() + 10
        while len(ready) < 60 - UPLOADS_MAX and time.monotonic() < by_s:
            time.sleep(0.05)
            ready = select.select(wires, [], [], 5)[0]
        said = [wire.recv(4096) for wire in ready]
        assert len(said) == 60 - UPLOADS_MAX
        assert all(each.startswith(b"HTTP/1.1 429") and b"retry-after: 5" in each for each in said)


def test_studies_belong_to_who_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Board(tmp_path, auth="token") as board:
        monkeypatch.setattr(board.context.studies, "_run_one", lambda study_id: None)
        root, ann, bob = board.bearer("root", "admin"), board.bearer("ann", "user", "red"), board.bearer("bob", "user")
        vic = board.bearer("vic", "viewer")
        job = {"name": "past", "vc": "red", "command": "true", "gpus": 1}
        past = board.client.post(f"{API}/jobs", json=job, headers=root).json()["id"]
        while board.client.get(f"{API}/jobs/{past}", headers=root).json()["state"] != "running":
            time.sleep(0.005)
        board.engine.end(past)
        while board.client.get(f"{API}/jobs/{past}", headers=root).json()["state"] != "succeeded":
            time.sleep(0.005)
        assert start(board, vic, trace="history", cluster="1x4").status_code == 403
        assert start(board, ann, trace="history").status_code == 403  # the cluster of others is in it
        made = start(board, ann, trace="history", cluster="1x4")
        assert made.status_code == 201, made.text
        study = made.json()["id"]
        assert [each["id"] for each in board.get("/studies", list[StudySchema], ann)] == [study]
        assert [each["id"] for each in board.get("/studies", list[StudySchema], bob)] == [study]
        other = board.bearer("cid", "user", "blue")
        assert board.get("/studies", list[StudySchema], other) == []
        assert board.client.get(f"{API}/studies/{study}", headers=other).status_code == 404
        assert board.client.delete(f"{API}/studies/{study}", headers=other).status_code == 404
        assert board.client.delete(f"{API}/studies/{study}", headers=bob).status_code == 403
        assert board.client.post(f"{API}/studies/{study}/cancel", headers=vic).status_code == 403
        assert board.client.delete(f"{API}/studies/{study}", headers=ann).status_code == 200


MINE = """
from skep.policies import Order


class Mine(Order):
    def key(self, job, now_s):
        return job.gpus
"""


@pytest.mark.slow
def test_a_study_with_repetitions_recommends_and_an_admin_may_bring_a_policy(tmp_path: Path) -> None:
    with Board(tmp_path, "2x4", auth="token") as board:
        root, ann = board.bearer("root", "admin"), board.bearer("ann", "user")
        trace = upload(board, TRACE, **root).json()["id"]
        own = {"trace": trace, "policies": ["fifo", "mine.py:Mine"], "files": {"mine.py": MINE}, "repetitions": 2}
        assert start(board, ann, **own).status_code == 403
        assert start(board, root, **own, cluster="1x4").status_code == 201
        for wrong in ({"../mine.py": MINE}, {"mine.py": "x" * 100_001}):
            assert start(board, root, **(own | {"files": wrong})).status_code in (400, 422)
        assert start(board, root, **(own | {"files": {"other.py": MINE}})).status_code == 400
        everything = start(board, root, trace=trace, policies=[], repetitions=2, cluster="1x4")
        assert everything.status_code == 201, everything.text
        for study in board.client.get(f"{API}/studies", headers=root).json():
            by_s = time.monotonic() + 240
            while (found := board.client.get(f"{API}/studies/{study['id']}", headers=root).json())["state"] not in OVER:
                assert time.monotonic() < by_s, found
                time.sleep(0.1)
            assert (found["state"], found["error"]) == ("done", "")
            report = board.client.get(f"{API}/studies/{study['id']}/report", headers=root).text
            assert "Which differences are real" in report or "against" in report
            assert ("mine.py:Mine" in report) == (len(found["parts"]) == 2)
