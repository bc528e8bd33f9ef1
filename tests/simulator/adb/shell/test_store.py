"""Apps that come and go by the phone's store, as adb sees them: pm, am, monkey, tasks, snapshots."""

from __future__ import annotations

import re
from typing import Any

import pytest

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.packages import Packages
from distrl.simulator.apps import store_catalog
from distrl.workers.devices import apps

PODNEST = "org.simphone.podnest"


@pytest.fixture
def shop(phone: AndroidSystem, sh: Any) -> AndroidSystem:
    """A phone with a store, and one app of it."""
    assert sh("cmd simphone reset store").status == 0
    phone.change(lambda state: store_catalog.install(state, "podnest"))
    return phone


def packages(sh: Any, option: str = "") -> set[str]:
    return set(re.findall(r"^package:(\S+)$", sh(f"pm list packages {option}").out, re.M))


def test_an_app_of_the_store_is_a_package_while_it_is_there(shop: AndroidSystem, sh: Any) -> None:
    assert PODNEST in packages(sh, "-3")
    assert "org.simphone.store" in packages(sh, "-s")
    assert "org.simphone.taskly" not in packages(sh)
    assert sh(f"pm path {PODNEST}").out == f"package:/data/app/{PODNEST}/base.apk\n"
    assert "installer=org.simphone.store" in sh("pm list packages -i podnest").out
    assert f"{PODNEST}/.MainActivity" in sh(apps.LAUNCHABLE).out
    shop.change(lambda state: store_catalog.uninstall(state, "podnest"))
    assert PODNEST not in packages(sh)


@pytest.mark.parametrize(
    "command",
    [f"monkey -p {PODNEST} -c android.intent.category.LAUNCHER 1", f"am start -n {PODNEST}/.MainActivity"],
)
def test_it_is_started_only_while_it_is_there(shop: AndroidSystem, sh: Any, command: str) -> None:
    assert sh(command).status == 0
    assert shop.device.foreground() == "podnest"
    assert f"{PODNEST}/.MainActivity" in sh("dumpsys activity activities").out
    assert sh(f"pidof {PODNEST}").status == 0
    sh("input keyevent HOME")
    shop.change(lambda state: store_catalog.uninstall(state, "podnest"))
    sh(command)
    assert shop.device.foreground() == "launcher"
    assert PODNEST not in sh("am stack list").out
    assert sh(f"pidof {PODNEST}").status == 1


def test_adb_uninstalls_it_and_leaves_those_of_the_phone(shop: AndroidSystem, sh: Any) -> None:
    sh(f"am start -n {PODNEST}/.MainActivity")
    assert sh(f"pm uninstall {PODNEST}").out == "Success\n"
    assert "podnest" not in shop.state["installed"]
    assert shop.device.foreground() == "launcher"
    assert PODNEST not in packages(sh)
    assert "DELETE_FAILED_INTERNAL_ERROR" in sh(f"pm uninstall {PODNEST}").out
    assert "DELETE_FAILED_INTERNAL_ERROR" in sh("pm uninstall org.simphone.store").out
    assert "store" in shop.state["installed"]


def test_a_snapshot_has_the_apps_of_its_time(shop: AndroidSystem, sh: Any) -> None:
    snapshot = shop.dump()
    sh(f"pm uninstall {PODNEST}")
    shop.change(lambda state: store_catalog.install(state, "taskly"))
    assert "org.simphone.taskly" in packages(sh)
    shop.load(snapshot)
    assert PODNEST in packages(sh)
    assert "org.simphone.taskly" not in packages(sh)
    assert sh("cmd simphone reset").status == 0
    assert not {PODNEST, "org.simphone.store"} & packages(sh)


def test_user_ids_stay_apart_and_those_of_the_box_are_the_same_as_ever(shop: AndroidSystem, sh: Any) -> None:
    for name in store_catalog.ENTRIES:
        store_catalog.install(shop.state, name)
    uids = {package.name: package.uid for package in shop.packages.all()}
    assert len(set(uids.values())) == len(uids)
    assert {package.name: package.uid for package in Packages().all()}.items() <= uids.items()


def test_a_market_address_opens_the_apps_page(shop: AndroidSystem, sh: Any) -> None:
    sh("am start -a android.intent.action.VIEW -d market://details?id=org.simphone.taskly")
    assert shop.device.foreground() == "store"
    assert shop.state["stacks"]["store"][-1] == ["app", "taskly"]


def test_the_shade_is_opened_by_a_command_and_by_its_key(shop: AndroidSystem, sh: Any) -> None:
    for command in ("cmd statusbar expand-notifications", "input keyevent NOTIFICATION"):
        sh(command)
        assert shop.state["shade"] is True
        sh("cmd statusbar collapse")
        assert shop.state["shade"] is False


def test_waiting_takes_phone_time_while_something_loads(shop: AndroidSystem, sh: Any) -> None:
    before = shop.state["elapsed_s"]
    sh("cmd simphone wait")
    assert shop.state["elapsed_s"] == before
    shop.change(lambda state: store_catalog.begin(state, "taskly"))
    for _ in range(2):
        sh("cmd simphone wait")
    assert "taskly" in shop.state["installed"]


def test_a_phone_is_reset_to_apps_that_there_are(sh: Any) -> None:
    assert sh("cmd simphone reset store taskly").status == 0
    assert {"org.simphone.store", "org.simphone.taskly"} <= packages(sh)
    refused = sh("cmd simphone reset tetris")
    assert "no app tetris" in refused.err
    assert refused.status == 1
