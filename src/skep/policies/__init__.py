"""The scheduling policies, most of them pipelines of small parts."""

from __future__ import annotations

from skep.policies.order.base import FALLS, RISES, STANDS, Order

__all__ = ["FALLS", "RISES", "STANDS", "Order"]
