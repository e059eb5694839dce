"""Plain manifests of a server that runs inside the cluster, with the rights that the engine uses and no others."""

from __future__ import annotations

from typing import Any

from skep.engines.kube.lease import NAME as LEASE
from skep.engines.kube.reports import PORT as REPORTS

NAME, PORT, DATA = "skep", 7437, "/data"
CONFIG, CONFIG_DIR = "skep.yaml", "/etc/skep"
Manifest = dict[str, Any]


def rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Manifest:
    found: Manifest = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return found | {"resourceNames": names} if names else found


def rules_in_namespace(namespace: str) -> list[Manifest]:
    return [
        rule("", ["pods"], ["get", "list", "watch", "create", "patch", "delete"]),
        rule("", ["pods/binding", "services", "secrets"], ["create"]),
        rule("", ["pods/log"], ["get"]),
        rule("", ["pods/exec"], ["get", "create"]),  # of which an API server checks one, newer ones the second
        rule("", ["namespaces"], ["get"], [namespace]),
        rule("coordination.k8s.io", ["leases"], ["create"]),
        rule("coordination.k8s.io", ["leases"], ["get", "update"], [LEASE]),
    ]


RULES_OF_CLUSTER = [rule("", ["nodes", "pods"], ["list", "watch"])]
"""Pods of others use GPUs too."""


def manifests(namespace: str, image: str, size: str, config: str = "") -> list[Manifest]:
    """`config` is the text of a config file."""
    made_of_text = made("v1", "ConfigMap", {"name": NAME, "namespace": namespace}, data={CONFIG: config})
    return [*roles(namespace), *([made_of_text] if config else []), *server(namespace, image, size, bool(config))]


def roles(namespace: str) -> list[Manifest]:
    rbac = "rbac.authorization.k8s.io"
    within = {"name": NAME, "namespace": namespace}
    overall = {"name": f"{NAME}-{namespace}"}
    who = [{"kind": "ServiceAccount", **within}]
    return [
        made("v1", "ServiceAccount", within),
        made(f"{rbac}/v1", "Role", within, rules=rules_in_namespace(namespace)),
        made(f"{rbac}/v1", "RoleBinding", within, roleRef=reference("Role", NAME), subjects=who),
        made(f"{rbac}/v1", "ClusterRole", overall, rules=RULES_OF_CLUSTER),
        made(
            f"{rbac}/v1", "ClusterRoleBinding", overall, roleRef=reference("ClusterRole", overall["name"]), subjects=who
        ),
    ]


def reference(kind: str, name: str) -> Manifest:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def server(namespace: str, image: str, size: str, has_config: bool) -> list[Manifest]:
    """One pod at a time: the next server starts when the volume is free."""
    within, labels = {"name": NAME, "namespace": namespace}, {"app": NAME}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    ports = [{"name": "http", "port": PORT}, {"name": "reports", "port": REPORTS}]
    probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 10}
    container: Manifest = {
        "name": NAME,
        "image": image,
        "args": [
            *("skep", "up", "--engine", "kubernetes", "--host", "0.0.0.0", "--auth", "token", "--data", DATA),
            *("--reports", f"http://{NAME}.{namespace}.svc:{REPORTS}"),
            *(("--config", f"{CONFIG_DIR}/{CONFIG}") if has_config else ()),
        ],
        "ports": [{"containerPort": PORT}, {"containerPort": REPORTS}],
        "readinessProbe": probe,
        "livenessProbe": probe | {"initialDelaySeconds": 120},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": DATA}],
    }
    volumes: list[Manifest] = [{"name": "data", "persistentVolumeClaim": {"claimName": NAME}}]
    if has_config:
        container["volumeMounts"] += [{"name": "config", "mountPath": CONFIG_DIR}]
        volumes += [{"name": "config", "configMap": {"name": NAME}}]
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
        "containers": [container],
        "volumes": volumes,
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return [
        made("v1", "PersistentVolumeClaim", within, spec=claim),
        made("v1", "Service", within, spec={"selector": labels, "ports": ports}),
        made(
            "apps/v1",
            "Deployment",
            within,
            spec={
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": template,
            },
        ),
    ]


def made(version: str, kind: str, metadata: Manifest, **rest: Any) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
