"""Installing packages: manifests, versions, input methods, sessions, and what cannot be installed."""

from __future__ import annotations

import pytest
from apk_files import apk
from hypothesis import given
from hypothesis import strategies as st

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.packages import InstallFailure, NotAnApk, read_manifest


@pytest.mark.parametrize("utf8", [True, False])
def test_what_a_manifest_says(utf8: bool) -> None:
    found = read_manifest(apk(utf8=utf8))
    assert (found.package, found.version_name, found.version_code) == ("com.example.app", "3.0", 3)
    assert found.target_sdk == 30
    assert (found.activity, found.ime) == ("com.example.app.Main", ".Ime")
    assert found.permissions == ["android.permission.CAMERA", "android.permission.INTERNET"]


@given(st.binary(max_size=200), st.integers(0, 400))
def test_broken_apks_are_refused_and_never_crash(noise: bytes, at: int) -> None:
    data = bytearray(apk())
    data[at : at + len(noise)] = noise
    for candidate in (bytes(data), bytes(data[: at * 2]), noise):
        try:
            read_manifest(candidate)
        except NotAnApk:
            continue


def test_versions_only_go_up(system: AndroidSystem) -> None:
    uid = system.installer.install(apk(3)).uid
    newer = system.installer.install(apk(4))
    assert (newer.uid, newer.version_code) == (uid, 4)
    with pytest.raises(InstallFailure, match="INSTALL_FAILED_VERSION_DOWNGRADE"):
        system.installer.install(apk(3))
    assert system.installer.install(apk(3), downgrade=True).version_code == 3


def test_the_phones_own_packages_stay(system: AndroidSystem) -> None:
    with pytest.raises(InstallFailure, match="INSTALL_FAILED_UPDATE_INCOMPATIBLE"):
        system.installer.install(apk(9, package="org.simphone.notes"))
    with pytest.raises(InstallFailure, match="system package"):
        system.installer.uninstall("org.simphone.notes")
    with pytest.raises(InstallFailure, match="not installed"):
        system.installer.uninstall("org.nothing")
