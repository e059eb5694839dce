"""Virtual clusters beneath every policy: each VC has a planner that sees its own cells as its cluster."""
