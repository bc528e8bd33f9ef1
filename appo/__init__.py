"""Continuous control by APPO with worker gradients (docs/environments.md). Commands use `appo.run`."""
