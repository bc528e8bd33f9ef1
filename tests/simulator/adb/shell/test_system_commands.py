"""Properties, settings, services, processes, the log, files and the clock, as tools ask for them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from distrl.simulator.adb import shell
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.phone.phone import new_state


def test_properties(phone: AndroidSystem, sh: Any) -> None:
    assert (
        sh("getprop ro.build.version.sdk; getprop sys.boot_completed; getprop ro.distrl.simphone").out
        == "34\n1\n1\n"
    )
    assert sh("getprop init.svc.bootanim; getprop nope; getprop nope fallback").out == "stopped\n\nfallback\n"
    assert "[ro.product.model]: [Simphone One]\n" in sh("getprop").out
    assert sh("setprop debug.foo 'a b'; getprop debug.foo").out == "a b\n"
    assert "failed to set property 'ro.serialno'" in sh("setprop ro.serialno x").err
    assert sh("setprop persist.sys.timezone Europe/Berlin").status == 1
    phone.uid = 0
    assert (
        sh("setprop persist.sys.timezone Europe/Berlin; getprop persist.sys.timezone").out
        == "Europe/Berlin\n"
    )


def test_settings(sh: Any) -> None:
    assert sh("settings get global nothing").out == "null\n"
    assert (
        sh("settings put global window_animation_scale 0; settings get global window_animation_scale").out
        == "0\n"
    )
    assert sh("settings put system a 'b c'; settings list system | grep ^a=").out == "a=b c\n"
    assert (
        sh("settings --user 0 delete system a; settings delete system a").out
        == "Deleted 1 rows\nDeleted 0 rows\n"
    )
    assert (
        sh("settings reset global window_animation_scale; settings get global window_animation_scale").out
        == "1.0\n"
    )
    assert sh("settings get nowhere x").status == 255
    assert sh("settings get system").status == 255
    assert sh("content query --uri content://settings/system/font_scale").out == (
        "Row: 0 _id=0, name=font_scale, value=1.0\n"
    )


@pytest.mark.parametrize(
    ("on", "off", "key"),
    [
        ("settings put global wifi_on 1", "settings put global wifi_on 0", "wifi"),
        ("svc wifi enable", "svc wifi disable", "wifi"),
        ("svc bluetooth enable", "svc bluetooth disable", "bluetooth"),
        ("cmd bluetooth_manager enable", "cmd bluetooth_manager disable", "bluetooth"),
        ("svc data enable", "svc data disable", "data"),
        ("svc nfc enable", "svc nfc disable", "nfc"),
        ("cmd connectivity airplane-mode enable", "cmd connectivity airplane-mode disable", "airplane"),
        ("cmd uimode night yes", "cmd uimode night no", "dark"),
        ("settings put secure ui_night_mode 2", "settings put secure ui_night_mode 1", "dark"),
        ("settings put global zen_mode 1", "settings put global zen_mode 0", "dnd"),
        ("settings put secure location_mode 3", "settings put secure location_mode 0", "location"),
        (
            "settings put system accelerometer_rotation 1",
            "settings put system accelerometer_rotation 0",
            "rotate",
        ),
    ],
)
def test_settings_of_the_phone_are_what_its_screen_shows(
    phone: AndroidSystem, sh: Any, on: str, off: str, key: str
) -> None:
    for command, wanted in ((on, True), (off, False), (on, True)):
        assert sh(command).status == 0
        assert phone.state["apps"]["settings"][key] is wanted
    if on.startswith("settings"):
        *_, space, name, value = on.split()
        assert sh(f"settings get {space} {name}").out == f"{value}\n"


def test_brightness_is_a_share_of_255(phone: AndroidSystem, sh: Any) -> None:
    assert sh("settings get system screen_brightness").out == "153\n"
    sh("settings put system screen_brightness 255; settings put system volume_music 0")
    assert phone.state["apps"]["settings"]["brightness"] == 100
    assert phone.state["apps"]["settings"]["volume"] == 0


def test_the_screen_follows_a_setting_at_once(phone: AndroidSystem, sh: Any) -> None:
    phone.activities.open("settings", ["section", "network"])
    before = sh("screencap -p").data
    sh("svc wifi disable")
    assert sh("screencap -p").data != before


def test_services(sh: Any) -> None:
    assert sh("service check activity").out == "Service activity: found\n"
    assert sh("service check nope").out == "Service nope: not found\n"
    assert "Can't find service: nope" in sh("dumpsys nope").err
    assert sh("cmd nope").status == 20
    assert sh("cmd statusbar collapse; wm dismiss-keyguard").status == 0
    assert re.search(r"mCallState=0", sh("dumpsys telephony.registry").out)
    assert sh("cmd alarm set-timezone Asia/Tokyo; getprop persist.sys.timezone").out == "Asia/Tokyo\n"
    assert re.search(r"\ben-rUS\b", sh("am get-config").out)
    assert "TOTAL PSS" in sh("dumpsys meminfo org.simphone.launcher").out
    assert "DUMP OF SERVICE window:" in sh("dumpsys").out


def test_processes(phone: AndroidSystem, sh: Any) -> None:
    phone.activities.open("notes")
    rows = [line.split() for line in sh("ps -A").out.splitlines()]
    assert rows[0] == ["USER", "PID", "PPID", "VSZ", "RSS", "WCHAN", "ADDR", "S", "NAME"]
    assert all(len(row) == 9 for row in rows)
    pid = next(row[1] for row in rows if row[-1] == "org.simphone.notes")
    assert sh("pidof org.simphone.notes").out == f"{pid}\n"
    assert sh("pgrep -f simphone.notes").out == f"{pid}\n"
    assert "Operation not permitted" in sh(f"kill {pid}").err
    phone.uid = 0
    assert sh(f"kill -9 {pid}").status == 0
    assert phone.device.foreground() == "launcher"
    assert "No such process" in sh("kill 99999").err


def test_a_command_in_the_background_can_be_killed(sh: Any) -> None:
    assert sh("sleep 100 & kill $!; wait; echo over").out == "over\n"
    assert sh("sleep 100 > /dev/null 2>&1 & sleep 0; pkill -f nothing; echo $?").out == "1\n"
    assert sh("timeout 0.01 sleep 100; echo $?").out == "143\n"


def test_who_and_where(phone: AndroidSystem, sh: Any) -> None:
    assert sh("id").out.startswith("uid=2000(shell) gid=2000(shell) groups=")
    assert sh("whoami; su 0 id -u; su -c 'whoami'; id -u").out == "shell\n0\nroot\n2000\n"
    phone.uid = 0
    assert sh("id -un; echo $USER").out == "root\nroot\n"
    assert sh("uname -m; uname; which ls nope; command -v cd").out == "x86_64\nLinux\n/system/bin/ls\ncd\n"


def test_the_clock_is_the_phones(phone: AndroidSystem, sh: Any) -> None:
    assert sh("date").out == "Tue Jun  3 09:41:00 UTC 2025\n"
    assert (
        sh("date +%s; date '+%Y-%m-%d %H:%M:%S'; date -d @0 +%F").out
        == "1748943660\n2025-06-03 09:41:00\n1970-01-01\n"
    )
    for _ in range(60):
        phone.device.tap(0, 0)
    assert sh("date +%T").out == "09:43:00\n"
    assert "cannot set date" in sh("date 010100002000").err


def test_files(sh: Any) -> None:
    assert sh(
        "cd /sdcard/Download; mkdir -p a/b; echo hi > a/b/f; cp -r a c; mv c/b/f c/g; find . | sort"
    ).out == (".\n./a\n./a/b\n./a/b/f\n./c\n./c/b\n./c/g\n")
    listing = sh("ls -l /sdcard/Download/a/b/f").out
    assert re.fullmatch(r"-rw-r--r-- 1 shell sdcard_rw 3 2025-06-03 09:41 /sdcard/Download/a/b/f\n", listing)
    assert (
        sh("ls /sdcard/Download; ls -d /sdcard; ls -a /sdcard/Download/a").out == "a\nc\n/sdcard\n.\n..\nb\n"
    )
    assert sh("stat -c '%s %a %F %n' /sdcard/Download/c/g").out == "3 644 regular file /sdcard/Download/c/g\n"
    assert sh("rm /sdcard/Download/a").err == "rm: /sdcard/Download/a: Is a directory\n"
    assert sh("rm -r /sdcard/Download/a /sdcard/Download/c; rm -f /nope; ls /sdcard/Download").out == ""
    assert sh("rmdir /sdcard/Download/zz").err == "rmdir: /sdcard/Download/zz: No such file or directory\n"
    assert sh(
        "touch /sdcard/e; test -s /sdcard/e || echo empty; chmod u+x /sdcard/e; ls -l /sdcard/e"
    ).out.startswith("empty\n-rwxr--r--")
    assert sh(
        "ln -s /sdcard/e /data/local/tmp/l; readlink /data/local/tmp/l; realpath /data/local/tmp/l"
    ).out == ("/sdcard/e\n/storage/emulated/0/e\n")
    assert sh("ls /data/local").err == "ls: /data/local: Permission denied\n"
    assert sh(
        "dd if=/dev/zero of=/sdcard/z bs=1k count=3 2>/dev/null; wc -c < /sdcard/z; du -h /sdcard/z"
    ).out == ("3072\n3.0K\t/sdcard/z\n")
    assert sh("df /data").out.splitlines()[1].endswith("/data")


def test_the_log(phone: AndroidSystem, sh: Any) -> None:
    sh("logcat -c; log -t mine -p w 'a message'; am start -n org.simphone.notes/.MainActivity")
    assert sh("logcat -d -v brief mine:V '*:S'").out.splitlines()[1].startswith("W/mine    (")
    assert re.search(r"^06-03 09:41:00\.000 +\d+ +\d+ W mine    : a message$", sh("logcat -d").out, re.M)
    assert re.search(r"^1748943660\.000 ", sh("logcat -d -v epoch -s mine").out, re.M)
    started = sh("logcat -d -s ActivityManager | grep 'Start proc'").out
    assert f"Start proc {sh('pidof org.simphone.notes').out.strip()}:org.simphone.notes/u0a" in started
    assert sh("logcat -d -t 1 -v raw").out == "Displayed org.simphone.notes/.MainActivity for user 0: +97ms\n"
    assert sh("logcat -b crash -d").out == ""
    assert sh("logcat --clear; logcat -d").out == ""


def test_following_the_log(phone: AndroidSystem) -> None:
    """Entries come as they are written, through a pipe, until the reader has enough."""

    class Io:
        def __init__(self) -> None:
            self.got = bytearray()

        async def read(self, size: int) -> bytes:
            return b""

        async def out(self, data: bytes) -> None:
            self.got += data

        async def err(self, data: bytes) -> None: ...

    async def go() -> bytes:
        io = Io()
        phone.log.clear()
        task = asyncio.ensure_future(
            shell.run(phone, "logcat -v raw -s t | grep --line-buffered -m 2 hit", io)
        )
        for number in range(50):
            await asyncio.sleep(0)
            phone.log.write("I", "t", f"{'hit' if number % 20 == 19 else 'miss'} {number}")
        await asyncio.wait_for(task, 10)
        return bytes(io.got)

    assert asyncio.run(go()) == b"hit 19\nhit 39\n"


def test_the_phones_state_is_given_and_taken(phone: AndroidSystem, sh: Any) -> None:
    assert sh("cmd simphone dump").out == phone.device.phone.dump()
    wanted = new_state(1, 700)
    wanted["apps"]["settings"]["wifi"] = False
    assert sh("cmd simphone load", json.dumps(wanted).encode()).status == 0
    assert phone.state == wanted
    assert sh("settings get global wifi_on").out == "0\n"
    phone.files.write("/data/local/tmp/s.json", json.dumps(new_state()).encode())
    assert sh("cmd simphone load /data/local/tmp/s.json").status == 0
    assert phone.state == new_state()


@pytest.mark.parametrize("bad", [b"", b"[]", b"{}", b'{"front": 1}', b"\xff"])
def test_a_state_that_is_none_is_refused_and_changes_nothing(
    phone: AndroidSystem, sh: Any, bad: bytes
) -> None:
    before = phone.device.phone.dump()
    result = sh("cmd simphone load", bad)
    assert result.status == 1
    assert result.err.startswith("Error: the state ")
    broken = new_state() | {"front": "nowhere"}
    assert sh("cmd simphone load", json.dumps(broken).encode()).status == 1
    assert phone.device.phone.dump() == before


def test_programs_of_the_host_come_first(phone: AndroidSystem, sh: Any) -> None:
    async def answer(call: Any) -> int:
        await call.line(" ".join(call.args))
        return 7

    phone.programs["app_process"] = answer
    result = sh("CLASSPATH=/data/local/tmp/u2.jar app_process / com.wetest.uia2.Main -p 9008")
    assert (result.out, result.status) == ("/ com.wetest.uia2.Main -p 9008\n", 7)
