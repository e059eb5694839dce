"""Builds the live service on the data folder: its store, its cluster, its engine."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from skep.clusters.discovered import found_in, is_discovered, with_found, without_found
from skep.clusters.read import WHAT
from skep.clusters.spec import looks_like_spec
from skep.core.cluster import NodeSpec
from skep.core.errors import InputError
from skep.core.needs import offered_needs
from skep.core.ports import Capability, Engine
from skep.engines.kube.engine import KubeEngine, capabilities_of, find_nodes
from skep.engines.local.accounts import ROOT_HINT, SEPARATE, SERVER, Accounts, missing_rights
from skep.engines.local.engine import LocalEngine, local_capabilities
from skep.engines.local.gpus import Gpu, find_gpus
from skep.experiments.measure import measure_of
from skep.files.text import load_text
from skep.files.umask import STARTED_WITH
from skep.server.config import KUBERNETES, LOCAL, Config
from skep.server.private import account_name
from skep.service.clock import machine_clock
from skep.service.files import open_store
from skep.service.live import Live
from skep.service.store import Store, Writes
from skep.service.values import Json

DAY_S = 86400.0
VIRTUAL = "1x8"


def build_live(config: Config, say: Callable[[str], None], on_fault: Callable[[Exception], None]) -> Live:
    kind = ENGINES[config.engine]
    accounts = job_accounts(config, say) if config.engine == LOCAL else Accounts()
    store = open_store(config.data, is_new=config.is_new)
    is_new = store.log_seq == 0
    cluster = None
    if is_new or "cluster" in config.typed:
        cluster = chosen_cluster(config.cluster) if config.cluster else kind.find_cluster(config, say)
        if is_discovered(cluster[1]):
            cluster = cluster[0], discovered(config, kind, cluster[1], say)
    live = Live(
        store,
        lambda live: kind.make(config, live, accounts),
        machine_clock(store.meta("clock")),
        cluster=cluster,
        policy=config.policy or None if is_new or "policy" in config.typed else None,
        retention_s=config.keep_days * DAY_S,
        on_fault=on_fault,
        limits=config.limits,
        weights=config.weights,
        offers=offered_needs(kind.capabilities(config)),
        capabilities=kind.capabilities(config),
        measure=measure_of(config.profile),
        is_new=config.is_new,
    )
    for difference in differences(config, live):
        say(difference)
        live.note("config", difference)
    return live


def differences(config: Config, live: Live) -> list[str]:
    """Settings of the config file that differ from the store: the store's are used."""
    ground = live.writer.ground
    found = []
    if config.cluster and "cluster" not in config.typed and stated_text(config.cluster) != without_found(ground.text):
        command = f"`skep cluster apply {config.cluster}`"
        found.append(
            f"the config file names cluster {config.cluster}, but the stored one ({ground.name}) differs and is used; "
            f"{command} or `skep up --cluster` changes it"
        )
    if config.policy and "policy" not in config.typed and config.policy != ground.policy:
        found.append(
            f"the config file names policy {config.policy}, but the stored one ({ground.policy}) is used; "
            f"`skep policy use {config.policy}` or `skep up --policy` changes it"
        )
    return found


def stated_text(spec: str) -> str:
    """What `cluster` in a config file stands for; empty if it cannot be read, which does not matter any more."""
    try:
        return spec if looks_like_spec(spec) else cluster_text(spec)
    except InputError:
        return ""


def job_accounts(config: Config, say: Callable[[str], None]) -> Accounts:
    """Users with a token do not own the server's account: if possible, their jobs run as another account.

    Without tokens only the server's own account is meant to use it, and the jobs are its own.
    """
    run_as = chosen_run_as(config)
    accounts = Accounts(run_as, config.data, config.job_files, STARTED_WITH)
    if accounts.differ:
        say(f"jobs run as other accounts (run_as: {run_as}); their folders are in {accounts.job_files}")
        return accounts
    more = "run_as: separate" if not missing_rights() else f"run_as: separate, and {ROOT_HINT}"
    say(
        f"jobs run as {account_name(os.geteuid())}, the account of this server: they can access its files and those "
        f"of other jobs (to isolate them: {more})"
    )
    return accounts


