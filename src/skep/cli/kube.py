"""`skep kube`: what a server inside a Kubernetes cluster needs."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def kube() -> None:
    """Help with a server on Kubernetes."""


@kube.command()
@click.option(
    "--namespace", metavar="NAME", default="skep", show_default=True, help="Where the server and its jobs are."
)
@click.option("--image", metavar="IMAGE", required=True, help="An image that has the `skep` command.")
@click.option("--storage", metavar="SIZE", default="20Gi", show_default=True, help="The volume of the server.")
@click.option("--config", metavar="FILE", default="", help="A config file of the server: volumes, images, limits.")
def manifests(namespace: str, image: str, storage: str, config: str) -> None:
    """Print plain manifests of a server: service account, roles, volume, service, deployment.

    The roles have the rights that the server uses and no others. A config file is checked, and becomes a config map.

    \b
    Examples:
      skep kube manifests --image registry.example/skep:1 | kubectl apply -f -
      skep kube manifests --image registry.example/skep:1 --config skep.yaml | kubectl apply -f -
    """
    import yaml

    from skep.engines.kube.manifests import manifests as made

    text = config_text(config) if config else ""
    click.echo(yaml.safe_dump_all(made(namespace, image, storage, text), sort_keys=False), nl=False)


def config_text(path: str) -> str:
    """Of a config file that can be read without other files."""
    from skep.core.errors import InputError
    from skep.files.text import load_text
    from skep.server.config import read_config

    values = read_config(path)
    for key in ("cluster", "profile"):
        if Path(values.get(key, "")).is_file():
            raise InputError(
                f"{path}: {key}: the pod of the server does not have this file",
                hint="`skep cluster apply FILE` sends a cluster file to a server that runs",
            )
    return load_text(path, what="a config file (YAML)")
