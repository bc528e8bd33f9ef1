"""One line of `distrl doctor`: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Need(str, Enum):
    """What a finding matters for; a configuration needs some of these."""

    BASE = "base"
    ADB = "adb"
    EMULATOR = "emulator"
    BROWSER = "browser"
    MINIWOB = "miniwob"
    ANDROID_WORLD = "android_world"
    GYM = "gym"
    TRAINING = "training"
    REPORTS = "reports"
    VLLM = "vllm"
    DEEPSPEED = "deepspeed"
    CUDA = "cuda"
    RUN = "run"
    """Whatever a configuration names: its tasks, its model, its directory."""
    NOTHING = "nothing"
    """It is worth knowing, but stops nothing."""


@dataclass(frozen=True)
class Finding:
    """One line.

    Attributes:
        about: What was looked at, in a word or two.
        is_good: Whether it is as it should be.
        said: How it is, in one sentence.
        remedy: What to do about it; "" when it is good.
        need: What it matters for.
    """

    about: str
    is_good: bool
    said: str
    remedy: str = ""
    need: Need = Need.NOTHING

    def level(self, needs: frozenset[Need]) -> str:
        """ok, warn or fail: only what is needed can fail."""
        if self.is_good:
            return "ok"
        return "fail" if self.need in needs else "warn"


def good(about: str, said: str, need: Need = Need.NOTHING) -> Finding:
    """A finding that is as it should be."""
    return Finding(about, True, said, "", need)


def bad(about: str, said: str, remedy: str, need: Need = Need.NOTHING) -> Finding:
    """A finding that is not."""
    return Finding(about, False, said, remedy, need)
