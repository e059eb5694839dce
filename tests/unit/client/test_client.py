"""`skep.Client`: what it sends, what it makes of the answers, and what it does when there are none."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fake_api import FakeAnswer, FakeApi, events, job

from skep import Client
from skep.client import Denied, NoServer, ServerFault, exit_code, name_of
from skep.core.errors import Conflict, InputError, NotFound


@pytest.fixture
def api() -> Iterator[FakeApi]:
    made = FakeApi()
    yield made
    made.close()


@pytest.fixture
def client(api: FakeApi) -> Iterator[Client]:
    with Client(api.url) as made:
        yield made


def test_importing_skep_does_not_import_the_client() -> None:
    code = "import skep, sys; assert not {'httpx', 'skep.client', 'skep.core'} & set(sys.modules)"
    subprocess.run(
        [sys.executable, "-c", f"{code}; skep.Client; assert 'httpx' in sys.modules"], check=True, timeout=60
    )


def test_the_package_names_what_it_does_not_have() -> None:
    with pytest.raises(ImportError, match="Clint"):
        from skep import Clint  # noqa: F401


def test_a_text_is_submitted_as_it_is_with_a_key(api: FakeApi, client: Client) -> None:
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": ["image is ignored"]})
    found = client.submit("name: a # kept\n")
    assert [one["id"] for one in found["jobs"]] == ["7"]
    assert found["warnings"] == ["image is ignored"]
    (asked,) = api.asked
    assert asked.body == b"name: a # kept\n"
    assert asked.headers["content-type"] == "application/yaml"
    assert len(asked.headers["idempotency-key"]) >= 16


def test_a_mapping_is_submitted_as_json_and_several_jobs_come_back(api: FakeApi, client: Client) -> None:
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "jobs": [job("7"), job("8")], "warnings": []})
    assert [one["id"] for one in client.submit({"name": "a"}, key="k")["jobs"]] == ["7", "8"]
    assert api.asked[0].headers["content-type"] == "application/json"
    assert api.asked[0].headers["idempotency-key"] == "k"


def test_a_lost_answer_is_asked_for_again_with_the_same_key(api: FakeApi, client: Client) -> None:
    api.answers["POST /jobs"] = [FakeAnswer(is_cut=True), FakeAnswer(201, job("7"))]
    assert client.submit("name: a")["jobs"][0]["id"] == "7"
    first, second = api.asked
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_an_answer_lost_again_and_again_is_an_error(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.client.wire.PAUSES_S", (0.01, 0.01))
    api.answers["POST /jobs"] = FakeAnswer(is_cut=True)
    with pytest.raises(NoServer, match="lost the connection"):
        client.submit("name: a")
    assert len(api.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InputError),
        (401, Denied),
        (403, Denied),
        (404, NotFound),
        (409, Conflict),
        (413, InputError),
        (500, ServerFault),
    ],
)
def test_a_refusal_keeps_its_words(api: FakeApi, client: Client, status: int, kind: type[Exception]) -> None:
    api.answers["GET /jobs/7"] = FakeAnswer(status, {"error": "no such job", "hint": "skep ps"})
    with pytest.raises(kind, match=r"^no such job$") as caught:
        client.job("7")
    assert type(caught.value) is kind
    if isinstance(caught.value, InputError):
        assert caught.value.hint == "skep ps"


def test_a_refusal_without_words_names_the_status(api: FakeApi, client: Client) -> None:
    api.answers["GET /jobs/7"] = FakeAnswer(502, b"<html>bad gateway</html>")
    with pytest.raises(ServerFault, match="502"):
        client.job("7")


def test_nobody_there() -> None:
    with (
        Client("http://127.0.0.1:9") as client,
        pytest.raises(NoServer, match=r"no server at http://127\.0\.0\.1:9") as caught,
    ):
        client.policy()
    assert "skep up" in caught.value.hint


def test_something_else_is_there(api: FakeApi, client: Client) -> None:
    api.answers["GET /policy"] = FakeAnswer(200, b"<html>")
    with pytest.raises(InputError, match="is not a Skep server"):
        client.policy()


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:b", "http://[", "file:///etc/passwd"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(InputError, match="is not the address"):
        Client(url)


def test_the_address_may_be_short(api: FakeApi) -> None:
    api.answers["GET /policy"] = {"policy": "fifo"}
    with Client(api.url.removeprefix("http://")) as client:
        assert client.policy() == "fifo"


def test_the_environment_names_server_and_token(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_URL", api.url)
    monkeypatch.setenv("SKEP_TOKEN", "secret")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # never on the way to this machine
    api.answers["GET /policy"] = {"policy": "fifo"}
    with Client() as client:
        client.policy()
    assert api.asked[0].headers["authorization"] == "Bearer secret"
    assert "x-skep-user" not in api.asked[0].headers


def test_without_a_token_the_user_is_named(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ann")
    api.answers["GET /policy"] = {"policy": "fifo"}
    with Client(api.url) as client:
        client.policy()
    assert api.asked[0].headers["x-skep-user"] == "ann"


@pytest.mark.parametrize("name", ["ann marie", "x\r\nHost: evil", "é", "-ann"])
def test_a_user_name_the_server_would_refuse_is_not_sent(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LOGNAME", name)
    api.answers["GET /policy"] = {"policy": "fifo"}
    with Client(api.url) as client:
        client.policy()
    assert "x-skep-user" not in api.asked[0].headers


def test_jobs_come_page_by_page(api: FakeApi, client: Client) -> None:
    pages = {None: {"jobs": [job("3"), job("2")], "next": "c"}, "c": {"jobs": [job("1")], "next": None}}
    api.answers["GET /jobs"] = lambda asked: pages[asked.query.get("cursor", [None])[0]]
    assert [found["id"] for found in client.jobs(vc="a", state=["running", "pending"])] == ["3", "2", "1"]
    assert api.asked[1].query["state"] == ["running", "pending"]
    assert "user" not in api.asked[0].query


def test_ids_are_quoted(api: FakeApi, client: Client) -> None:
    api.answers["GET /jobs/a/../b?c"] = job("x")
    assert client.job("a/../b?c")["id"] == "x"


def test_an_empty_id_is_no_job(client: Client) -> None:
    with pytest.raises(InputError, match="empty"):
        client.stop("")


def test_the_verbs_of_a_job(api: FakeApi, client: Client) -> None:
    api.answers |= {"PATCH /jobs/7": job("7"), "POST /jobs/7/stop": job("7"), "GET /jobs/7/explain": {"reason": "x"}}
    client.hold("7")
    client.release("7")
    client.set_priority("7", -1)
    client.alter("7", gpus=4, gpu_type="")
    client.set_tags("7", ["a"])
    client.stop("7", "enough")
    assert api.bodies("PATCH", "/jobs/7") == [
        {"hold": True},
        {"hold": False},
        {"priority": -1},
        {"gpus": 4, "gpu_type": ""},
        {"tags": ["a"]},
    ]
    assert api.bodies("POST", "/jobs/7/stop") == [{"reason": "enough"}]
    assert client.explain("7") == {"reason": "x"}


def test_run_submits_the_command_in_this_folder(
    api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    api.answers["POST /jobs"] = FakeAnswer(201, job("7"))
    assert client.run(["python", "-u", "train.py"], gpus=2, vc="a", env={"K": "V"})["id"] == "7"
    role = {"count": 1, "gpus": 2, "argv": ["python", "-u", "train.py"], "env": {"K": "V"}}
    assert api.bodies("POST", "/jobs") == [
        {"name": "train", "workdir": str(tmp_path), "tasks": {"main": role}, "vc": "a"}
    ]


def test_wait_waits(api: FakeApi, client: Client) -> None:
    api.answers["GET /jobs/train"] = job("7", state="pending")
    api.answers["GET /jobs/7"] = [
        job("7", state="pending"),
        job("7"),
        job("7", state="failed", history=[{"code": 9}, {"code": 3}, {"code": None}]),
    ]
    assert exit_code(client.wait("train")) == 3


def test_wait_gives_up(api: FakeApi, client: Client) -> None:
    api.answers["GET /jobs/7"] = job("7")
    with pytest.raises(TimeoutError, match="job 7 is still running"):
        client.wait("7", timeout_s=0.2)


def test_wait_outlives_a_restart_of_the_server(api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.client.wire.PAUSES_S", ())
    lost = FakeAnswer(is_cut=True)
    api.answers["GET /jobs/7"] = [
        job("7"),
        lost,
        FakeAnswer(503, {"error": "stopping"}),
        lost,
        job("7", state="stopped"),
    ]
    assert exit_code(client.wait("7")) == 130


def test_pieces_of_a_log_come_as_they_are_written(api: FakeApi, client: Client) -> None:
    gate = threading.Event()
    api.answers["GET /jobs/7/logs"] = FakeAnswer(
        pieces=["é".encode()[:1], "é".encode()[1:] + b"a\n", gate.wait, b"b\n"]
    )
    pieces = client.logs("7", follow=True, task="main-0", attempt=2)
    seen = ""
    while "a" not in seen:
        seen += next(pieces)
    assert seen == "éa\n"
    gate.set()
    assert "".join(pieces) == "b\n"
    assert api.asked[0].query == {"follow": ["true"], "task": ["main-0"], "attempt": ["2"]}


def test_a_log_that_breaks_off_says_so(api: FakeApi, client: Client) -> None:
    api.answers["GET /jobs/7/logs"] = FakeAnswer(pieces=[b"a\n"], is_cut=True)
    with pytest.raises(NoServer, match="lost the connection"):
        list(client.logs("7", follow=True))


def test_a_log_that_is_not_there(api: FakeApi, client: Client) -> None:
    with pytest.raises(NotFound, match="nothing at /jobs/7/logs"):
        list(client.logs("7"))


def test_events_go_on_behind_the_last_one(api: FakeApi, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.client.client.LONGEST_PAUSE_S", 0.01)
    alive = b": still here\n\n"
    first = events(b": hello\n\n", b'id: 4\nevent: x\ndata: {"se', b'q": 4}\n\n', alive, is_cut=True)
    second = events(alive, b'id: 5\ndata: {"seq": 5}\r\n\r\n', alive, b'id: 6\ndata: {"seq": 6}\n\n')
    api.answers["GET /events"] = [first, second]
    followed = client.follow_events()
    assert [next(followed)["seq"] for _ in range(3)] == [4, 5, 6]
    assert "last-event-id" not in api.asked[0].headers
    assert api.asked[1].headers["last-event-id"] == "4"


def test_what_sends_no_events_is_no_server(api: FakeApi, client: Client) -> None:
    api.answers["GET /events"] = FakeAnswer(200, b"<html>", media_type="text/html")
    with pytest.raises(InputError, match="is not a Skep server"):
        next(client.follow_events(after=3))


def test_the_last_events_are_asked_for_at_once(api: FakeApi, client: Client) -> None:
    api.answers["GET /events"] = FakeAnswer(200, [{"seq": 8}, {"seq": 9}])
    assert [event["seq"] for event in client.last_events(2)] == [8, 9]
    client.last_events(0, "17")
    assert [asked.query for asked in api.asked] == [
        {"follow": ["false"], "last": ["2"]},
        {"follow": ["false"], "last": ["0"], "job": ["17"]},
    ]


@pytest.mark.parametrize("token", ["é", "a\nb"])
def test_what_is_no_token_is_said_without_showing_it(token: str) -> None:
    with pytest.raises(InputError, match="SKEP_TOKEN is not a token") as refused:
        Client(token=token)
    assert token not in f"{refused.value} {refused.value.hint}"


def test_a_line_end_behind_a_token_does_not_matter(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKEP_TOKEN", "skep_1_x\n")
    api.answers["GET /policy"] = {"policy": "fifo"}
    with Client(api.url) as client:
        client.policy()
    assert api.asked[0].headers["authorization"] == "Bearer skep_1_x"


def test_the_exit_code_is_that_of_the_task_that_failed() -> None:
    history = [{"outcome": "retried", "code": 1}, {"outcome": "failed", "code": 4}, {"outcome": "stopped", "code": 143}]
    assert exit_code(job(state="failed", history=history)) == 4


def test_the_cluster(api: FakeApi, client: Client) -> None:
    api.answers |= {
        "PUT /cluster": {"changes": ["n9 is new"]},
        "PATCH /nodes/n 1": {},
        "PUT /policy": {"policy": "srtf"},
    }
    api.answers["GET /usage"] = FakeAnswer(200, [{"user": "ann", "gpu_hours": 1.0}])
    assert client.preview_cluster("nodes: []") == ["n9 is new"]
    client.apply_cluster("nodes: []")
    assert [asked.query for asked in api.asked] == [
        {"name": ["cluster.yaml"], "dry_run": ["true"]},
        {"name": ["cluster.yaml"]},
    ]
    client.set_node("n 1", "drained")
    client.use_policy("srtf")
    assert api.asked[-1].query == {}
    api.answers["PUT /policy"] = {"policy": "srtf", "problems": [], "missing": ["no oracle: …"]}
    assert client.missing_for("srtf") == ["no oracle: …"]
    assert api.asked[-1].query == {"dry_run": ["true"]}
    assert client.usage("user", since_s=5.0) == [{"user": "ann", "gpu_hours": 1.0}]
    assert api.asked[-1].query == {"by": ["user"], "since": ["5.0"]}


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "-u", "src/train.py", "--x"], "train"),
        (["bash", "-c", "echo; rm -rf /"], "bash"),
        (["./run me!.sh"], "run-me"),
        (["--", "…"], "job"),
        (["/usr/bin/env"], "env"),
    ],
)
def test_a_command_has_a_name(argv: list[str], name: str) -> None:
    assert name_of(argv) == name


@pytest.mark.parametrize(
    ("state", "codes", "code"),
    [
        ("succeeded", [1, 0], 0),
        ("stopped", [143], 130),
        ("failed", [], 1),
        ("failed", [-310], 1),
        ("failed", [137], 137),
    ],
)
def test_exit_codes(state: str, codes: list[int], code: int) -> None:
    assert exit_code(job(state=state, history=[{"code": each} for each in codes])) == code


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with Client("http://127.0.0.1:9") as client, pytest.raises(NoServer):
        client.patiently(client.policy, until_s=time.monotonic() + 0.1)


def test_a_command_in_one_string_is_split_as_a_shell_would(api: FakeApi, client: Client) -> None:
    api.answers["POST /jobs"] = FakeAnswer(201, {**job("7"), "warnings": []})
    client.run("python train.py --name 'a b'")
    sent = json.loads(api.asked[0].body)
    assert sent["tasks"]["main"]["argv"] == ["python", "train.py", "--name", "a b"]
    assert sent["name"] == "train"


@pytest.mark.parametrize("argv", ["", [], "  "])
def test_an_empty_command_is_refused_here(client: Client, argv: object) -> None:
    with pytest.raises(InputError, match="the command is empty"):
        client.run(argv)  # type: ignore[arg-type]


def test_a_policy_of_ones_own_is_read_here_and_sent_along(
    api: FakeApi, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("class Mine: ...\n")
    api.answers["PUT /policy"] = FakeAnswer(200, {"policy": "x"})
    client.use_policy("./mine.py:Mine:a=1")
    path = str(tmp_path / "mine.py")
    assert json.loads(api.asked[0].body) == {"policy": f"{path}:Mine:a=1", "files": {path: "class Mine: ...\n"}}


def test_a_policy_file_that_is_not_there_is_said_here(client: Client) -> None:
    with pytest.raises(InputError, match=r"nosuch\.py"):
        client.use_policy("./nosuch.py:Mine")


def test_the_output_of_a_command_beside_a_task_comes_in_any_pieces(api: FakeApi, client: Client) -> None:
    sent = b"\x01\x00\x00\x00\x02hi\x02\x00\x00\x00\x01!\x00\x00\x00\x00\x013"
    pieces = [sent[at : at + 4] for at in range(0, len(sent), 4)]
    api.answers["POST /jobs/7/exec"] = FakeAnswer(pieces=pieces, media_type="application/octet-stream")
    assert list(client.exec("7", ["echo", "hi"])) == [(1, b"hi"), (2, b"!"), (0, b"3")]
