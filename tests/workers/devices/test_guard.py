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

    return Guard(phone, GuardPolicy.model_validate(fields), lambda: time[0], sleep)


MESSENGER = "com.simplemobiletools.smsmessenger/.activities.MainActivity"
ALLOW = {"allow": ["com.shop"]}


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        (DIALER, {}, "call"),
        (IN_CALL, {}, "call"),
        ("com.android.phone/.EmergencyDialer", {}, "call"),
        ("com.google.android.apps.messaging/.ui.ConversationListActivity", {}, "sms"),
        (MESSENGER, {}, "sms"),
        (SHEET, {}, "purchase"),
        ("com.google.android.gms/.wallet.ow.ChooseAccountShimActivity", {}, "purchase"),
        ("com.android.vending/.AssetBrowserActivity", {}, ""),
        ("com.android.contacts/.activities.PeopleActivity", {}, ""),
        (HOME, {}, ""),
        (MESSENGER, {"sms": False}, ""),
        (MESSENGER, {"except": ["com.simplemobiletools.*"]}, ""),
        (SHEET, {"purchases": False}, ""),
        ("com.shop/.Cart", ALLOW, ""),
        (HOME, ALLOW, ""),
        ("com.google.android.permissioncontroller/.GrantPermissionsActivity", ALLOW, ""),
        ("com.mail/.Inbox", ALLOW, "not-allowed"),
        ("com.shop/.Cart", {**ALLOW, "block": ["com.shop/*cart"]}, "blocked"),
        (DIALER, ALLOW, "call"),  # said to be what it is
    ],
)
def test_what_is_forbidden(name: str, fields: dict[str, object], expected: str) -> None:
    package, _, activity = name.partition("/")
    component = Component(package, f"{package}{activity}" if activity.startswith(".") else activity)
    assert GuardPolicy.model_validate(fields).reason(component, "com.android.launcher3") == expected


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


@pytest.mark.parametrize(("front", "in_call"), [(IN_CALL, True), (DIALER, False)])
def test_a_call_is_hung_up_first_and_the_end_key_is_for_calls_only(front: str, in_call: bool) -> None:
    """It would switch the screen off."""
    phone = ShellPhone(front=front, in_call=in_call)
    assert guard(phone).check().startswith("call: com.google.android.dialer/")
    assert (phone.in_call, phone.front) == (False, HOME)
    keys = [line for line in phone.log if "keyevent" in line]
    assert (keys[0] == "input keyevent KEYCODE_ENDCALL") is in_call


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
