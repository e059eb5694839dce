"""The Kubernetes engine on a real API server, with hollow kubelets: what the contract does not ask of every engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.support.kube_faults import STEPS, FaultTrial
from tests.support.kube_live import kube_service
from tests.support.kube_plane import ControlPlane
from tests.support.kube_world import KubeWorld, on, until

from skep.core.actions import Launch, Stop
from skep.core.errors import InputError
from skep.core.events import NodeBack, NodeConditions, NodeLost
from skep.core.ports import StaleEpoch
from skep.core.reports import Exited, Fenced, LaunchFailed, Launching, Looked, Started
from skep.engines.kube import lease
from skep.engines.kube.api import ApiError, ApiStream
from skep.engines.kube.exec import exec_in
from skep.engines.kube.manifests import RULES_OF_CLUSTER, roles, rules_in_namespace
from skep.jobs.request import OfKube, Request, TaskRole
from skep.train.checkpoints import Checkpoints

SLEEP = "echo hello; sleep 1000"


@pytest.fixture
def world(plane: ControlPlane, tmp_path: Path) -> Iterator[KubeWorld]:
    made = KubeWorld(plane, tmp_path)
    try:
        made.adopt()
        yield made
    finally:
        made.close()


def test_pods_carry_what_the_job_file_says(world: KubeWorld) -> None:
    own = OfKube({"/data": "set"}, ("pull",), "trainer", {"zone": "a"}, ("nvidia.com/gpu",), 2.0)
    role = TaskRole(command=SLEEP, image="train:1", cpu=1.5, memory_gib=2.0, gpus=1)
    world.requests["1"] = Request("job", {"main": role}, secrets={"KEY": "s3cret"}, kubernetes=own, grace_s=7.0)
    world.do(Launch("1", on(0, 1), 1))
    world.wait(Started)
    pods = world.raw_pods()
    assert [pod["spec"]["nodeName"] for pod in pods] == ["n0", "n1"]
    pod, container = pods[0], pods[0]["spec"]["containers"][0]
    labels = pod["metadata"]["labels"]
    assert (labels["skep/job"], labels["skep/launch"], labels["skep/task"]) == ("1", "1", "main-0")
    assert container["image"] == "train:1"
    assert container["resources"] == {
        "requests": {"cpu": "1500m", "memory": "2Gi"},
        "limits": {"memory": "2Gi"},
    }
    env = {each["name"]: each.get("value", "") for each in container["env"]}
    assert env["NVIDIA_VISIBLE_DEVICES"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in env
    assert env["MASTER_ADDR"] == f"skep-abc-1-1-0.skep-abc-1-1.{world.namespace}.svc"
    assert (env["WORLD_SIZE"], env["PAI_TASK_INDEX"]) == ("2", "0")
    assert "s3cret" not in msgspec.json.encode(pods).decode()
    spec = pod["spec"]
    assert spec["imagePullSecrets"] == [{"name": "pull"}]
    assert (spec["serviceAccountName"], spec["nodeSelector"]) == ("trainer", {"zone": "a"})
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    assert spec["terminationGracePeriodSeconds"] == 7
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/data", "/dev/shm", "/skep/checkpoint"} <= mounts
    service = msgspec.json.decode(world.api.get(world.api.of("services", "skep-abc-1-1")))
    assert service["spec"]["clusterIP"] == "None"
    assert service["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


def test_an_image_that_cannot_be_pulled_fails_the_launch(world: KubeWorld) -> None:
    world.kubelets.image_fails.add("missing:1")
    world.requests["1"] = Request("job", {"main": TaskRole(command=SLEEP, image="missing:1")})
    world.do(Launch("1", on(0), 1))
    told = world.wait(LaunchFailed)
    assert told.cause == "image"
    assert "not found" in told.reason
    assert world.until(lambda: not world.raw_pods())


def test_a_volume_that_is_awaited_is_reported(world: KubeWorld) -> None:
    world.kubelets.slow_images.add("slow:1")
    world.requests["1"] = Request("job", {"main": TaskRole(command=SLEEP, image="slow:1")})
    world.do(Launch("1", on(0), 1))
    assert "ContainerCreating" in world.wait(Launching).reason


def test_a_gang_of_which_one_pod_is_bound_elsewhere_is_undone(world: KubeWorld) -> None:
    """Another scheduler was faster with one pod."""
    world.kubelets.join("other", 1)
    world.bind_first("skep-abc-1-1-1", "other")
    world.do(Launch("1", on(0, 1), 1))
    told = world.wait(LaunchFailed)
    assert "bound or deleted by another client" in told.reason
    assert told.cause == "shortage"
    assert world.until(lambda: not world.raw_pods() and not world.kubelets.running())


def test_a_pod_that_somebody_deletes_ends_the_launch(world: KubeWorld) -> None:
    world.do(Launch("1", on(0, 1), 1))
    world.wait(Started)
    world.api.delete(world.api.of("pods", "skep-abc-1-1-0"), grace_s=1)
    told = world.wait(Exited)
    assert (told.task, told.cause, told.was_stopped) == ("main-0", "deleted", False)
    assert world.until(lambda: not world.raw_pods() and not world.kubelets.running())


def test_the_log_of_an_earlier_attempt_stays_when_its_pod_is_gone(world: KubeWorld) -> None:
    size = 11 << 20
    world.requests["1"] = Request(
        "job", {"main": TaskRole(command=f"head -c {size} /dev/zero | tr '\\0' x; echo; exec sleep 1000")}
    )
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    assert world.until(lambda: world.kubelets.log_of("skep-abc-1-1-0").stat().st_size > size)
    world.do(Stop("1", "preempted", 1))
    world.wait(Exited)
    assert world.until(lambda: not world.raw_pods())
    reader = world.engine.open_log("1", launch=1)
    assert sum(map(len, iter(reader.read, b""))) == size + 1
    reader.close()


@pytest.mark.slow
def test_cut_watches_and_forgotten_versions_lose_nothing(world: KubeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, gone = world.engine.api.stream, [True] * 3

    def sometimes_gone(path: str, **query: object) -> ApiStream:
        if "watch" in query and gone:
            gone.pop()
            raise ApiError(410, "Expired", "too old resource version")
        return stream(path, **query)

    monkeypatch.setattr(world.engine.api, "stream", sometimes_gone)
    for launch in range(1, 6):
        world.do(Launch("1", on(0), launch))
        world.wait(Started, count=launch)
        world.engine.pods.cut()
        world.do(Stop("1", "preempted", launch))
        world.wait(Exited, count=launch)
    assert world.engine.pods.lists >= 4
    assert [told.launch for told in world.of(Exited)] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_an_api_server_that_is_away_loses_nothing(world: KubeWorld) -> None:
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    world.plane.stop_server()
    try:
        world.do(Launch("2", on(1), 1), Stop("1", "preempted", 1))
        time.sleep(lease.ACT_S + 2.0)
        assert any("Kubernetes" in problem for problem in world.engine.problems())
        assert not world.of(Exited)
    finally:
        world.plane.start_server()
    assert world.wait(Exited).was_stopped
    world.wait(Started, "2")
    assert not world.of(Fenced)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_seeded_faults_lose_nothing_and_start_nothing_twice(plane: ControlPlane, tmp_path: Path, seed: int) -> None:
    trial = FaultTrial(plane, tmp_path, seed)
    trial.run(STEPS)
    assert trial.wrong == []
    assert sum(trial.faulty.faults.values()) >= 10


def test_looking_at_what_the_watch_may_have_missed_causes_no_list(world: KubeWorld) -> None:
    world.adopt(Launch("1", on(0), 1))
    world.wait(Started)
    before = world.plane.lists()
    for _ in range(30):
        world.engine.look(())
    assert world.until(lambda: len(world.of(Looked, "")) >= 30)
    assert world.plane.lists() == before
    assert [watch.lists for watch in world.engine.watches] == [1, 1, 1]


def test_a_policy_that_wakes_every_second_causes_no_list(plane: ControlPlane, tmp_path: Path) -> None:
    """By the audit log, while it lets three jobs take turns on the GPUs of two."""
    with kube_service(plane, tmp_path, "las:round_s=1") as live:
        request = Request("job", {"main": TaskRole(gpus=2, command="exec sleep 1000")}, grace_s=1.0)
        live.submit([request] * 3, "ann").result(60)
        assert until(lambda: live.writer.jobs_by_state().get("running") == 2)
        before, turns = len(plane.requests()), live.writer.turns
        assert until(lambda: live.writer.turns >= turns + 10)
        new = plane.requests()[before:]
        assert ("pods", "create") in new
        assert not [each for each in new if each[1] in ("list", "watch")]


def test_a_node_that_is_not_ready_for_long_is_lost_until_it_is_back(world: KubeWorld) -> None:
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    world.kubelets.set_ready("n0", is_ready=False)
    assert world.until(lambda: NodeConditions("n0", ("not-ready",)) in world.told)
    assert world.until(lambda: NodeLost("n0") in world.told)
    assert world.wait(Exited).cause == "node-lost"
    world.kubelets.set_ready("n0", is_ready=True)
    assert world.until(lambda: NodeBack("n0") in world.told)
    assert world.until(lambda: NodeConditions("n0", ()) in world.told)


def test_a_server_that_starts_again_hears_what_became_of_the_nodes(world: KubeWorld) -> None:
    """One was lost, the other cordoned, when the server before it ended; a pod was left on the lost one."""
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    world.kubelets.silence("n0")
    world.engine.close()
    world.told.clear()
    world.open()
    world.adopt(Launch("1", on(0), 1), Launch("2", on(0), 1), lost={"n0"})
    assert world.wait(Exited).cause == "node-lost", "also if its server ended before it could say so"
    assert world.wait(LaunchFailed, "2").cause == "node-lost"
    assert NodeConditions("n1", ()) in world.told, "it was uncordoned meanwhile"
    assert NodeBack("n0") not in world.told
    world.kubelets.hear("n0")
    assert world.until(lambda: NodeBack("n0") in world.told)
    world.do(Launch("2", on(0), 2))
    world.wait(Started, "2")


def test_a_node_that_came_back_while_there_was_no_server_is_back(world: KubeWorld) -> None:
    world.adopt(lost={"n0"})
    assert world.until(lambda: NodeBack("n0") in world.told)


STEPS_THAT_COUNT = """
from skep import train
import os, time
done = []
job = train.join(every_s=0, done=done)
for step in job.steps(100_000):
    done.append(int(os.environ["SKEP_LAUNCH"]))
    time.sleep(0.02)