def chosen_run_as(config: Config) -> str:
    return config.run_as or (SEPARATE if config.needs_token and not missing_rights() else SERVER)


def local_engine(config: Config, live: Live, accounts: Accounts) -> Engine:
    cluster = live.writer.state.cluster.blank()  # a copy: the state's own is changed in place
    return LocalEngine(
        config.data, cluster, live.request_of, live.tell, accounts, config.limits, config.disk, live.is_open
    )


def kube_engine(config: Config, live: Live, accounts: Accounts) -> Engine:
    cluster = live.writer.state.cluster.blank()
    return KubeEngine(
        config.data,
        cluster,
        live.request_of,
        live.tell,
        config.kubernetes,
        id_of(live.store),
        is_new=config.is_new,
    )


def id_of(store: Store) -> str:
    """The id of a store, durable before anything is named after it."""
    found = store.own_id()
    if store.meta("store") is None:
        store.commit(Writes(meta={"store": found}))
    return found


class EngineKind(NamedTuple):
    """A selectable engine. Its capabilities are known before it is created, because the first policy needs them."""

    capabilities: Callable[[Config], frozenset[Capability]]
    make: Callable[[Config, Live, Accounts], Engine]
    find_cluster: Callable[[Config, Callable[[str], None]], tuple[str, str]]
    """(name, text) of the cluster if none is named."""
    find_nodes: Callable[[Config], list[NodeSpec]] | None = None
    """The nodes that the engine sees, if it discovers them."""


def chosen_cluster(spec: str) -> tuple[str, str]:
    """(name, text)"""
    return (spec, spec) if looks_like_spec(spec) else (Path(spec).name, cluster_text(spec))


def discovered(config: Config, kind: EngineKind, text: str, say: Callable[[str], None]) -> str:
    """A file that leaves the nodes to the engine, with those that there are now. Others may join later."""
    if kind.find_nodes is None:
        raise InputError(f"nodes: discovered: the engine {config.engine} finds no nodes", hint="name them in the file")
    found = with_found(text, kind.find_nodes(config))
    count = len(found_in(found))
    say(f"found {count} node{'' if count == 1 else 's'} of the cluster in Kubernetes")
    return found


def this_machine(config: Config, say: Callable[[str], None]) -> tuple[str, str]:
    gpus = find_gpus()
    if gpus:
        say(f"found {len(gpus)} GPUs on this machine: {', '.join(sorted({gpu.name for gpu in gpus}))}")
        return "this machine", describe_machine(gpus)
    say(f"no GPUs found: a virtual cluster {VIRTUAL} is used, 1 node with 8 GPUs that jobs do not see (or: --cluster)")
    return VIRTUAL, VIRTUAL


def cluster_text(path: str) -> str:
    try:
        return load_text(path, what=WHAT)
    except InputError as error:
        raise InputError(f"--cluster: {error}", hint=error.hint or "a file, or a spec such as 4x8:v100") from None


def describe_machine(gpus: list[Gpu]) -> str:
    """As a cluster file. A node has GPUs of one type."""
    import yaml

    name = socket.gethostname().split(".")[0] or "this"
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    kinds = sorted({gpu.name for gpu in gpus})
    if len(kinds) > 1:
        raise InputError(f"this machine has GPUs of {len(kinds)} types ({', '.join(kinds)})", hint="use --cluster FILE")
    node: Json = {"name": name, "gpus": len(gpus), "gpu_type": kinds[0].lower().replace(" ", "-")}
    node |= {"gpu_mem_gib": gpus[0].memory_mib // 1024, "cpus": os.cpu_count() or 1, "memory_gib": memory_gib}
    return str(yaml.safe_dump({"nodes": [node]}, sort_keys=False))


ENGINES = {
    LOCAL: EngineKind(lambda config: local_capabilities(), local_engine, this_machine),
    KUBERNETES: EngineKind(
        lambda config: capabilities_of(config.kubernetes),
        kube_engine,
        lambda config, say: ("kubernetes", "nodes: discovered\n"),
        lambda config: find_nodes(config.kubernetes),
    ),
}
