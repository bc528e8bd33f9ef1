"""The state machine: every pair of states is either allowed or refused, and every change is recorded."""

from __future__ import annotations

import pytest
from pool_devices import Clock

from distrl.workers.devices.health import ALLOWED, SlotMachine, SlotState

# As docs/devices.md draws it.
DRAWN = """
absent: starting left
starting: ready suspect absent left
ready: busy suspect absent left
busy: ready suspect absent left
suspect: recovering quarantined absent left
recovering: ready quarantined absent left
quarantined: recovering absent left
left:
"""


def machine(state: SlotState, clock: Clock | None = None) -> SlotMachine:
    made = SlotMachine(clock or Clock(), lambda: 7.0)
    made.state = state
    return made


@pytest.mark.parametrize("line", DRAWN.strip().splitlines())
def test_the_table_is_what_the_documentation_draws(line: str) -> None:
    before, _, after = line.partition(":")
    assert ALLOWED[SlotState(before)] == {SlotState(name) for name in after.split()}


@pytest.mark.parametrize("before", SlotState)
@pytest.mark.parametrize("after", SlotState)
def test_only_what_the_table_allows_can_happen(before: SlotState, after: SlotState) -> None:
    changing = machine(before)
    if after in ALLOWED[before]:
        changing.to(after, "a test")
        assert changing.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.value} -> {after.value}"):
            changing.to(after, "a test")
        assert changing.state is before
        assert not changing.history


def test_every_change_is_recorded_with_time_and_reason() -> None:
    clock = Clock()
    changing = SlotMachine(clock, lambda: 7.0)
    clock.now += 3.0
    changing.to(SlotState.STARTING, "it is there")
    clock.now += 2.0
    changing.to(SlotState.READY, "it works")
    assert [(c.at, c.before, c.after, c.after_s, c.reason) for c in changing.history] == [
        (7.0, SlotState.ABSENT, SlotState.STARTING, 3.0, "it is there"),
        (7.0, SlotState.STARTING, SlotState.READY, 2.0, "it works"),
    ]
