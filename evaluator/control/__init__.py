"""Measuring and reporting continuous control: returns in place of success."""
