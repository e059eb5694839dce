"""Skep: a cluster manager for deep learning. One scheduler, three worlds."""

__version__ = "0.1.0"
