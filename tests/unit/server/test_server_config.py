"""What `skep up` makes of its flags and its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.core.errors import InputError
from skep.files.running import RunningProcess, default_data, is_locked, read_running
from skep.jobs.request import DEFAULTS, Limits
from skep.server.build import chosen_cluster, describe_machine, this_machine
from skep.server.config import default_limits, make_config, open_socket
from skep.server.datadir import DataDir


def write(folder: Path, text: str) -> str:
    path = folder / "skep.yaml"
    path.write_text(text)
    return str(path)


def test_flags_win_over_the_file_and_paths_start_at_its_folder(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("nodes: []")
    file = write(tmp_path, "cluster: lab.yaml\npolicy: sjf\ndata: d\nport: 1234\nnames: [A.example]\nkeep_days: 1.5\n")
    config = make_config(file, {"policy": "srtf", "port": None, "cluster": None})
    assert config.cluster == str(tmp_path / "lab.yaml")
    assert (config.policy, config.port, config.data) == ("srtf", 1234, tmp_path / "d")
    assert (config.names, config.keep_days, config.auth) == (("a.example",), 1.5, "none")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("port: 70000", "skep.yaml:1: port is 70000"),
        ("auth: maybe", "expected none or token"),
        ("prot: 1", "did you mean port?"),
        ("names: a", "names is a, expected a list"),
        ("keep_days: 0", "keep_days is 0"),
        ("limits: {default: {jobs: -1}}", "limits.default.jobs is -1"),
        ("limits: {users: {ann: {cpu: 3}}}", "did you mean cpus?"),
        ("limits: {vcs: {a: 3}}", "limits.vcs.a is 3, expected a mapping"),
        ("limits: {jobs: 3}", "unknown key limits.jobs"),
        ("- a", "expected a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_a_bad_file_names_the_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        make_config(write(tmp_path, text), {})
    assert problem in str(caught.value)


def test_limits_of_a_user_build_on_the_default_and_null_lifts_one(tmp_path: Path) -> None:
    text = """
limits:
  default: {jobs: 10, log_mib: 8}
  users: {ann: {jobs: 20, processes: null}}
  vcs: {lab: {cpus: 1.5, log_mib: 4}}
