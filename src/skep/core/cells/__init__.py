"""Cells and virtual clusters: the guarantees of HiveD, below every policy."""
