"""`pm install` in its ways: from a file, streamed through standard input, in a session."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from apk_files import apk

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.phone.state import focus

APK = apk()


def test_from_a_file(phone: AndroidSystem, sh: Any) -> None:
    phone.files.write("/data/local/tmp/a.apk", APK)
    assert sh("pm install -r -t -g /data/local/tmp/a.apk; rm -f /data/local/tmp/a.apk").out == "Success\n"
    assert sh("pm list packages -3").out == "package:com.android.adbkeyboard\npackage:com.example.app\n"
    assert sh("pm path com.example.app").out == "package:/data/app/com.example.app/base.apk\n"
    assert sh("pm uninstall com.example.app").out == "Success\n"
    assert sh("pm uninstall com.example.app").out.startswith("Failure [DELETE_FAILED_INTERNAL_ERROR")


def test_streamed(sh: Any) -> None:
    size = len(APK)
    assert sh(f"cmd package 'install' -r -S {size}", APK + b"rest").out == "Success\n"
    early = sh(f"cmd package install -S {size + 1}", APK)
    assert (early.status, early.err) == (1, "Error: the package ends too early\n")
    assert sh("cmd package install", APK).status == 1


def test_in_a_session(sh: Any) -> None:
    created = sh("pm install-create -S 100").out
    number = created[created.index("[") + 1 : created.index("]")]
    assert created == f"Success: created install session [{number}]\n"
    size = len(APK)
    assert (
        sh(f"pm install-write -S {size} {number} base.apk -", APK).out == f"Success: streamed {size} bytes\n"
    )
    assert sh(f"pm install-commit {number}").out == "Success\n"
    assert sh("pm path com.example.app").status == 0
    assert sh(f"pm install-commit {number}").out.startswith("Failure [")


def test_what_is_no_apk(phone: AndroidSystem, sh: Any) -> None:
    phone.files.write("/data/local/tmp/x.apk", b"not a zip")
    result = sh("pm install /data/local/tmp/x.apk")
    assert result.status == 1
    assert result.out.startswith("Failure [INSTALL_PARSE_FAILED_NOT_APK:")
    assert "Can't open file" in sh("pm install /data/local/tmp/nope.apk").err


def test_an_installed_app_cannot_run_here_and_says_so_in_the_log(phone: AndroidSystem, sh: Any) -> None:
    package = phone.packages.get("com.android.adbkeyboard")
    assert package is not None
    phone.packages.update(package.name, activity=f"{package.name}.Main")
    assert sh(f"am start -n {package.name}/.Main").status == 0
    assert phone.device.foreground() == "launcher"
    assert "FATAL EXCEPTION" in sh("logcat -d -b crash").out


@pytest.mark.needs("uiautomator2")
def test_uiautomator2s_keyboard_types_any_text(phone: AndroidSystem, sh: Any) -> None:
    """It comes with the package, is installed like any app, and answers its broadcasts."""
    spec = importlib.util.find_spec("uiautomator2")
    assert spec is not None
    assert spec.origin is not None
    data = (Path(spec.origin).parent / "assets" / "app-uiautomator.apk").read_bytes()
    assert sh(f"cmd package install -r -t -S {len(data)}", data).out == "Success\n"
    name = "com.github.uiautomator/.AdbKeyboard"
    assert name in sh("ime list -s -a").out.split()
    assert sh(f"ime enable {name}; ime set {name}").status == 0
    phone.activities.open("browser")
    phone.change(lambda state: focus(state, "browser.query"))
    typed = sh("am broadcast -a ADB_KEYBOARD_INPUT_TEXT --es text 8J+YgCDkvaDlpb0=").out
    assert typed.endswith('Broadcast completed: result=-1, data="success"\n')
    assert phone.state["fields"]["browser.query"] == "😀 你好"
    assert 'data="success"' in sh("am broadcast -a ADB_KEYBOARD_CLEAR_TEXT").out
    assert phone.state["fields"]["browser.query"] == ""
    sh("am broadcast -a ADB_KEYBOARD_HIDE")
    assert phone.state["focus"] == ""
