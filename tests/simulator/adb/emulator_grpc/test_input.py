"""EmulatorController: touches, the mouse and keys, and what the phone feels of them."""

from __future__ import annotations

import pytest

pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from grpc_world import HEIGHT, WIDTH, World, middle, refused, run

from distrl.simulator.adb.emulator_grpc import messages

Event = messages.KeyboardEvent


def test_a_tap_is_a_touch_that_lifts_wherever_it_says_that_it_lifted() -> None:
    async def test(world: World) -> None:
        before = world.system.device.phone.dump()
        x, y = middle(world.system, "Settings")
        await world.client.touch((0, x, y, 1))
        assert world.system.device.phone.dump() == before
        await world.client.touch((0, 0, 0, 0))
        assert world.system.device.foreground() == "settings"

    run(test)


def test_a_finger_that_moves_swipes() -> None:
    async def test(world: World) -> None:
        world.system.activities.open("settings")
        for x in (2, 60, 120, 200):  # from the left edge: back
            await world.client.touch((0, x, 300, 50))
            assert world.system.device.foreground() == "settings"
        await world.client.touch((0, 2, 300, 0))
        assert world.system.device.foreground() == "launcher"

    run(test)


def test_the_mouse_is_a_finger_while_its_button_is_held() -> None:
    async def test(world: World) -> None:
        x, y = middle(world.system, "Settings")
        for buttons in (0, 2, 0):
            await world.client.call("sendMouse", messages.MouseEvent(x=x, y=y, buttons=buttons))
        assert world.system.device.foreground() == "launcher"
        for buttons in (1, 0):
            await world.client.call("sendMouse", messages.MouseEvent(x=x, y=y, buttons=buttons))
        assert world.system.device.foreground() == "settings"

    run(test)


def test_touches_that_are_none_change_nothing() -> None:
    async def test(world: World) -> None:
        before = world.system.device.phone.dump()
        x, y = middle(world.system, "Settings")
        await world.client.touch((0, x, y, 0))  # lifts, but was not down
        for outside in ((-1, y), (x, HEIGHT), (WIDTH, y), (x, -(2**31)), (2**31 - 1, y)):
            await world.client.touch((0, *outside, 1))
            await world.client.touch((0, x, y, 1))  # it came in from outside: still none
            await world.client.touch((0, x, y, 0))
        other_display = messages.TouchEvent(touches=[messages.Touch(x=x, y=y, pressure=1)], display=2)
        await world.client.call("sendTouch", other_display)
        await world.client.touch((0, x, y, 0))
        assert world.system.device.phone.dump() == before

    run(test)


def test_the_first_of_several_fingers_is_the_one_that_counts() -> None:
    async def test(world: World) -> None:
        x, y = middle(world.system, "Settings")
        await world.client.touch((7, x, y, 1), (8, 5, 300, 1))
        await world.client.touch((8, 260, 300, 1))  # alone it would be a swipe back
        await world.client.touch((8, 0, 0, 0))
        assert world.system.device.foreground() == "launcher"
        await world.client.touch((7, 0, 0, 0))
        assert world.system.device.foreground() == "settings"

    run(test)


@pytest.mark.parametrize(
    "fields",
    [
        {"codeType": Event.Evdev, "keyCode": 158},
        {"codeType": Event.XKB, "keyCode": 166},
        {"codeType": Event.Usb, "keyCode": 0x0C0224},
        {"codeType": Event.XKB, "keyCode": 9},  # Escape
        {"key": "GoBack"},
        {"codeType": Event.Evdev, "keyCode": 102},  # the key Home, which is HOME on this keyboard
        {"codeType": Event.XKB, "keyCode": 110},
        {"codeType": Event.Usb, "keyCode": 0x07004A},
        {"key": "GoHome"},
    ],
)
def test_keys_have_many_names(fields: dict[str, object]) -> None:
    async def test(world: World) -> None:
        world.system.activities.open("settings")
        await world.client.key(**fields)
        assert world.system.device.foreground() == "launcher"

    run(test)


def test_keys_type_and_modifiers_are_held() -> None:
    async def test(world: World) -> None:
        world.system.activities.open("browser")
        await world.client.tap(*middle(world.system, "android.widget.EditText"))
        assert world.system.state["focus"]
        for code in (38, 56, 10, 61):  # the X codes of a b 1 /
            await world.client.key(codeType=Event.XKB, keyCode=code)
        assert world.field == "ab1/"
        await world.client.key(key="Shift", eventType=Event.keydown)
        await world.client.key(codeType=Event.Evdev, keyCode=30)
        await world.client.key(codeType=Event.Usb, keyCode=0x07001E)
        await world.client.key(key="Shift", eventType=Event.keyup)
        await world.client.key(codeType=Event.Evdev, keyCode=30)
        assert world.field == "ab1/A!a"
        await world.client.key(codeType=Event.Evdev, keyCode=30, eventType=Event.keydown)
        await world.client.key(codeType=Event.Evdev, keyCode=30, eventType=Event.keyup)
        await world.client.key(key="Backspace")
        await world.client.key(key="Backspace")
        await world.client.key(key="%")
        await world.client.key(key="x", eventType=Event.keyup)
        await world.client.key(text="red shoes \N{SNOWMAN}!")
        assert world.field == "ab1/A!%red shoes !"

    run(test)


def test_keys_that_the_phone_lacks_have_no_effect_and_other_systems_codes_are_refused() -> None:
    async def test(world: World) -> None:
        before = world.system.device.phone.dump()
        for fields in (
            {"codeType": Event.Evdev, "keyCode": 172},
            {"codeType": Event.Evdev, "keyCode": 100_000},
            {"codeType": Event.Evdev, "keyCode": -1},
            {"codeType": Event.XKB, "keyCode": 3},
            {"codeType": Event.Usb, "keyCode": 0x070032},
            {"key": "NoSuchKey"},
            {"text": "\N{SNOWMAN}"},
            {},
        ):
            await world.client.key(**fields)
        assert world.system.device.phone.dump() == before
        for kind in (Event.Win, Event.Mac, 17):
            assert (await refused(world.client.key(codeType=kind, keyCode=30)))[0] == "UNIMPLEMENTED"

    run(test)
