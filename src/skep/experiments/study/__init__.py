"""A study: many policies on one trace, repeated, so that what chance does can be told from what a policy does."""
