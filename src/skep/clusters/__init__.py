"""Descriptions of hardware: short specs, files of our own, published node lists, HiveD's configuration."""

from skep.clusters.read import read_cluster, read_layout

__all__ = ["read_cluster", "read_layout"]
