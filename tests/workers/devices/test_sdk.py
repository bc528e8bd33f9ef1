"""Finding the SDK's programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulator_programs import program

from distrl.core.errors import MissingDependency
from distrl.workers.devices import sdk as module
from distrl.workers.devices.sdk import emulator_version, find_sdk, probe_acceleration


def sdk(root: Path) -> Path:
    program(root / "emulator" / "emulator", "echo 'INFO | Android emulator version 36.1.9.0 (build_id 1)'")
    return root


def test_a_named_one_comes_first_then_the_environment_then_path(tmp_path: Path) -> None:
    environ = {"ANDROID_HOME": str(sdk(tmp_path / "home")), "PATH": ""}
    assert find_sdk(sdk(tmp_path / "named"), environ).root == tmp_path / "named"
    assert find_sdk(None, environ).found == "$ANDROID_HOME"
    lost = {"ANDROID_HOME": str(tmp_path), "ANDROID_SDK_ROOT": str(tmp_path / "home"), "PATH": ""}
    assert find_sdk(None, lost).root == tmp_path / "home"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "emulator").symlink_to(tmp_path / "home" / "emulator" / "emulator")
    adb = program(tmp_path / "home" / "platform-tools" / "adb", "true")
    found = find_sdk(None, {"PATH": str(tmp_path / "bin")})
    assert (found.root, found.adb, found.found) == (tmp_path / "home", adb, "PATH")
    with pytest.raises(MissingDependency, match="nothing-here"):
        find_sdk(tmp_path / "nothing-here", environ)
    with pytest.raises(MissingDependency, match=r"\$ANDROID_HOME \(/no/sdk\).*none in PATH"):
        find_sdk(None, {"ANDROID_HOME": "/no/sdk", "PATH": str(tmp_path)})


def test_the_newest_command_line_tools_count(tmp_path: Path) -> None:
    root = sdk(tmp_path)
    assert emulator_version(find_sdk(root)) == "36.1.9.0"
    with pytest.raises(MissingDependency, match="sdkmanager 'cmdline-tools;latest'"):
        find_sdk(root).need_avdmanager()
    for version in ("9.0", "16.0", "latest"):
        newest = program(root / "cmdline-tools" / version / "bin" / "avdmanager", "true")
        if version != "9.0":
            assert find_sdk(root).need_avdmanager() == newest


@pytest.mark.parametrize("line", ["echo hello", "exec sleep 600"])
def test_what_says_no_version_is_no_emulator(tmp_path: Path, line: str) -> None:
    program(tmp_path / "emulator" / "emulator", line)
    with pytest.raises(MissingDependency):
        emulator_version(find_sdk(tmp_path), timeout_s=0.5 if "sleep" in line else 5.0)


def test_why_there_is_no_acceleration_and_what_to_do(tmp_path: Path, monkeypatch) -> None:
    found = probe_acceleration(tmp_path / "kvm")
    assert (found.usable, "there is no" in found.reason, "firmware" in found.remedy) == (False, True, True)
    (tmp_path / "kvm").touch()
    found = probe_acceleration(tmp_path / "kvm")  # a container may have a file of this name
    assert (found.usable, "cannot be used" in found.reason) == (False, True)
    monkeypatch.setattr(module.fcntl, "ioctl", lambda *arguments: 12)
    assert probe_acceleration(tmp_path / "kvm").usable

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    assert "gpasswd -a $USER kvm" in probe_acceleration().remedy
