"""distrl: asynchronous, distributed reinforcement learning for GUI agents."""

__version__ = "0.1.0"
