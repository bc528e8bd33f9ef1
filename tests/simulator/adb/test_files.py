"""The phone's file tree: against a real directory, step by step, and its rules for links, modes and space."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from distrl.simulator.adb import files as files_module
from distrl.simulator.adb.files import Files

# No path and no link leads up: the steps are done in a real directory, too.
PATHS = st.lists(st.sampled_from(["a", "b", "c", "."]), min_size=1, max_size=4).map("/".join)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("mkdir"), PATHS),
        st.tuples(st.just("write"), PATHS, st.binary(max_size=4)),
        st.tuples(st.just("append"), PATHS, st.binary(max_size=4)),
        st.tuples(st.just("remove"), PATHS),
        st.tuples(st.just("symlink"), PATHS, PATHS),
        st.tuples(st.just("read"), PATHS),
        st.tuples(st.just("list"), PATHS),
        st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o600, 0o755])),
        st.tuples(st.just("stat"), PATHS),
    ),
    max_size=25,
)


def _put(path: str, data: bytes, mode: str = "wb") -> None:
    with open(path, mode) as file:
        file.write(data)


def _get(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _kind(mode: int, size: int) -> tuple[int, int | None]:
    return stat.S_IFMT(mode), None if stat.S_ISDIR(mode) else size


REALLY: dict[str, Callable[..., object]] = {
    "mkdir": os.mkdir,
    "write": _put,
    "append": lambda path, data: _put(path, data, "ab"),
    "remove": lambda path: (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path),
    "symlink": lambda path, target: os.symlink(target, path),
    "read": _get,
    "list": lambda path: sorted(os.listdir(path)),
    "chmod": os.chmod,
    "stat": lambda path: _kind(os.stat(path).st_mode, os.stat(path).st_size),
}
"""Each step in a real directory; and in a phone's files."""
HERE: dict[str, Callable[..., object]] = {
    "mkdir": Files.mkdir,
    "write": Files.write,
    "append": lambda files, path, data: files.write(path, data, append=True),
    "remove": Files.remove,
    "symlink": lambda files, path, target: files.symlink(target, path),
    "read": Files.read,
    "list": lambda files, path: [name for name, _ in files.list(path)],
    "chmod": Files.chmod,
    "stat": lambda files, path: _kind(files.stat(path).mode, files.stat(path).size),
}


def _outcome(work: Callable[[], object]) -> tuple[object, str]:
    try:
        return work(), ""
    except OSError as error:
        return None, "failed" if error.errno else "?"


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX: compares with its file system")
@given(STEPS)
@example([("symlink", "a", "b/."), ("write", "a", b"")])
@example([("symlink", "a", "b/."), ("write", "b", b""), ("read", "a")])
@settings(max_examples=150, deadline=None)
def test_it_behaves_as_a_real_directory(steps: list[tuple[Any, ...]]) -> None:
    """The same steps succeed and fail, and the same tree remains."""
    files = Files()
    files.mkdir("/top")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "top"
        root.mkdir()
        for step in steps:
            # Removing and renaming "." is another error on each system.
            last = [part.split("/")[-1] for part in step[1:] if isinstance(part, str)]
            if step[0] == "remove" and "." in last:
                continue
            verb, path, *rest = step
            here = _outcome(lambda: HERE[verb](files, f"/top/{path}", *rest))  # noqa: B023 - called at once
            assert here == _outcome(lambda: REALLY[verb](f"{root}/{path}", *rest)), step  # noqa: B023
        found = {path[4:]: node for path, node in files.tree("/top")}
        real = {
            str(path)[len(str(root)) :]: path.lstat().st_mode & stat.S_IFMT(0o170000)
            for path in root.rglob("*")
        }
        assert {path: stat.S_IFMT(node.mode) for path, node in found.items()} == real
    assert files.used() == sum(len(node.data) for _, node in files.tree("/"))


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


def test_space_is_bounded(phone_files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_BYTES", phone_files.used() + 10)
    phone_files.write("/sdcard/a", b"x" * 10)
    with pytest.raises(OSError, match="No space left"):
        phone_files.write("/sdcard/b", b"x")
    phone_files.remove("/sdcard/a")
    phone_files.write("/sdcard/c", b"x" * 10)
