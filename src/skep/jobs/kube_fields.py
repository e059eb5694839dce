"""How the fields of the section `kubernetes` of a job file are read."""

from __future__ import annotations

import re

from skep.files.document import Field
from skep.jobs import fields

OWN_ACCOUNT = "skep"
"""The service account of a server that runs in the cluster, see `skep kube manifests`."""
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def object_name(field: Field) -> str:
    found = field.text()
    if OBJECT_NAME.fullmatch(found) is None or len(found) > 253:
        raise field.fault("the name of a Kubernetes object: lower case letters, digits, `-` and `.`")
    return found


def object_names(field: Field) -> tuple[str, ...]:
    return tuple(dict.fromkeys(object_name(item) for item in fields.entries(field)))


def service_account(field: Field) -> str:
    found = object_name(field)
    if found == OWN_ACCOUNT:
        raise field.fault(f"another account than {OWN_ACCOUNT}, that of the server: its rights are not for jobs")
    return found


def claims(field: Field) -> dict[str, str]:
    """Claims by path."""
    found = {}
    for path, claim in fields.mapping(field).items():
        if not path.startswith("/") or path == "/" or ".." in path.split("/") or ":" in path:
            raise claim.trouble(f"{field.path}: {path[:80]!r} is not an absolute path without ..")
        found[path] = object_name(claim)
    return found


def node_selector(field: Field) -> dict[str, str]:
    found = {}
    for key, value in fields.mapping(field).items():
        if LABEL_KEY.fullmatch(key) is None:
            raise value.trouble(f"{field.path}: {key[:80]!r} is not the key of a label")
        found[key] = fields.label(value, most=63)
    return found


def taint_keys(field: Field) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(fields.label(item, most=316) for item in fields.entries(field)))
    for key in found:
        if LABEL_KEY.fullmatch(key) is None:
            raise field.trouble(f"{field.path}: {key[:80]!r} is not the key of a taint")
    return found