"""


def test_a_launch_on_an_unreachable_node_never_replaces_what_a_newer_one_has_saved(world: KubeWorld) -> None:
    """It runs on there, and saves after every step; the node comes back when the newer one has saved."""
    role = TaskRole(argv=("python3", "-c", STEPS_THAT_COUNT))
    world.requests["1"] = Request("job", {"main": role}, grace_s=5.0)
    folder = world.folder / "checkpoints" / "abc" / "1"

    def saved(launch: int) -> list[int]:
        return [number for path in folder.glob("checkpoint-*") if (number := int(path.name[11:])) // 10**6 == launch]

    world.do(Launch("1", on(0), 1))
    assert world.until(lambda: bool(saved(1)))
    world.kubelets.silence("n0")
    assert world.wait(Exited).cause == "node-lost"
    world.do(Launch("1", on(1), 2))
    assert world.until(lambda: len(saved(2)) >= 2)
    assert len(world.kubelets.running()) == 2, "the older one is still there"
    time.sleep(0.3)
    newest = max(saved(2))
    world.kubelets.hear("n0")
    assert world.until(lambda: world.kubelets.running() == ["skep-abc-1-2-0"])
    world.do(Stop("1", "preempted", 2))
    assert world.wait(Exited, count=2).was_stopped
    found = Checkpoints(folder).latest()
    assert found is not None
    assert found["number"] >= newest
    whose = Checkpoints(folder).read(found["number"], "rank-0.bin")["kept"]["done"]
    assert whose == sorted(whose), "steps of launch 1, then those of launch 2"
    assert whose[-1] == 2


def test_a_cordoned_node_and_a_taint_are_conditions(world: KubeWorld) -> None:
    path = "/api/v1/nodes/n1"
    try:
        world.api.patch(path, {"spec": {"unschedulable": True, "taints": [{"key": "lab/x", "effect": "NoSchedule"}]}})
        assert world.until(lambda: NodeConditions("n1", ("cordoned", "taint lab/x")) in world.told)
    finally:
        world.api.patch(path, {"spec": {"unschedulable": None, "taints": None}})
    assert world.until(lambda: NodeConditions("n1", ()) in world.told)


def test_of_two_servers_the_later_one_acts(world: KubeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one does not renew any more, as if it were suspended; it continues when another has taken over."""
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    first = world.engine
    monkeypatch.setattr(first.fence, "_renew", lambda: True)
    first.fence._renewed_s -= lease.ACT_S
    monkeypatch.setattr(lease, "is_dead", lambda holder: True)
    world.open("second")
    world.adopt(Launch("1", on(0), 1))
    assert world.epoch == 2
    world.wait(Started, count=2)
    with pytest.raises(StaleEpoch):
        first.execute(1, 0.0, [Stop("1", "preempted", 1)])
    monkeypatch.undo()
    assert world.until(lambda: bool([told for told in world.told if isinstance(told, Fenced)]))
    assert world.kubelets.running() == ["skep-abc-1-1-0"]
    first.close()


