"""Deterministic pseudo-random numbers derived from an identity, so that a replay draws the same numbers."""

from __future__ import annotations

MASK = (1 << 64) - 1


def draw(*identity: int) -> int:
    """64 well-mixed bits for this identity (run seed, job, launch, …), by the splitmix64 finaliser."""
    value = 0
    for part in identity:
        value = (value + (part & MASK) + 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        value ^= value >> 31
    return value
