"""Descriptions of hardware: short specs, files of our own, published node lists."""

from skep.clusters.read import read_cluster

__all__ = ["read_cluster"]
