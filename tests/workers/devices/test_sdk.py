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


def test_what_the_user_names_comes_first(tmp_path: Path) -> None:
    environ = {"ANDROID_HOME": str(sdk(tmp_path / "home")), "PATH": ""}
    assert find_sdk(sdk(tmp_path / "named"), environ).root == tmp_path / "named"
    assert find_sdk(None, environ).found == "$ANDROID_HOME"
    with pytest.raises(MissingDependency, match="nothing-here"):
        find_sdk(tmp_path / "nothing-here", environ)
    lost = {"ANDROID_HOME": str(tmp_path), "ANDROID_SDK_ROOT": str(tmp_path / "home"), "PATH": ""}
    assert find_sdk(None, lost).root == tmp_path / "home"


def test_a_program_in_path_brings_its_sdk(tmp_path: Path) -> None:
    root = sdk(tmp_path / "sdk")
    adb = program(root / "platform-tools" / "adb", "true")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "emulator").symlink_to(root / "emulator" / "emulator")
    found = find_sdk(None, {"PATH": str(tmp_path / "bin")})
    assert (found.root, found.adb) == (root, adb)


def test_the_newest_command_line_tools_count(tmp_path: Path) -> None:
    root = sdk(tmp_path)
    assert emulator_version(find_sdk(root)) == "36.1.9.0"
    with pytest.raises(MissingDependency, match="sdkmanager 'cmdline-tools;latest'"):
        find_sdk(root).need_avdmanager()
    for version in ("9.0", "16.0", "11.0"):
        program(root / "cmdline-tools" / version / "bin" / "avdmanager", "true")
    newest = root / "cmdline-tools" / "16.0" / "bin" / "avdmanager"
    assert find_sdk(root).avdmanager == newest
    latest = program(root / "cmdline-tools" / "latest" / "bin" / "avdmanager", "true")
    assert find_sdk(root).need_avdmanager() == latest


def test_none_at_all_names_the_places(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match=r"\$ANDROID_HOME \(/no/sdk\).*none in PATH"):
        find_sdk(None, {"ANDROID_HOME": "/no/sdk", "PATH": str(tmp_path)})


@pytest.mark.parametrize("line", ["echo hello", "exit 1", "exec sleep 600"])
def test_what_says_no_version_is_no_emulator(tmp_path: Path, line: str) -> None:
    program(tmp_path / "emulator" / "emulator", line)
    with pytest.raises(MissingDependency):
        emulator_version(find_sdk(tmp_path), timeout_s=0.5 if "sleep" in line else 5.0)


def test_why_there_is_no_acceleration_and_what_to_do(tmp_path: Path, monkeypatch) -> None:
    found = probe_acceleration(tmp_path / "kvm")
    assert (found.usable, "there is no" in found.reason, "firmware" in found.remedy) == (False, True, True)
    (tmp_path / "kvm").touch()
    found = probe_acceleration(tmp_path / "kvm")
    assert (found.usable, "does not answer its version" in found.reason) == (False, True)

    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.os, "open", refuse)
    assert "gpasswd -a $USER kvm" in probe_acceleration().remedy


@pytest.mark.parametrize(("version", "usable"), [(12, True), (11, False), (0, False)])
def test_the_version_decides(tmp_path: Path, monkeypatch, version: int, usable: bool) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(module.fcntl, "ioctl", lambda descriptor, request, value: version)
    found = probe_acceleration(tmp_path / "kvm")
    assert found.usable is usable
    assert str(version) in found.reason
    assert bool(found.remedy) is not usable
