"""Suites of tasks that are played on the simulated phone."""
