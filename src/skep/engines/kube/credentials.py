"""Where the API server is and how to prove who we are: a kubeconfig file, or the service account of our own pod.

Read here and not by the official package: it installs 126 MB for what is one YAML file (docs/decisions).
"""

from __future__ import annotations

import base64
import binascii
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from skep.core.errors import InputError

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_S = 60.0
"""Token files and commands are read again after this time: tokens expire."""
COMMAND_S = 30.0


class Credentials(msgspec.Struct, frozen=True):
    url: str
    namespace: str
    tls: ssl.SSLContext | None
    token: Callable[[], str]
    """Empty: the client certificate says who we are."""


def find_credentials(kubeconfig: str = "", context: str = "", namespace: str = "") -> Credentials:
    """By the file, else `KUBECONFIG`, else our own pod, else `~/.kube/config`."""
    path = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not path and not context and (IN_CLUSTER / "token").exists():
        return of_pod(namespace)
    return of_file(Path(path or "~/.kube/config").expanduser(), context, namespace)


def of_pod(namespace: str) -> Credentials:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InputError(f"{IN_CLUSTER} exists but KUBERNETES_SERVICE_HOST is not set", hint="use --kubeconfig")
    host = f"[{host}]" if ":" in host else host
    tls = ssl.create_default_context(cafile=str(IN_CLUSTER / "ca.crt"))
    namespace = namespace or (IN_CLUSTER / "namespace").read_text().strip()
    return Credentials(f"https://{host}:{port}", namespace, tls, again(lambda: read_token(IN_CLUSTER / "token")))


def of_file(path: Path, context: str, namespace: str) -> Credentials:
    try:
        config = yaml.safe_load(path.read_text())
    except OSError as error:
        raise InputError(f"kubeconfig {path}: {error.strerror}", hint="name one with --kubeconfig") from None
    except (yaml.YAMLError, UnicodeDecodeError):
        raise InputError(f"kubeconfig {path}: is not valid YAML") from None
    if not isinstance(config, dict):
        raise InputError(f"kubeconfig {path}: is not a kubeconfig file")
    chosen = context or config.get("current-context") or ""
    if not chosen:
        raise InputError(f"kubeconfig {path}: has no current-context", hint="name one with --context")
    used = _named(config, path, "contexts", "context", chosen)
    cluster = _named(config, path, "clusters", "cluster", used.get("cluster"))
    user = _named(config, path, "users", "user", used["user"]) if used.get("user") else {}
    url = str(cluster.get("server") or "")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"kubeconfig {path}: the server of cluster {used.get('cluster')!r} is no address: {url!r}")
    try:
        tls = _tls(cluster, user, path.parent) if parts.scheme == "https" else None
    except (OSError, ValueError, binascii.Error) as error:
        raise InputError(f"kubeconfig {path}: a certificate or key cannot be used: {error}") from None
    return Credentials(url, namespace or used.get("namespace") or "default", tls, _token(user, path))


def _named(config: Any, path: Path, kind: str, what: str, name: Any) -> dict[str, Any]:
    found = config.get(kind) if isinstance(config.get(kind), list) else []
    for each in found:
        if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(what), dict):
            return dict(each[what])
    names = ", ".join(str(each.get("name")) for each in found if isinstance(each, dict)) or "none"
    raise InputError(f"kubeconfig {path}: there is no {what} {name!r}", hint=f"{kind} of this file: {names}")


def _tls(cluster: dict[str, Any], user: dict[str, Any], folder: Path) -> ssl.SSLContext:
    authority = _bytes(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=authority.decode() if authority else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    certificate, key = (_bytes(user, name, folder) for name in ("client-certificate", "client-key"))
    if certificate and key:
        # The ssl module reads them from files only. The folder is private, and gone at once.
        with tempfile.TemporaryDirectory(prefix="skep-") as private:
            both = Path(private, "both.pem")
            both.touch(0o600)
            both.write_bytes(certificate + b"\n" + key)
            tls.load_cert_chain(both)
    return tls


def _bytes(section: dict[str, Any], name: str, folder: Path) -> bytes:
    """The value itself in base64, else the file that is named."""
    if section.get(f"{name}-data"):
        return base64.b64decode(section[f"{name}-data"], validate=True)
    return (folder / section[name]).read_bytes() if section.get(name) else b""


def _token(user: dict[str, Any], path: Path) -> Callable[[], str]:
    if user.get("token"):
        return lambda: str(user["token"])
    if user.get("tokenFile"):
        file = path.parent / user["tokenFile"]
        return again(lambda: read_token(file))
    if isinstance(user.get("exec"), dict):
        return again(lambda: _run_plugin(user["exec"]))
    if user.get("username") or user.get("auth-provider"):
        raise InputError(
            f"kubeconfig {path}: passwords and auth-provider are not supported", hint="use exec or a token"
        )
    return lambda: ""


def read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError as error:
        raise InputError(f"token file {file}: {error.strerror}") from None


def _run_plugin(plugin: dict[str, Any]) -> str:
    """A credential plugin prints an ExecCredential; those that give certificates are not supported."""
    command = [str(plugin.get("command")), *map(str, plugin.get("args") or [])]
    about = {"apiVersion": plugin.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {str(each["name"]): str(each["value"]) for each in plugin.get("env") or []}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(about).decode()
    try:
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            timeout=COMMAND_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return str(msgspec.json.decode(done.stdout)["status"]["token"])
    except (OSError, subprocess.SubprocessError, msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"the credential command {command[0]!r} of the kubeconfig failed: {error}") from None


def again(read: Callable[[], str]) -> Callable[[], str]:
    """The value, read again when it is old."""
    value, until = "", 0.0

    def current() -> str:
        nonlocal value, until
        if time.monotonic() >= until:
            value, until = read(), time.monotonic() + TOKEN_S
        return value

    return current
