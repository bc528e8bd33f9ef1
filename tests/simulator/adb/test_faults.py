"""Faults by their text, and how long they make an answer take."""

from __future__ import annotations

import pytest

from distrl.core.errors import ConfigError
from distrl.simulator.adb.faults import Fault, Faults, Kind, parse


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("none", Fault()),
        ("blank", Fault(Kind.BLANK)),
        ("offline 30", Fault(Kind.OFFLINE, seconds=30)),
        ("slow 100", Fault(Kind.SLOW, factor=100)),
        ("slow 0.5s 20", Fault(Kind.SLOW, added_s=0.5, seconds=20)),
        ("crash 1.5", Fault(Kind.CRASH, seconds=1.5)),
    ],
)
def test_a_fault_is_read_from_its_text(text: str, fault: Fault) -> None:
    assert parse(text) == fault


@pytest.mark.parametrize(
    "text", ["", "fast", "slow", "slow fast", "slow 2 3 4", "hang soon", "hang -1", "blank 1 2", "slow nan"]
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_slow_means_a_factor_or_seconds() -> None:
    faults = Faults()
    assert faults.delay_s(0.5) == 0
    faults.set(parse("slow 100"))
    assert faults.delay_s(0.010) == pytest.approx(0.99)
    assert faults.delay_s(0) > 0
    faults.set(parse("slow 0.5s"))
    assert faults.delay_s(0.010) == pytest.approx(0.5)
    faults.set(parse("slow 1000000"))
    assert faults.delay_s(10) <= 60
