"""Whatever a policy does, the phone goes on: its state stays plain data and every screen can be drawn."""

from __future__ import annotations

import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distrl.simulator.apps import APPS
from distrl.simulator.apps.webshop import shop_state
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import interruptions, nodes
from distrl.simulator.phone.phone import new_state
from distrl.simulator.phone.state import State
from distrl.simulator.phone.theme import LAYOUTS
from distrl.workers.devices.device import Key

POINT = st.tuples(st.integers(0, 539), st.integers(0, 1199))
STEP = st.one_of(
    st.tuples(st.just("tap"), POINT),
    st.tuples(st.just("target"), st.integers(0, 1000)),
    st.tuples(st.just("hold"), POINT),
    st.tuples(st.just("swipe"), st.tuples(POINT, POINT)),
    st.tuples(st.just("type"), st.text(max_size=30)),
    st.tuples(st.just("key"), st.sampled_from(list(Key))),
)


def apply(device: SimDevice, step: tuple[str, object]) -> None:
    kind, value = step
    if kind == "target":
        targets = [node for node in nodes.walk(device.phone.tree()) if node.clickable]
        node = targets[value % len(targets)]  # type: ignore[operator]
        device.phone.tap(node.x + node.w / 2, node.y + node.h / 2)
    elif kind == "tap":
        device.tap(*value)  # type: ignore[misc]
    elif kind == "hold":
        device.long_press(*value)  # type: ignore[misc]
    elif kind == "swipe":
        device.swipe(*value[0], *value[1])  # type: ignore[index]
    elif kind == "type":
        device.type_text(str(value))
    else:
        device.key(Key(value))


def start(layout: int, is_full: bool) -> State:
    """A phone from the box, or one with many apps, the whole web and every interruption to come."""
    if not is_full:
        return new_state(layout)
    state = new_state(layout, installed=tuple(APPS))
    state["apps"]["store"]["updates"] = ["taskly", "podnest"]
    state["apps"]["browser"]["web"] = shop_state.web(("voltivo", "modavia"))
    state["pending"] = interruptions.plan(interruptions.KINDS, random.Random(layout))
    return state


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    layout=st.integers(0, len(LAYOUTS) - 1),
    is_full=st.booleans(),
    before=st.lists(STEP, max_size=40),
    after=st.lists(STEP, max_size=20),
)
def test_random_use_never_breaks_the_phone_and_a_loaded_state_goes_on_like_the_saved_one(
    layout: int, is_full: bool, before: list[tuple[str, object]], after: list[tuple[str, object]]
) -> None:
    device = SimDevice(state=start(layout, is_full))
    for step in before:
        apply(device, step)
    device.save_state("here")
    saved = device.phone.dump()
    for step in after:
        apply(device, step)
    first = device.phone.dump()
    device.load_state("here")
    assert device.phone.dump() == saved
    for step in after:
        apply(device, step)
    assert device.phone.dump() == first
    assert json.loads(first) == device.phone.state
    assert len(first) < 200_000
    assert device.screenshot().size == (540, 1200)
    assert device.hierarchy().endswith("</hierarchy>")
