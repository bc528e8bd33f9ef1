"""The guard: what it forbids, how it leaves, and what it cannot get rid of."""

from __future__ import annotations

import pytest
from shell_phone import HOME, ShellPhone

from distrl.workers.devices.apps import Component
from distrl.workers.devices.errors import GuardTripped
from distrl.workers.devices.guard import Guard, GuardPolicy

DIALER = "com.google.android.dialer/.extensions.GoogleDialtactsActivity"
IN_CALL = "com.google.android.dialer/com.android.incallui.InCallActivity"
SHEET = "com.android.vending/com.google.android.finsky.billing.acquire.LockToPortraitUiBuilderHostActivity"


def guard(phone: ShellPhone, **fields: object) -> Guard:
    time = [0.0]

    def sleep(seconds: float) -> None:
        time[0] += seconds

    return Guard(phone, GuardPolicy.of(fields), lambda: time[0], sleep)


def reason(name: str, **fields: object) -> str:
    package, _, activity = name.partition("/")
    component = Component(package, f"{package}{activity}" if activity.startswith(".") else activity)
    return GuardPolicy.of(fields).reason(component, "com.android.launcher3")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (DIALER, "call"),
        (IN_CALL, "call"),
        ("com.android.phone/.EmergencyDialer", "call"),
        ("com.android.server.telecom/.components.UserCallActivity", "call"),
        ("com.samsung.android.incallui/com.android.incallui.call.InCallActivity", "call"),
        ("com.simplemobiletools.dialer/.activities.MainActivity", "call"),
        ("com.google.android.apps.messaging/.ui.ConversationListActivity", "sms"),
        (SHEET, "purchase"),
        ("com.google.android.gms/.wallet.ow.ChooseAccountShimActivity", "purchase"),
        ("com.android.vending/.AssetBrowserActivity", ""),
        ("com.google.android.gms/.auth.uiflows.minutemaid.MinuteMaidActivity", ""),
        ("com.android.contacts/.activities.PeopleActivity", ""),
        ("com.android.settings/.Settings", ""),
        (HOME, ""),
    ],
)
def test_what_is_forbidden_by_default(name: str, expected: str) -> None:
    assert reason(name) == expected


def test_rules_can_be_switched_off_and_have_exceptions() -> None:
    messenger = "com.simplemobiletools.smsmessenger/.activities.MainActivity"
    assert reason(messenger) == "sms"
    assert reason(messenger, sms=False) == ""
    assert reason(messenger, **{"except": ["com.simplemobiletools.*"]}) == ""
    assert reason(DIALER, calls=False) == ""
    assert reason(SHEET, purchases=False) == ""


def test_an_allow_list_allows_the_home_screen_and_the_system_beside_itself() -> None:
    fields = {"allow": ["com.shop"]}
    assert reason("com.shop/.Cart", **fields) == ""
    assert reason(HOME, **fields) == ""
    assert reason("com.google.android.permissioncontroller/.GrantPermissionsActivity", **fields) == ""
    assert reason("com.mail/.Inbox", **fields) == "not-allowed"
    assert reason("com.shop/.Cart", block=["com.shop/*cart"], **fields) == "blocked"
    assert reason(DIALER, **fields) == "call"  # said to be what it is


def test_a_forbidden_app_is_left_and_counted() -> None:
    phone = ShellPhone(front="com.mail/.Inbox")
    watch = guard(phone, allow=["com.shop"])
    assert watch.check() == "not-allowed: com.mail/com.mail.Inbox"
    assert phone.front == HOME
    assert phone.stopped == []
    assert watch.check() == ""


def test_back_is_enough_for_a_sheet() -> None:
    phone = ShellPhone(front=SHEET)
    phone.on_key["KEYCODE_BACK"] = lambda: setattr(
        phone, "front", "com.android.vending/.AssetBrowserActivity"
    )
    assert guard(phone).check() == f"purchase: {SHEET}"
    assert phone.front == "com.android.vending/.AssetBrowserActivity"


def test_a_call_is_hung_up_first() -> None:
    phone = ShellPhone(front=IN_CALL, in_call=True)
    assert guard(phone).check().startswith("call: com.google.android.dialer/")
    assert (phone.in_call, phone.front) == (False, HOME)
    keys = [line for line in phone.log if "keyevent" in line]
    assert keys[0] == "input keyevent KEYCODE_ENDCALL"


def test_without_a_call_the_end_key_which_would_switch_the_screen_off_is_not_pressed() -> None:
    phone = ShellPhone(front=DIALER)
    guard(phone).check()
    assert not any("ENDCALL" in line for line in phone.log)


def test_what_does_not_go_away_is_a_fault() -> None:
    phone = ShellPhone(sticky="com.mail/.Inbox")
    with pytest.raises(GuardTripped, match=r"com\.mail\.Inbox is in front, .*\(not-allowed\)") as caught:
        guard(phone, allow=["com.shop"]).check()
    assert caught.value.fault == "device"
    assert phone.stopped == ["com.mail"]


def test_a_call_that_cannot_be_ended_is_a_fault() -> None:
    phone = ShellPhone(front=IN_CALL, in_call=True)
    phone.on_key["KEYCODE_ENDCALL"] = lambda: None
    phone._input_keyevent = lambda key: setattr(phone, "front", HOME) or ""  # type: ignore[method-assign]
    with pytest.raises(GuardTripped, match=r"\(call\)"):
        guard(phone).check()
