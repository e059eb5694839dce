"""Cells and virtual clusters: what HiveD guarantees, beneath every policy."""
