"""Files to and from a device: both versions of the protocol, refusals and reasons, whole files only."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_server_fake import FakeDevice, Peer, fake_server, runs
from adb_sync_fake import DIRECTORY, REGULAR, FakeFiles

from distrl.workers.devices.adb import AdbClient
from distrl.workers.devices.adb_wire import file_timeout_s
from distrl.workers.devices.errors import DeviceDisconnected, DeviceTimeout, OutputInvalid, SyncFailed

BOTH = pytest.mark.parametrize("files", ["v1", "v2"], indirect=True)
DATA = bytes(range(256)) * 1000


@pytest.fixture
def files(request: pytest.FixtureRequest) -> FakeFiles:
    fake = FakeFiles()
    fake.calls.append(request.param.encode() if hasattr(request, "param") else b"v2")
    return fake


@pytest.fixture
def client(files: FakeFiles) -> Iterator[AdbClient]:
    features = frozenset() if files.calls.pop() == b"v1" else frozenset({"stat_v2", "ls_v2", "sendrecv_v2"})
    with fake_server(phone=FakeDevice(features=features, serve=files.serve)) as server:
        yield AdbClient("phone", server.port, sleep=lambda seconds: None)


@BOTH
def test_a_file_comes_back_as_it_went(client: AdbClient, files: FakeFiles, tmp_path: Path) -> None:
    source, target = tmp_path / "a", tmp_path / "b"
    source.write_bytes(DATA)
    client.push(source, "/sdcard/x y", 0o600)
    assert files.files["/sdcard/x y"] == (0o100600, int(source.stat().st_mtime), DATA)
    assert client.pull("/sdcard/x y", target) == len(DATA)
    assert target.read_bytes() == DATA == client.read_file("/sdcard/x y")
    client.push(b"", "/sdcard/empty")
    assert client.read_file("/sdcard/empty") == b""
    second = {b"STA2", b"SND2", b"RCV2"} if b"STA2" in files.calls else {b"STAT", b"SEND", b"RECV"}
    assert set(files.calls) == second | {b"QUIT"}


@BOTH
def test_stat_and_list_tell_what_is_there(client: AdbClient, files: FakeFiles) -> None:
    files.files = {"/d": (DIRECTORY, 7, b""), "/d/é": (REGULAR, 9, b"abc")}
    assert client.stat("/d").is_dir
    assert not client.stat("/nothing").exists
    found = client.list("/d")
    assert list(found) == ["é"]
    assert (found["é"].mode, found["é"].size, found["é"].mtime) == (REGULAR, 3, 9)
    assert client.list("/nothing") == {}


@BOTH
@pytest.mark.parametrize("size", [10, 3_000_000])
def test_a_refused_push_says_why(client: AdbClient, files: FakeFiles, size: int) -> None:
    """Also when the device stops listening while much is still to be sent."""
    files.forbidden["/system/x"] = "couldn't create file: Read-only file system"
    with pytest.raises(
        SyncFailed, match=r"phone: cannot write /system/x: couldn't create.*Read-only"
    ) as caught:
        client.push(b"x" * size, "/system/x")
    assert caught.value.evidence == "couldn't create file: Read-only file system"


@BOTH
def test_what_is_not_there_cannot_be_pulled_and_leaves_nothing(client: AdbClient, tmp_path: Path) -> None:
    with pytest.raises(SyncFailed, match="cannot read /nothing: open failed: No such file"):
        client.pull("/nothing", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_pull_that_breaks_off_leaves_the_older_file(
    client: AdbClient, files: FakeFiles, tmp_path: Path
) -> None:
    files.files["/x"] = (REGULAR, 1, DATA)

    def hang_up(peer: Peer) -> None:
        raise ConnectionError

    files.hurdle = hang_up
    (tmp_path / "x").write_bytes(b"older")
    with pytest.raises(DeviceDisconnected):
        client.pull("/x", tmp_path / "x")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"older"]


def test_local_files_that_cannot_be_used_are_named(
    client: AdbClient, files: FakeFiles, tmp_path: Path
) -> None:
    files.files["/x"] = (REGULAR, 1, DATA)
    with pytest.raises(SyncFailed, match="No such file"):
        client.push(tmp_path / "none", "/y")
    with pytest.raises(SyncFailed, match=r"cannot write .*none/x: No such file"):
        client.pull("/x", tmp_path / "none" / "x")


def test_stat_says_what_the_device_forbids(client: AdbClient, files: FakeFiles) -> None:
    def deny(kind: bytes, path: str, peer: Peer) -> None:
        peer.send(kind + errno.EACCES.to_bytes(4, "little") + bytes(64))

    files._stat = deny  # type: ignore[method-assign]
    with pytest.raises(SyncFailed, match="cannot stat /data/secret: Permission denied"):
        client.stat("/data/secret")


def test_nonsense_from_the_device_is_noticed(client: AdbClient, files: FakeFiles) -> None:
    files.files["/x"] = (REGULAR, 1, DATA)
    files.hurdle = lambda peer: peer.send(b"WHAT")
    with pytest.raises(OutputInvalid, match="should send a piece of the file, got b'WHAT'"):
        client.read_file("/x")
    files.hurdle = lambda peer: peer.send(b"DATA\xff\xff\xff\xff")
    with pytest.raises(OutputInvalid, match="at most 65536 bytes, not 4294967295"):
        client.read_file("/x")


def test_a_file_has_a_deadline_of_its_size() -> None:
    assert file_timeout_s(0) == 30.0
    assert file_timeout_s(100_000_000) == 50.0


def test_a_transfer_that_hangs_ends(
    client: AdbClient, files: FakeFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.workers.devices.adb.file_timeout_s", lambda size: 0.3)
    files.files["/x"] = (REGULAR, 1, DATA)
    files.hurdle = lambda peer: peer.hang()
    with pytest.raises(DeviceTimeout, match=r"no answer to pull '/x' within 0\.3 s"):
        client.read_file("/x")


@pytest.mark.parametrize(
    ("said", "installed"), [("Success\n", True), ("Failure [INSTALL_FAILED_OLD]\n", False)]
)
def test_an_app_is_pushed_installed_and_its_file_removed(
    files: FakeFiles, tmp_path: Path, said: str, installed: bool
) -> None:
    (tmp_path / "a.apk").write_bytes(DATA)
    device = FakeDevice()

    def serve(service: str, peer: Peer) -> None:
        (files.serve if service == "sync:" else runs(lambda command: said))(service, peer)

    device.serve = serve
    with fake_server(phone=device) as server:
        client = AdbClient("phone", server.port)
        if installed:
            client.install(tmp_path / "a.apk")
        else:
            with pytest.raises(
                OutputInvalid, match=r"a\.apk was not installed: Failure \[INSTALL_FAILED_OLD"
            ):
                client.install(tmp_path / "a.apk")
    (path,) = files.files
    assert files.files[path][2] == DATA
    assert device.asked[-1] == f"shell,v2,raw:pm install -r -g {path}; rm -f {path}"
