"""`skep kube manifests`."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from skep.cli.main import skep
from skep.core.errors import InputError


def run(*words: str) -> Result:
    return CliRunner().invoke(skep, ["kube", "manifests", "--image", "skep:1", *words], catch_exceptions=False)


def kinds(text: str) -> dict[str, dict]:
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_everything_that_a_server_needs_in_its_namespace() -> None:
    made = kinds(run("--namespace", "ml", "--storage", "5Gi").output)
    assert list(made) == [
        *("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
        *("PersistentVolumeClaim", "Service", "Deployment"),
    ]
    assert made["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "5Gi"
    pod = made["Deployment"]["spec"]["template"]["spec"]
    assert "http://skep.ml.svc:7438" in pod["containers"][0]["args"]
    assert "--config" not in pod["containers"][0]["args"]
    named = [each for each in made.values() if "namespace" in each["metadata"]]
    assert {each["metadata"]["namespace"] for each in named} == {"ml"}


def test_a_config_file_becomes_a_config_map(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("kubernetes: {image: base, checkpoints: shared}\n")
    made = kinds(run("--config", str(tmp_path / "own.yaml")).output)
    assert made["ConfigMap"]["data"] == {"skep.yaml": "kubernetes: {image: base, checkpoints: shared}\n"}
    pod = made["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["args"][-2:] == ["--config", "/etc/skep/skep.yaml"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts == {"data": "/data", "config": "/etc/skep"}
    assert {each["name"] for each in pod["volumes"]} == mounts.keys()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kubernetes: {gpu: plugin}\n", "gpu"),
        ("cluster: here.yaml\n", "cluster: the pod of the server does not have this file"),
        (": [", "own.yaml"),
    ],
)
def test_a_config_file_that_the_server_could_not_use_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "here.yaml").write_text("nodes: discovered\n")
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(InputError, match=problem):
        run("--config", str(tmp_path / "own.yaml"))