"""
    rules = make_config(write(tmp_path, text), {}).limits
    assert (rules.of_user("bob").jobs, rules.of_user("bob").pending) == (10, DEFAULTS.pending)
    assert (rules.of_user("ann").jobs, rules.of_user("ann").processes, rules.of_user("ann").log_mib) == (20, None, 8)
    assert rules.of_vc("lab") == Limits(cpus=1.5, log_mib=4)
    assert rules.of_vc("other") == Limits()
    assert (rules.of_task("ann", "lab").log_mib, rules.of_task("ann", "other").log_mib) == (4, 8)
    assert make_config(None, {"data": str(tmp_path)}).limits.of_user("bob") == default_limits(tmp_path)


def test_where_data_is_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/somewhere")
    assert default_data() == Path("/somewhere/skep")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_data() == Path.home() / ".local/share/skep"


@pytest.mark.parametrize(
    ("host", "url"),
    [("127.0.0.1", "http://127.0.0.1:7437"), ("::1", "http://[::1]:7437"), ("0.0.0.0", "http://127.0.0.1:7437")],
)
def test_the_address_of_a_server(tmp_path: Path, host: str, url: str) -> None:
    assert make_config(None, {"data": str(tmp_path), "host": host}).url == url


def test_a_port_in_use(tmp_path: Path) -> None:
    with open_socket(make_config(None, {"data": str(tmp_path), "port": 0})) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: Address already in use"):
            open_socket(make_config(None, {"data": str(tmp_path), "port": port}))


def test_one_server_per_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with DataDir(folder) as data:
        data.announce(RunningProcess(7, "http://x"))
        assert is_locked(folder)
        with pytest.raises(InputError, match=r"in use by another server \(pid 7, http://x\)"):
            DataDir(folder)
    assert not is_locked(folder)
    assert read_running(folder) is None
    assert folder.stat().st_mode & 0o077 == 0
    assert not is_locked(tmp_path / "nowhere")


def test_what_a_crashed_server_left_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text('{"pid": 1, "url": "http://x"}')
    with DataDir(tmp_path):
        assert read_running(tmp_path) is None


def test_the_cluster_is_said_found_or_made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said: list[str] = []
    file = tmp_path / "lab.yaml"
    file.write_text("nodes: [{gpus: 1}]")
    monkeypatch.setattr("skep.server.build.find_gpus", list)
    assert chosen_cluster("2x4") == ("2x4", "2x4")
    assert chosen_cluster(str(file)) == ("lab.yaml", "nodes: [{gpus: 1}]")
    assert this_machine(make_config(None, {"data": str(tmp_path)}), said.append) == ("1x8", "1x8")
    assert "virtual cluster 1x8" in said[0]


def test_a_machine_is_a_cluster_file() -> None:
    from skep.clusters.read import read_text
    from skep.engines.local.gpus import Gpu

    gpus = [Gpu(number, "Tesla V100", f"u{number}", 32_768) for number in range(4)]
    cluster, _ = read_text(describe_machine(gpus), "this machine")
    assert cluster.gpu_total == 4
    assert cluster.nodes[0].spec.gpu_type == "tesla-v100"
    with pytest.raises(InputError, match="2 types"):
        describe_machine([*gpus, Gpu(4, "A100", "u4", 1)])


def test_who_was_replaced_does_not_hide_the_one_that_followed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with DataDir(folder) as replaced:
        replaced.announce(RunningProcess(7, "http://x"))
        folder.rename(tmp_path / "moved")
        with DataDir(folder) as other:
            other.announce(RunningProcess(8, "http://y"))
            replaced.close()
            assert read_running(folder) == RunningProcess(8, "http://y")
            replaced.close = lambda: None  # type: ignore[method-assign]


def test_the_engine_is_chosen_by_name(tmp_path: Path) -> None:
    from skep.server import build
    from skep.server.config import ENGINES

    assert tuple(build.ENGINES) == ENGINES
    assert make_config(None, {"data": str(tmp_path)}).engine == "local"
    assert make_config(None, {"data": str(tmp_path), "engine": "local"}).engine == "local"
    with pytest.raises(InputError, match=r"engine: there is no 'loca'; did you mean local\?") as found:
        make_config(None, {"data": str(tmp_path), "engine": "loca"})
    assert found.value.hint == "engines of this version: local, kubernetes"
    file = tmp_path / "skep.yaml"
    file.write_text("engine: nobody\n")
    with pytest.raises(InputError, match="engine: there is no 'nobody'"):
        make_config(str(file), {"data": str(tmp_path)})


def test_policies_build_on_what_the_chosen_engine_can_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.engines import NoEngine

    from skep.core.needs import Need
    from skep.server import build

    kind = build.EngineKind(
        lambda config: NoEngine.capabilities, lambda config, live, accounts: NoEngine(), build.this_machine
    )
    monkeypatch.setitem(build.ENGINES, "local", kind)
    live = build.build_live(make_config(None, {"data": str(tmp_path), "cluster": "1x4"}), lambda line: None, print)
    try:
        assert live.writer.ground.offers == {Need.HISTORY, Need.DEADLINE}
    finally:
        live.close()


def test_the_section_kubernetes_is_read_and_flags_override_it(tmp_path: Path) -> None:
    from skep.engines.kube.settings import KubeSettings

    file = tmp_path / "skep.yaml"
    file.write_text("engine: kubernetes\nkubernetes: {namespace: a, gpus: visible, image: i, checkpoints: c}\n")
    config = make_config(str(file), {"data": str(tmp_path), "namespace": "b"})
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    assert config.kubernetes == KubeSettings(namespace="b", gpus="visible", image="i", checkpoints=claim)
    file.write_text("engine: kubernetes\nkubernetes: {gpus: some}\n")
    with pytest.raises(InputError, match="plugin or visible"):
        make_config(str(file), {"data": str(tmp_path)})
    with pytest.raises(InputError, match="need --engine kubernetes"):
        make_config(None, {"data": str(tmp_path), "namespace": "b"})
