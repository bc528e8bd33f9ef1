"""The phone's file tree: against a real directory, step by step, and its rules for links, modes and space."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

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


def _really(root: Path, step: tuple[object, ...]) -> object:
    """Does a step in a real directory."""
    verb, *rest = step
    path = f"{root}/{rest[0]}"
    if verb == "mkdir":
        os.mkdir(path)
    elif verb in ("write", "append"):
        with open(path, "wb" if verb == "write" else "ab") as file:
            file.write(rest[1])  # type: ignore[arg-type]
    elif verb == "remove":
        found = os.lstat(path)
        (os.rmdir if stat.S_ISDIR(found.st_mode) else os.unlink)(path)
    elif verb == "symlink":
        os.symlink(str(rest[1]), path)
    elif verb == "read":
        with open(path, "rb") as file:
            return file.read()
    elif verb == "list":
        return sorted(os.listdir(path))
    elif verb == "chmod":
        os.chmod(path, int(str(rest[1])))
    else:
        found = os.stat(path)
        return stat.S_IFMT(found.st_mode), None if stat.S_ISDIR(found.st_mode) else found.st_size
    return None


def _here(files: Files, step: tuple[object, ...]) -> object:
    verb, *rest = step
    path = f"/top/{rest[0]}"
    if verb == "mkdir":
        files.mkdir(path)
    elif verb in ("write", "append"):
        files.write(path, rest[1], append=verb == "append")  # type: ignore[arg-type]
    elif verb == "remove":
        files.remove(path)
    elif verb == "symlink":
        files.symlink(str(rest[1]), path)
    elif verb == "read":
        return files.read(path)
    elif verb == "list":
        return [name for name, _ in files.list(path)]
    elif verb == "chmod":
        files.chmod(path, int(str(rest[1])))
    else:
        found = files.stat(path)
        return stat.S_IFMT(found.mode), None if found.is_dir else found.size
    return None


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
def test_it_behaves_as_a_real_directory(steps: list[tuple[object, ...]]) -> None:
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
            assert _outcome(lambda s=step: _here(files, s)) == _outcome(lambda s=step: _really(root, s)), step
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


def test_a_loop_of_links_is_an_error() -> None:
    files = Files()
    files.symlink("/b", "/a")
    files.symlink("/a", "/b")
    with pytest.raises(OSError, match=r"[Ll]oop|levels"):
        files.read("/a")


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