def test_pods_that_a_dead_server_created_are_bound_by_the_next(
    world: KubeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str, node: str) -> None:
        raise ApiError(0, "", "the test stops it here")

    monkeypatch.setattr(world.engine.runs.starter, "_bind", die)
    world.do(Launch("1", on(0, 1), 1))
    assert world.until(lambda: len(world.raw_pods()) == 2)
    monkeypatch.setattr(lease, "is_dead", lambda holder: True)
    world.open()
    world.adopt(Launch("1", on(0, 1), 1))
    world.wait(Started)
    assert len(world.kubelets.running()) == 2


def test_a_holder_that_lives_is_waited_for(world: KubeWorld) -> None:
    other = lease.KubeFence(world.api, "abc", lambda epoch: None)
    began = time.monotonic()
    with pytest.raises(StaleEpoch):
        other.take(1)
    assert time.monotonic() - began < lease.LEASE_S
    assert not other._is_free(other._read())


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for() -> None:
    words = lease.identity().split("_")
    assert not lease.is_dead("_".join(words))
    assert lease.is_dead("_".join([*words[:-2], "999999999", words[-1]]))
    assert not lease.is_dead("_".join(["elsewhere", *words[1:-2], "999999999", words[-1]]))


def test_another_store_is_refused_and_its_pods_are_left_alone(world: KubeWorld) -> None:
    world.do(Launch("1", on(0), 1))
    world.wait(Started)
    with pytest.raises(InputError, match="belongs to another Skep store"):
        world.open("other", store="other")
    world.engine.close()
    world.open("other", store="other", is_new=True)
    world.adopt(known=set())
    time.sleep(0.5)
    assert world.kubelets.running() == ["skep-abc-1-1-0"]


