"""Scripted requests against a cluster layout: an admin's unit test for it."""
