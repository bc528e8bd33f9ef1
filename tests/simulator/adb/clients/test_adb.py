"""The adb programs themselves, Debian's and the one that adbutils brings, with a simulated phone."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import adb_programs
import pytest
import sim_phones
from adb_programs import wait_listed
from client_world import World
from PIL import Image
from sim_phones import Console
from waiting import until

TMP = "/data/local/tmp"
DEADLINE_S = 30.0


def test_the_phone_is_listed_with_its_product(world: World) -> None:
    listed = world.run("devices", "-l", on_phone=False).stdout.decode()
    (line,) = [line for line in listed.splitlines() if line.startswith(world.phone.serial)]
    assert " device " in line
    assert " model:" in line
    assert world.out("get-state").strip() == "device"


def test_a_shell_has_two_outputs_and_an_exit_status(world: World) -> None:
    result = world.run("shell", "echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.returncode) == (b"out\n", b"err\n", 3)


def test_a_shell_reads_what_is_piped_in(world: World) -> None:
    data = b"line %d\n" * 5000
    assert world.run("shell", "cat", stdin=data).stdout == data
    assert world.run("exec-in", f"cat > {TMP}/in", stdin=data).returncode == 0
    until(lambda: world.run("exec-out", f"cat {TMP}/in").stdout == data, "the file")


def test_an_interactive_shell_runs_what_is_typed(world: World) -> None:
    result = world.run("shell", stdin=b"echo one\necho t''wo\nexit 4\n")
    assert (result.stdout, result.returncode) == (b"one\ntwo\n", 4)
    typed = world.run("shell", "-t", "-t", stdin=b"echo t''wo\nexit 4\n")
    assert b"two\r\n" in typed.stdout
    assert typed.returncode == 4


def test_keys_of_a_real_terminal_end_commands_and_input(world: World) -> None:
    with adb_on_a_terminal(world) as (process, say, until_seen):
        until_seen("$ ")
        for command in ("sleep 600", "cat", "logcat -s nothing"):
            say(f"echo r''un; {command}\n")
            until_seen("run\r\n")
            say("\x03")
            until_seen("$ ")
            say("echo stat''us $?\n")
            until_seen("status 130")
        say("cat; echo af''ter\n\x04")
        until_seen("after\r\n")
        until_seen("$ ")
        say("sh -c 'exit 5'\n")
        until_seen("$ ")
        say("\x04")
        assert process.wait(DEADLINE_S) == 5


@contextlib.contextmanager
def adb_on_a_terminal(
    world: World,
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[str], object], Callable[[str], None]]]:
    """`adb shell` on a terminal of its own: the process, how to type, and how to wait for output."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [world.program, "-P", str(world.server_port), "-s", world.phone.serial, "shell"],
        stdin=its,
        stdout=its,
        stderr=its,
        env={**adb_programs.environment(world.server_port, world.home), "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(its)
    seen = ""

    def until_seen(text: str) -> None:
        nonlocal seen
        while text not in seen:
            assert select.select([ours], [], [], DEADLINE_S)[0], f"no {text!r} in {seen!r}"
            seen += os.read(ours, 4096).decode()
        seen = seen[seen.index(text) + len(text) :]

    try:
        yield process, lambda keys: os.write(ours, keys.encode()), until_seen
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_screenshot_is_a_png_of_the_screen(world: World) -> None:
    picture = Image.open(io.BytesIO(world.run("exec-out", "screencap", "-p").stdout))
    assert picture.size == (world.phone.width, world.phone.height)
    assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 10


def test_files_go_there_and_back_with_times_and_folders(world: World, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "a b.txt").write_bytes(b"text")
    (tree / "sub" / "big").write_bytes(os.urandom(1_000_000))
    os.utime(tree / "a b.txt", (1_500_000_000, 1_500_000_000))
    world.out("push", str(tree), f"{TMP}/")
    assert world.out("shell", f"ls {TMP}/tree").split("\n")[:2] == ["a b.txt", "sub"]
    back = tmp_path / "back"
    world.out("pull", "-a", f"{TMP}/tree", str(back))
    assert (back / "sub" / "big").read_bytes() == (tree / "sub" / "big").read_bytes()
    assert (back / "a b.txt").stat().st_mtime == 1_500_000_000


def test_a_push_that_fails_says_why(world: World, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x")
    result = world.run("push", str(tmp_path / "f"), "/system/f")
    assert result.returncode != 0
    assert b"Read-only file system" in result.stderr + result.stdout
    result = world.run("pull", "/nowhere", str(tmp_path / "g"))
    assert result.returncode != 0
    assert b"No such file or directory" in result.stderr + result.stdout


def test_reverse_reaches_a_port_of_this_machine_and_forward_one_of_the_phone(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_greet_once, args=(server,), daemon=True).start()
        world.out("reverse", "tcp:6100", f"tcp:{server.getsockname()[1]}")
        assert "tcp:6100" in world.out("reverse", "--list")
        port = int(world.out("forward", "tcp:0", "tcp:6100"))
        with socket.create_connection(("127.0.0.1", port), 30) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello to you"
    world.out("reverse", "--remove-all")
    world.out("forward", "--remove-all")
    assert world.out("reverse", "--list").strip() == ""


def _greet_once(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.sendall(connection.recv(100) + b" to you")


def test_an_app_is_installed_by_streaming(world: World, tmp_path: Path) -> None:
    spec = find_spec("uiautomator2")
    if spec is None or spec.origin is None:
        pytest.skip("needs the APK that comes with uiautomator2: not installed")
    apk = Path(spec.origin).parent / "assets" / "app-uiautomator.apk"
    assert "Success" in world.out("install", str(apk))
    assert "package:com.github.uiautomator\n" in world.out("shell", "pm list packages")
    assert "Success" in world.out("uninstall", "com.github.uiautomator")
    (tmp_path / "no.apk").write_bytes(b"no APK")
    assert world.run("install", str(tmp_path / "no.apk")).returncode != 0


def test_the_emulator_s_console_answers_adb(world: World) -> None:
    assert "distrl" in world.out("emu", "avd", "name")
    world.out("emu", "avd", "snapshot", "save", "clean")
    assert "clean" in world.out("emu", "avd", "snapshot", "list")
    assert world.out("emu", "avd", "snapshot", "load", "clean").strip() == "OK"
    # The old connection is gone: what answers is the next one.
    until(lambda: world.run("shell", "true").returncode == 0, "the phone after the load")
    assert "KO" in world.run("emu", "avd", "snapshot", "load", "none").stdout.decode()


def test_root_and_reboot_bring_the_phone_back(world: World) -> None:
    world.out("root")
    world.out("wait-for-device")
    until(lambda: world.run("shell", "id -u").stdout == b"0\n", "root")
    world.out("shell", f"echo kept > {TMP}/kept")
    world.out("reboot")
    world.out("wait-for-device")
    until(lambda: world.run("shell", f"cat {TMP}/kept").stdout == b"kept\n", "the phone after its reboot")


def test_faults_show_as_adb_shows_them(world: World) -> None:
    serial = world.phone.serial
    world.out("emu", "sim", "fault", "offline")
    wait_listed(world.server_port, serial, "offline")
    world.out("emu", "sim", "fault", "unauthorized")
    wait_listed(world.server_port, serial, "unauthorized")
    world.out("emu", "sim", "fault", "none")
    wait_listed(world.server_port, serial)
    world.out("shell", f"echo lost > {TMP}/volatile")
    world.out("emu", "sim", "fault", "crash", "0.5")
    missing = b"No such file or directory"
    until(lambda: missing in world.run("shell", f"cat {TMP}/volatile").stderr, "the phone after its crash")


def test_a_blank_screen_is_black(world: World) -> None:
    world.out("emu", "sim", "fault", "blank")
    data = world.run("exec-out", "screencap", "-p").stdout
    world.out("emu", "sim", "fault", "none")
    assert Image.open(io.BytesIO(data)).convert("RGB").getextrema() == ((0, 0), (0, 0), (0, 0))


def test_the_phone_is_announced_again_when_the_server_comes_back(tmp_path: Path) -> None:
    program = adb_programs.bundled() or adb_programs.debian()
    if program is None:
        pytest.skip("needs an adb program")
    port = adb_programs.free_port()
    with sim_phones.phones(2, port) as phones:
        for _ in range(2):
            with adb_programs.server(program, tmp_path, port):
                for phone in phones:
                    wait_listed(port, phone.serial)
        assert Console(phones[0].console_port).say("avd name").startswith("distrl")
