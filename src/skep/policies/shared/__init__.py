"""Virtual clusters below every policy: each VC has a planner that sees the VC's own cells as its cluster."""
