"""Simulated runs: a trace, a cluster and a policy in, what came out of it as a value."""
