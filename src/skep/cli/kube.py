"""`skep kube`: what a server inside a Kubernetes cluster needs."""

from __future__ import annotations

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
def manifests(namespace: str, image: str, storage: str) -> None:
    """Print plain manifests of a server: service account, roles, volume, service, deployment.

    The roles have the rights that the server uses and no others.

    \b
    Examples:
      skep kube manifests --image registry.example/skep:1 | kubectl apply -f -
    """
    import yaml

    from skep.engines.kube.manifests import manifests as made

    click.echo(yaml.safe_dump_all(made(namespace, image, storage), sort_keys=False), nl=False)
