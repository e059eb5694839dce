"""The configuration of `skep up`: flags override a config file, which overrides defaults."""

from __future__ import annotations

import ipaddress
import os
import socket
from pathlib import Path
from typing import Any

import msgspec

from skep.core.errors import InputError, did_you_mean
from skep.core.weights import EQUAL, WEIGHT_MAX, Weights
from skep.engines.kube.settings import GPU_MODES, PLUGIN, KubeSettings
from skep.engines.local.accounts import SUBMITTER, check_run_as
from skep.engines.local.upkeep import DiskRules
from skep.files.document import Field, read_document
from skep.files.running import default_data
from skep.files.text import load_text
from skep.jobs.request import DEFAULTS, UNLIMITED, LimitRules, Limits, read_limits
from skep.service.values import Json

PORT = 7437
AUTH = ("none", "token")
JOB_SHARE, USER_SHARE, ALL_SHARE = 0.25, 0.5, 0.9
"""How much of the disk one job, one user and all jobs may use by default."""
RESERVE_SHARE, RESERVE_MAX = 0.05, 2 << 30
"""What stays free by default: the smaller one."""
LOCAL, KUBERNETES = "local", "kubernetes"
ENGINES = (LOCAL, KUBERNETES)
OF_KUBE = ("kubeconfig", "context", "namespace", "reports")
"""Flags of `skep up` that only the Kubernetes engine has."""
KEYS = (
    *("cluster", "policy", "engine", "data", "host", "port", "auth", "names", "keep_days", "limits", "run_as"),
    *("job_files", "profile", "disk", "weights", "kubernetes", "forecast"),
)


class ForecastRules(msgspec.Struct, frozen=True):
    """Of the process that forecasts when jobs start and end."""

    every_s: float = 30.0
    """The time between two forecasts, and before the first."""
    cpu: float = 0.2
    """The part of one core that it may use."""
    samples: int = 32


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """`cluster` or `policy` empty: as stored; in a new store the GPUs of this machine, or virtual ones, and `fifo`."""

    cluster: str = ""
    policy: str = ""
    engine: str = LOCAL
    """The engine that runs the jobs: one of `ENGINES`."""
    typed: frozenset[str] = frozenset()
    """The settings that were given as flags: they replace what is stored. Those of a config file apply to a new store
    only."""
    data: Path
    host: str = "127.0.0.1"
    port: int = PORT
    auth: str = "none"
    names: tuple[str, ...] = ()
    """Additional host names of this server (the `Host` of a request)."""
    is_new: bool = False
    """Start with a new store although jobs have left files and their store is gone."""
    keep_days: float = 30.0
    """Ended jobs are deleted after this many days."""
    limits: LimitRules = UNLIMITED
    weights: Weights = EQUAL
    """Of users and VCs, for policies that share between them."""
    disk: DiskRules = DiskRules()
    """What jobs leave of the disk."""
    run_as: str = ""
    """The account that jobs run as, see `engines/local/accounts.py`; empty: a safe choice, see `job_accounts`."""
    profile: str = ""
    """A file of speeds by model: the reference of jobs that report their steps, and the speeds that policies see."""
    kubernetes: KubeSettings = KubeSettings()
    forecast: ForecastRules | None = ForecastRules()
    """None: there are no forecasts."""
    job_files: str = ""
    """Where jobs of other accounts have their folders; empty: beside the data folder."""

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def needs_token(self) -> bool:
        return self.auth == "token"