def test_the_rights_of_the_manifests_are_those_that_are_used(plane: ControlPlane, tmp_path: Path) -> None:
    namespace = plane.namespace()
    plane.authority.issue("limited")
    for manifest in roles(namespace):
        plane.apply(manifest, user="limited")
    world = KubeWorld(plane, tmp_path, user="limited", namespace=namespace)
    try:
        world.adopt()
        world.requests["1"] = Request("job", {"main": TaskRole(command=SLEEP)}, secrets={"KEY": "s"})
        order = Launch("1", on(0, 1), 1)
        world.do(order)
        world.wait(Started)
        assert b"Success" in list(exec_in(world.engine.api, "skep-abc-1-1-0", "task", ["true"]))[-1][1]
        world.engine.runs.start_again(world.engine.runs.by_job["1"])  # every pod exists and is bound
        world.do(Stop("1", "preempted", 1))
        world.wait(Exited)
        assert world.until(lambda: not world.raw_pods())
        time.sleep(lease.RENEW_S + 0.5)
    finally:
        world.close()
    used, refused = plane.rights_used("limited")
    assert not refused
    granted = {
        (group, resource, verb)
        for rule in (*rules_in_namespace(namespace), *RULES_OF_CLUSTER)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted - used == {("", "pods/exec", "create")}  # newer API servers check this one too
    assert used <= granted


@pytest.mark.parametrize("what", ["rights", "namespace", "server", "credentials"])
def test_what_an_admin_must_correct_is_one_line(plane: ControlPlane, tmp_path: Path, what: str) -> None:
    namespace = plane.namespace()
    expected = {
        "rights": "missing rights: .*cannot list resource",
        "namespace": "there is no namespace 'nowhere'",
        "server": "cannot be reached",
        "credentials": "does not accept these credentials|certificate",
    }[what]
    kubeconfig = plane.kubeconfig("admin", namespace)
    if what == "rights":
        plane.authority.issue("nobody")
        kubeconfig = plane.kubeconfig("nobody", namespace)
    if what == "server":
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            plane.kubeconfig("admin", namespace).read_text().replace(plane.url, "https://127.0.0.1:9")
        )
    if what == "credentials":
        kubeconfig = tmp_path / "kubeconfig"
        users = "- name: admin\n  user:\n    token: wrong\n"
        kubeconfig.write_text(
            plane.kubeconfig("admin", namespace).read_text().partition("users:")[0] + "users:\n" + users
        )
    with pytest.raises(InputError, match=expected):
        KubeWorld.engine_only(tmp_path, kubeconfig, "nowhere" if what == "namespace" else "")
