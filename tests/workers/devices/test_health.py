"""The state machine: every pair of states is either allowed or refused, and every change is recorded."""

from __future__ import annotations

import pytest
from pool_devices import STEPS, Clock, FakeMember

from distrl.workers.devices.errors import DeviceTimeout, LowDisk
from distrl.workers.devices.health import (
    ALLOWED,
    Circuit,
    RecoveryStep,
    SlotMachine,
    SlotState,
    StepOutcome,
    climb,
)

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


def climbed(member: FakeMember) -> list[StepOutcome]:
    outcomes: list[StepOutcome] = []
    climb(member, member.ladder(), outcomes.append, lambda: member.log.append("warned"))
    return outcomes


@pytest.mark.parametrize("helps", STEPS)
def test_steps_are_taken_in_order_until_one_helps(helps: str) -> None:
    member = FakeMember("a", mended_by=helps)
    member.fail()
    outcomes = climbed(member)
    taken = STEPS[: STEPS.index(helps) + 1]
    assert [o.name for o in outcomes] == list(taken)
    assert [bool(o.error) for o in outcomes] == [name != helps for name in taken]
    assert [entry for entry in member.log if entry in STEPS] == list(taken)
    assert member.log[-2:] == ["probe", "open"]


def test_evidence_is_asked_for_once_and_before_anything_is_lost() -> None:
    member = FakeMember("a", mended_by="cold boot")
    member.fail()
    climbed(member)
    assert member.log.count("warned") == 1
    assert member.log.index("wait") < member.log.index("warned") < member.log.index("reconnect")


def test_when_nothing_helps_the_last_error_is_raised() -> None:
    member = FakeMember("a", mended_by=None)
    member.fail()
    with pytest.raises(DeviceTimeout, match="does not answer"):
        climbed(member)


def test_a_step_that_fails_is_followed_by_the_next() -> None:
    member = FakeMember("a")

    def refuse() -> None:
        raise DeviceTimeout("no.")

    outcomes: list[StepOutcome] = []
    steps = [RecoveryStep("wait", refuse), RecoveryStep("reconnect", lambda: None)]
    climb(member, steps, outcomes.append, lambda: None)
    assert [(o.name, o.error) for o in outcomes] == [("wait", "no."), ("reconnect", "")]
    assert member.log == ["probe", "open"]


def test_trouble_of_the_whole_machine_ends_the_climb() -> None:
    member = FakeMember("a", mended_by="cold boot")
    member.broken = LowDisk("the disk is full.")
    with pytest.raises(LowDisk):
        climbed(member)
    assert [entry for entry in member.log if entry in STEPS] == ["wait"]


def test_a_bug_in_a_step_is_not_taken_for_a_fault() -> None:
    steps = [RecoveryStep("wait", lambda: 1 // 0 and None)]
    with pytest.raises(ZeroDivisionError):
        climb(FakeMember("a"), steps, lambda outcome: None, lambda: None)


def test_three_faults_in_the_window_open_the_circuit() -> None:
    clock, circuit = Clock(), Circuit(limit=3, window_s=600.0)
    for _ in range(2):
        circuit.fault(clock.now)
        clock.now += 200.0
    assert not circuit.is_open(clock.now)
    circuit.fault(clock.now)
    assert circuit.is_open(clock.now)
    assert circuit.is_open(clock.now + 200.0)
    assert not circuit.is_open(clock.now + 201.0)  # the first of them is over ten minutes old


def test_a_closed_circuit_counts_from_nothing() -> None:
    circuit = Circuit(limit=2)
    circuit.fault(0.0)
    circuit.fault(1.0)
    circuit.close()
    circuit.fault(2.0)
    assert not circuit.is_open(2.0)


def test_faults_that_were_the_servers_are_forgiven() -> None:
    circuit = Circuit(limit=2)
    circuit.fault(0.0)
    circuit.fault(9.0)
    circuit.forgive(8.0)
    assert circuit.count(10.0) == 1


def test_pauses_double_up_to_a_maximum_and_are_short_again_after_an_episode() -> None:
    circuit = Circuit(pause_s=10.0, max_pause_s=60.0)
    assert [circuit.pause(0.0) for _ in range(5)] == [10.0, 20.0, 40.0, 60.0, 60.0]
    circuit.worked()
    assert circuit.pause(0.0) == 10.0
