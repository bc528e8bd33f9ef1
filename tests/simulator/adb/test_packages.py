"""Installing packages, with the APK that comes with uiautomator2: manifests, versions, what is refused."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.packages import InstallFailure, NotAnApk, read_manifest

NAME = "com.github.uiautomator"
pytestmark = pytest.mark.needs("uiautomator2")


@cache
def apk() -> bytes:
    """A real one, with an input method."""
    spec = find_spec("uiautomator2")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "assets" / "app-uiautomator.apk").read_bytes()


def with_manifest(manifest: bytes) -> bytes:
    """An APK that holds nothing else."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("AndroidManifest.xml", manifest)
    return out.getvalue()


def test_what_a_manifest_says() -> None:
    found = read_manifest(apk())
    assert found.package == NAME
    assert found.ime.endswith(".AdbKeyboard")
    assert found.permissions
    with pytest.raises(NotAnApk):
        read_manifest(with_manifest(b""))


@given(st.binary(max_size=200), st.integers(0, 4000))
def test_broken_apks_are_refused_and_never_crash(noise: bytes, at: int) -> None:
    manifest = bytearray(zipfile.ZipFile(io.BytesIO(apk())).read("AndroidManifest.xml"))
    manifest[at : at + len(noise)] = noise
    for candidate in (with_manifest(bytes(manifest)), with_manifest(bytes(manifest[:at])), apk()[:at], noise):
        try:
            read_manifest(candidate)
        except NotAnApk:
            continue


def test_a_package_whose_name_is_a_path_is_refused() -> None:
    manifest = zipfile.ZipFile(io.BytesIO(apk())).read("AndroidManifest.xml")
    for encoding in ("utf-16-le", "utf-8"):
        manifest = manifest.replace(NAME.encode(encoding), ("../.." + "x" * 18).encode(encoding))
    with pytest.raises(NotAnApk, match="no valid package"):
        read_manifest(with_manifest(manifest))


def test_it_is_installed_from_a_file_and_streamed_and_versions_only_go_up(
    system: AndroidSystem, sh: Any
) -> None:
    size = len(apk())
    system.files.write("/data/local/tmp/a.apk", apk())
    assert sh("pm install -r -t -g /data/local/tmp/a.apk; rm -f /data/local/tmp/a.apk").out == "Success\n"
    assert sh("pm list packages -3").out == f"package:com.android.adbkeyboard\npackage:{NAME}\n"
    assert sh(f"pm path {NAME}").out == f"package:/data/app/{NAME}/base.apk\n"
    system.packages.update(NAME, version_code=10**9)
    with pytest.raises(InstallFailure, match="INSTALL_FAILED_VERSION_DOWNGRADE"):
        system.installer.install(apk())
    assert system.installer.install(apk(), downgrade=True).version_code < 10**9
    assert sh(f"pm uninstall {NAME}").out == "Success\n"
    assert sh(f"cmd package 'install' -r -S {size}", apk() + b"rest").out == "Success\n"
    early = sh(f"cmd package install -S {size + 1}", apk())
    assert (early.status, early.err) == (1, "Error: the package ends too early\n")
    assert sh("cmd package install", apk()).status == 1


def test_the_phones_own_packages_stay(system: AndroidSystem) -> None:
    with pytest.raises(InstallFailure, match="system package"):
        system.installer.uninstall("org.simphone.notes")
    with pytest.raises(InstallFailure, match="not installed"):
        system.installer.uninstall("org.nothing")


def test_its_keyboard_types_any_text(system: AndroidSystem, sh: Any) -> None:
    """It is installed like any app, and answers its broadcasts."""
    assert sh(f"cmd package install -r -t -S {len(apk())}", apk()).out == "Success\n"
    assert sh(f"ime enable {NAME}/.AdbKeyboard; ime set {NAME}/.AdbKeyboard").status == 0
    system.activities.open("browser")
    system.change(lambda state: state.update(focus="browser.query"))
    typed = sh("am broadcast -a ADB_KEYBOARD_INPUT_TEXT --es text 8J+YgCDkvaDlpb0=").out
    assert typed.endswith('Broadcast completed: result=-1, data="success"\n')
    assert system.state["fields"]["browser.query"] == "😀 你好"
    assert 'data="success"' in sh("am broadcast -a ADB_KEYBOARD_CLEAR_TEXT").out
    assert system.state["fields"]["browser.query"] == ""
    sh("am broadcast -a ADB_KEYBOARD_HIDE")
    assert system.state["focus"] == ""
