"""Schedulers, each composed of five small parts."""

from __future__ import annotations

from skep.policies.order.base import FALLS, RISES, STANDS, Order

__all__ = ["FALLS", "RISES", "STANDS", "Order"]
