"""A study: many policies on one trace, repeated, so that chance is not mistaken for merit."""
