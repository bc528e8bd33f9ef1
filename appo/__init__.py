"""Continuous control by APPO with worker gradients (docs/control.md). Commands call `distrl.appo.run`."""
