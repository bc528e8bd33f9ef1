"""The probe of KVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from distrl.workers.devices import sdk
from distrl.workers.devices.sdk import probe_acceleration


def test_without_the_device_the_firmware_is_named(tmp_path: Path) -> None:
    found = probe_acceleration(tmp_path / "kvm")
    assert not found.usable
    assert "there is no" in found.reason
    assert "firmware" in found.remedy


def test_a_file_that_is_not_kvm_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "kvm").touch()
    found = probe_acceleration(tmp_path / "kvm")
    assert not found.usable
    assert "does not answer its version" in found.reason


def test_a_user_who_may_not_open_it_is_told_the_group(tmp_path: Path, monkeypatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(sdk.os, "open", refuse)
    found = probe_acceleration()
    assert not found.usable
    assert "gpasswd -a $USER kvm" in found.remedy


@pytest.mark.parametrize(("version", "usable"), [(12, True), (11, False), (0, False)])
def test_the_version_decides(tmp_path: Path, monkeypatch, version: int, usable: bool) -> None:
    (tmp_path / "kvm").touch()
    monkeypatch.setattr(sdk.fcntl, "ioctl", lambda descriptor, request, value: version)
    found = probe_acceleration(tmp_path / "kvm")
    assert found.usable is usable
    assert str(version) in found.reason
    assert bool(found.remedy) is not usable
