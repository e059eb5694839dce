"""Simulated runs: a trace, a cluster and a policy go in, the results come out as a value."""
