"""The phone's file tree: its links, where nothing can be written, and its space."""

from __future__ import annotations

import pytest

from distrl.simulator.adb import files as files_module
from distrl.simulator.adb.android import AndroidSystem
from distrl.simulator.adb.files import Files


def test_links_lead_where_android_has_them(phone_files: Files) -> None:
    phone_files.write("/sdcard/Download/a.txt", b"hi")
    assert phone_files.read("/storage/emulated/0/Download/a.txt") == b"hi"
    assert phone_files.lstat("/sdcard").is_link
    assert phone_files.stat("/sdcard/").is_dir
    assert phone_files.read("/storage/self/primary/Download/../Download/a.txt") == b"hi"


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/system/x", "Read-only file system"),
        ("/x", "Read-only file system"),
        ("/nope/x", "No such file or directory"),
        ("/sdcard/Download", "Is a directory"),
        ("/sdcard/" + "n" * 256, "File name too long"),
    ],
)
def test_where_nothing_can_be_written(phone_files: Files, path: str, error: str) -> None:
    with pytest.raises(OSError, match=error):
        phone_files.write(path, b"x")


def test_a_tree_may_be_as_deep_as_a_path_is_long(system: AndroidSystem) -> None:
    files, deep = system.files, "/sdcard" + "/d" * 1500
    files.mkdir(deep, parents=True)
    saved = system.dump()
    files.remove_tree("/sdcard/d")
    assert not files.exists("/sdcard/d")
    system.load(saved)
    assert files.stat(deep).is_dir
    files.symlink(deep, "/sdcard/link")
    with pytest.raises(OSError, match="File name too long"):
        files.mkdir("/sdcard/link" + "/e" * 1500, parents=True)


def test_space_is_bounded(phone_files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_BYTES", phone_files.used() + 10)
    phone_files.write("/sdcard/a", b"x" * 10)
    with pytest.raises(OSError, match="No space left"):
        phone_files.write("/sdcard/b", b"x")
    phone_files.remove("/sdcard/a")
    phone_files.write("/sdcard/c", b"x" * 10)