def default_limits(data: Path) -> Limits:
    """By default the jobs without GPUs of one user may use all CPUs and memory of this machine at once; one job may use
    a quarter of the disk, all jobs of a user half of it."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    disk_gib = disk_size(data) / 2**30
    return msgspec.structs.replace(
        DEFAULTS,
        cpus=float(os.cpu_count() or 1),
        memory_gib=round(memory_gib, 1),
        job_gib=float(f"{disk_gib * JOB_SHARE:.3g}"),
        disk_gib=float(f"{disk_gib * USER_SHARE:.3g}"),
    )


def default_disk(data: Path) -> DiskRules:
    size = disk_size(data)
    return DiskRules(int(size * ALL_SHARE), min(int(size * RESERVE_SHARE), RESERVE_MAX))


def disk_size(data: Path) -> int:
    """Of the disk that has this folder, or will have it."""
    found = os.statvfs(next(each for each in (data, *data.parents) if each.exists()))
    return found.f_blocks * found.f_frsize


def make_config(file: str | None, flags: Json, *, is_new: bool = False) -> Config:
    """`flags` has what was typed; `None` was not."""
    values: Json = {"data": default_data()}
    if file is not None:
        values |= read_config(file, flags.get("data"))
    values |= {key: value for key, value in flags.items() if value is not None}
    values["data"] = Path(values["data"]).expanduser().absolute()
    values.setdefault("limits", LimitRules(default_limits(values["data"])))
    values.setdefault("disk", default_disk(values["data"]))
    values.setdefault("auth", "none" if is_loopback(values.get("host", "127.0.0.1")) else "token")
    values = with_kube_flags(values)
    typed = frozenset(key for key in ("cluster", "policy") if flags.get(key) is not None)
    config = Config(**values, typed=typed, is_new=is_new)
    if config.engine not in ENGINES:
        near = did_you_mean(config.engine, ENGINES, start="; ")
        raise InputError(
            f"engine: there is no {config.engine[:80]!r}{near}", hint=f"engines of this version: {', '.join(ENGINES)}"
        )
    if config.engine != KUBERNETES and config.kubernetes != KubeSettings():
        raise InputError("kubeconfig, context, namespace and reports need --engine kubernetes")
    if config.auth == "none" and not is_loopback(config.host):
        raise InputError(
            f"{config.host} is reachable from other machines, which needs --auth token",
            hint="make a token with `skep token create --user NAME --role admin`, or stay on 127.0.0.1",
        )
    if config.run_as == SUBMITTER and config.auth != "token":
        raise InputError(
            "run_as: submitter needs --auth token: without tokens a client could claim to be any user",
            hint="run_as: separate also keeps users apart",
        )
    return config


def read_config(path: str, data: str | None = None) -> Json:
    """The keys in the file; a relative path in it starts at its folder. `data` is the data folder if it was typed."""
    document = read_document(load_text(path, what="a config file (YAML)"), path)
    found = document.fields(KEYS)
    folder = Path(path).absolute().parent
    place = Path(data or (found["data"].text("the data") if "data" in found else default_data())).expanduser()
    values = {key: _value(key, field, folder / place) for key, field in found.items()}
    for key in ("data", "job_files", "profile"):
        if key in values:
            values[key] = str(folder / Path(values[key]).expanduser())
    if (beside := folder / values.get("cluster", "")) != folder and beside.is_file():
        values["cluster"] = str(beside)
    return values


# Of the type that `Config` has for this key.
def _value(key: str, field: Field, data: Path) -> Any:
    if key == "port":
        return field.whole(least=0, most=65535)
    if key == "keep_days":
        return field.number(above=0.0, most=36500)
    if key == "limits":
        return read_limits(field, default_limits(data))
    if key == "disk":
        return read_disk(field, default_disk(data))
    if key == "weights":
        return read_weights(field)
    if key == "kubernetes":
        return read_kubernetes(field)
    if key == "forecast":
        return read_forecast(field)
    if key == "names":
        return tuple(name.text().lower() for name in field.items())
    word = field.text(f"the {key}")
    if key == "auth" and word not in AUTH:
        raise field.fault(" or ".join(AUTH))
    if key == "run_as" and (expected := check_run_as(word)):
        raise field.fault(expected)
    return word


def read_weights(field: Field) -> Weights:
    """The section `weights`: users and VCs that do not have weight 1."""
    given = field.fields(("users", "vcs"))
    return Weights(
        **{
            kind: {name: each.number(above=0.0, most=WEIGHT_MAX) for name, each in of.fields().items()}
            for kind, of in given.items()
        }
    )


def read_forecast(field: Field) -> ForecastRules | None:
    """The section `forecast`, or `off`."""
    if not field.is_mapping:
        return ForecastRules() if field.flag() else None
    given = field.fields(ForecastRules.__struct_fields__)
    values: Json = {}
    if "every_s" in given:
        values["every_s"] = given["every_s"].number(least=1.0, most=86400)
    if "cpu" in given:
        values["cpu"] = given["cpu"].number(above=0.0, most=1.0)
    if "samples" in given:
        values["samples"] = given["samples"].whole(least=5, most=1000)
    return ForecastRules(**values)


def read_disk(field: Field, base: DiskRules) -> DiskRules:
    """The section `disk`: `null` lifts the limit of all jobs."""
    given = field.fields(("all_gib", "reserve_gib"))
    found = {name: None if each.is_null else int(each.number(most=2**40) * 2**30) for name, each in given.items()}
    return DiskRules(
        found.get("all_gib", base.all_bytes),
        found.get("reserve_gib", base.reserve_bytes) or 0,
    )


def with_kube_flags(values: Json) -> Json:
    """The flags of the Kubernetes engine override its section in the config file."""
    flags = {key: values[key] for key in OF_KUBE if key in values}
    rest = {key: value for key, value in values.items() if key not in OF_KUBE}
    settings = msgspec.structs.replace(rest.get("kubernetes", KubeSettings()), **flags)
    if settings.reports and not settings.reports.startswith("http://"):
        raise InputError(
            f"reports: {settings.reports!r} is no address of this server", hint="such as http://skep.ml.svc:7438"
        )
    return {**rest, "kubernetes": settings}


def read_kubernetes(field: Field) -> KubeSettings:
    """The section `kubernetes`."""
    given = field.fields((*OF_KUBE, "gpus", "image", "pull_secrets", "checkpoints", "unreachable_s"))
    values: Json = {key: each.text() for key, each in given.items() if key in (*OF_KUBE, "gpus", "image")}
    if values.get("gpus", PLUGIN) not in GPU_MODES:
        raise given["gpus"].fault(" or ".join(GPU_MODES))
    if "pull_secrets" in given:
        values["pull_secrets"] = tuple(each.text() for each in given["pull_secrets"].items())
    if "checkpoints" in given:
        values["checkpoints"] = {"persistentVolumeClaim": {"claimName": given["checkpoints"].text("a volume claim")}}
    if "unreachable_s" in given:
        values["unreachable_s"] = given["unreachable_s"].number(above=0.0, most=86400)
    return KubeSettings(**values)


def is_loopback(host: str) -> bool:
    """True if only this machine can reach it."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def open_socket(config: Config) -> socket.socket:
    """Bound before anything else is changed, so that a port in use does no harm."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    # With an explicit protocol: asyncio disables Nagle's algorithm, which would cost 40 ms per answer, only for TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((config.host, config.port))
        listener.listen(2048)
    except (OSError, UnicodeError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(
            f"cannot listen on {config.host} port {config.port}: {reason}",
            hint="another port: --port N; a server that runs already: `skep down`",
        ) from None
    return listener
