"""`distrl snapshot-avd` on stand-in emulators: each verb, and each fault with its message and remedy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sim_phones
from emulator_programs import bystander
from emulator_world import HEIGHT, WIDTH, EmulatorWorld, emulator_world
from typer.testing import CliRunner, Result

from distrl.cli.main import app
from distrl.workers.devices import snapshots
from distrl.workers.devices.avd import read_ini
from distrl.workers.devices.processes import Registry
from distrl.workers.devices.snapshots import get_snapshot

runner = CliRunner()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorWorld]:
    with emulator_world(tmp_path_factory.mktemp("world")) as made:
        yield made


def run(*words: object) -> Result:
    return runner.invoke(app, ["snapshot-avd", *map(str, words)])


def port() -> tuple[str, int]:
    """An option: other tests' emulators are elsewhere."""
    return "--port", sim_phones.free_pair()


def error_of(result: Result) -> str:
    """The error's one line, which comes after the steps."""
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "Traceback" not in result.output
    return last


@pytest.fixture(scope="module")
def made(world: EmulatorWorld, tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The AVD "pixel" with the snapshot "base", made by the command, with both kinds of set-up."""
    world.avd("pixel")
    folder = tmp_path_factory.mktemp("setup")
    (folder / "setup.sh").write_text(
        "# sets the brightness\n"
        "echo brightness was; settings get system screen_brightness\n"
        "settings put system screen_brightness 77\n"
    )
    (folder / "setup.py").write_text(
        "import os, pathlib\n"
        "pathlib.Path(__file__).with_name('seen').write_text(os.environ['ANDROID_SERIAL'])\n"
    )
    host = f"{sys.executable} {folder / 'setup.py'}"
    arguments = ("create", "pixel", "base", "--setup", folder / "setup.sh", "--host-setup", host)
    serial_port = port()
    result = run(*arguments, *serial_port)
    assert result.exit_code == 0, result.output
    assert (folder / "seen").read_text() == f"emulator-{serial_port[1]}"
    return result


def test_create_boots_sets_up_saves_and_compares(made: Result, world: EmulatorWorld) -> None:
    assert f"Saved pixel/base: API 34, swiftshader_indirect, {WIDTH}x{HEIGHT}" in made.stdout
    for step in ("booting emulator-", "setup.sh on emulator-", "setup.py", "saving base", "and comparing"):
        assert step in made.stderr
    assert "brightness was" in made.stderr
    manifest = get_snapshot(world.sdk.store.get("pixel"), "base").manifest
    assert manifest is not None
    assert manifest.api_level == 34
    assert Registry().entries() == []


def test_list_shows_it_without_an_emulator(made: Result, world: EmulatorWorld) -> None:
    world.avd("empty")
    lines = run("list").stdout.splitlines()
    assert lines[0].split() == ["AVD", "SNAPSHOT", "SIZE", "SAVED", "API", "GPU", "SCREEN", "APPS"]
    assert ["empty", "-"] in [line.split() for line in lines]
    (line,) = (line.split() for line in lines if line.startswith("pixel "))
    assert line[1] == "base"
    assert f"{WIDTH}x{HEIGHT}" in line


def test_list_says_why_an_avd_cannot_be_used(made: Result, world: EmulatorWorld) -> None:
    ini = world.sdk.store.home / "broken.ini"
    ini.write_bytes(b"\0\xff\n")
    try:
        (line,) = (line for line in run("list").stdout.splitlines() if line.startswith("broken"))
        assert "names no directory" in line
        assert "names no directory" in error_of(run("clone", "broken", "copy"))
        assert run("delete", "broken", "--whole-avd").exit_code == 0
        assert not ini.exists()
    finally:
        ini.unlink(missing_ok=True)
    assert "letters, digits, dots, hyphens and underscores" in error_of(run("clone", "pixel", "my pixel"))


def test_verify_starts_it_and_finds_what_was_saved(made: Result) -> None:
    result = run("verify", "pixel", "base", *port())
    assert result.exit_code == 0, result.output
    assert "pixel/base matches its manifest: API 34" in result.stdout


def test_a_clone_has_the_snapshot_and_is_its_own(made: Result, world: EmulatorWorld) -> None:
    assert run("clone", "pixel", "pixel-2").exit_code == 0
    clone = world.sdk.store.get("pixel-2")
    hardware = read_ini(clone.snapshots / "base" / "hardware.ini")
    assert hardware["disk.dataPartition.path"].startswith(str(clone.directory))
    result = run("verify", "pixel-2", "base", *port())
    assert result.exit_code == 0, result.output
    taken = run("clone", "pixel", "pixel-2")
    assert taken.exit_code == 8
    assert "there is an AVD 'pixel-2' already. Choose another name" in error_of(taken)
    assert run("delete", "pixel-2", "--whole-avd").stdout == "Deleted the AVD pixel-2.\n"
    assert not world.sdk.store.exists("pixel-2")


def test_a_running_emulator_is_not_saved_before_it_has_booted(world: EmulatorWorld) -> None:
    avd = world.avd("slow", "hang_boot")
    with world.running(avd, is_booted=False):
        result = run("create", "slow", "one", "--boot-timeout", "3")
    assert result.exit_code == 8
    assert "not ready after 3 s" in error_of(result)
    assert not (avd.snapshots / "one").exists()


def test_a_running_emulator_is_saved_loaded_and_left_running(world: EmulatorWorld) -> None:
    avd = world.avd("runs")
    with world.running(avd) as emulator:
        assert run("save", "runs", "one").exit_code == 0
        assert run("load", "runs", "one").stdout == f"Loaded runs/one on {emulator.serial}.\n"
        assert run("verify", "runs", "one").exit_code == 0
        elsewhere = run("create", "runs", "two", *port())
        assert elsewhere.exit_code == 2
        assert f"from the AVD 'runs' already, at port {emulator.ports.console}" in error_of(elsewhere)
        assert run("create", "runs", "two", "--port", str(emulator.ports.console)).exit_code == 0
        assert run("delete", "runs", "one").exit_code == 0
        assert [path.name for path in avd.snapshots.iterdir()] == ["two"]
        emulator.check()
        locked = run("clone", "runs", "other")
        assert "the AVD 'runs' is in use by process" in error_of(locked)
        assert "is in use by process" in error_of(run("delete", "runs", "--whole-avd"))
    gone = run("save", "runs", "one")
    assert gone.exit_code == 8
    assert "no emulator runs from the AVD 'runs'. Start one (`emulator -avd runs`)" in error_of(gone)
    assert run("delete", "runs", "two").exit_code == 0


def test_an_emulator_that_a_run_works_with_is_left_alone(world: EmulatorWorld) -> None:
    avd = world.avd("busy")
    with world.running(avd, in_use=True):
        for verb in ("save", "create", "verify", "delete"):
            (avd.snapshots / "base").mkdir(parents=True, exist_ok=True)
            assert "is in use by process" in error_of(run(verb, "busy", "base"))
        assert (avd.snapshots / "base").is_dir()


def test_an_avd_can_be_made_from_an_image(world: EmulatorWorld) -> None:
    image = "system-images;android-34;google_apis;x86_64"
    result = run("create", "fresh", "base", "--image", image, "--no-verify", *port())
    assert result.exit_code == 0, result.output
    assert "making the AVD fresh" in result.stderr
    wrong = run("create", "fresher", "base", "--image", "system-images;android-99;x;y")
    assert "avdmanager could not create the AVD 'fresher'" in error_of(wrong)
    assert "sdkmanager 'system-images;android-99;x;y'" in error_of(wrong)


class TestFaults:
    """Each fault of the stand-in, and each of the real causes: exit status 8, one line, what to do."""

    @pytest.mark.parametrize(
        ("fault", "message", "remedy"),
        [
            ("low_disk", "Not enough disk space to run AVD", "Free some GB on the disk of the AVD"),
            ("crash:0", "the emulator was ended by signal 9", "See its log"),
        ],
    )
    def test_it_does_not_start(self, world: EmulatorWorld, fault: str, message: str, remedy: str) -> None:
        world.avd(f"fault-{fault.partition(':')[0]}", fault)
        result = run("create", f"fault-{fault.partition(':')[0]}", "base", *port())
        assert result.exit_code == 8
        assert message in error_of(result)
        assert remedy in error_of(result)
        assert "failed after" in result.stderr

    def test_it_does_not_boot(self, world: EmulatorWorld) -> None:
        world.avd("fault-offline", "offline")
        result = run("create", "fault-offline", "base", "--boot-timeout", "1", *port())
        assert result.exit_code == 8
        assert "not ready after 1 s, waiting for adb" in error_of(result)
        assert "See the emulator's log" in error_of(result)

    def test_a_snapshot_is_damaged(self, made: Result, world: EmulatorWorld) -> None:
        avd = world.sdk.store.get("pixel")
        ram = avd.snapshots / "base" / "ram.bin"
        whole = ram.read_bytes()
        ram.write_bytes(whole[:-1])
        try:
            result = run("verify", "pixel", "base", *port())
        finally:
            ram.write_bytes(whole)
        assert result.exit_code == 8
        assert "the snapshot 'base' does not load. Use the emulator version, GPU mode" in error_of(result)

    def test_a_snapshot_is_not_what_it_was(self, made: Result, world: EmulatorWorld) -> None:
        folder = world.sdk.store.get("pixel").snapshots / "base"
        path = folder / snapshots.FILE
        text = path.read_text()
        path.write_text(text.replace('"api_level": 34', '"api_level": 33'))
        try:
            result = run("verify", "pixel", "base", *port())
        finally:
            path.write_text(text)
        assert result.exit_code == 8
        assert "the API level is 34, the manifest says 33" in error_of(result)
        assert "make it again with `distrl snapshot-avd create pixel base`" in error_of(result)

    @pytest.mark.parametrize(
        ("verb", "remedy"), [("load", "Make it with"), ("verify", "Make it with"), ("delete", "Name one of")]
    )
    def test_a_snapshot_is_missing(self, made: Result, verb: str, remedy: str) -> None:
        result = run(verb, "pixel", "bsae")
        assert result.exit_code == 8
        assert f"the AVD 'pixel' has no snapshot 'bsae'; it has: base. {remedy}" in error_of(result)
        assert (
            run("delete", "pixel").exit_code == run("delete", "pixel", "base", "--whole-avd").exit_code == 2
        )

    def test_a_lock_is_held(self, made: Result, world: EmulatorWorld) -> None:
        lock = world.sdk.store.get("pixel").directory / "snapshot.lock"
        emulator = bystander()
        lock.write_text(str(emulator.pid))
        try:
            result = run("create", "pixel", "other", *port())
        finally:
            lock.unlink()
            emulator.communicate()
        assert result.exit_code == 8
        assert "is saving or loading a snapshot" in error_of(result)
        assert f"process {emulator.pid}" in error_of(result)

    def test_no_such_avd_and_no_sdk(self, made: Result, tmp_path: Path, monkeypatch) -> None:
        assert "Did you mean 'pixel'?" in error_of(run("create", "pixl", "base"))
        monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
        monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
        monkeypatch.setenv("PATH", str(tmp_path))
        lost = run("create", "pixel", "base")
        assert lost.exit_code == 7
        assert "no Android emulator was found" in error_of(lost)

    def test_a_set_up_that_fails_saves_nothing(
        self, made: Result, world: EmulatorWorld, tmp_path: Path
    ) -> None:
        avd = world.avd("unset")
        with world.running(avd):
            (tmp_path / "setup.sh").write_text("echo it broke; exit 5\n")
            result = run("create", "unset", "base", "--setup", tmp_path / "setup.sh")
            assert "setup.sh ended with exit status 5" in error_of(result)
            assert "it broke" in result.stderr
            result = run("create", "unset", "base", "--host-setup", f"{sys.executable} -c exit(3)")
            assert "ended with exit status 3" in error_of(result)
            result = run("create", "unset", "base", "--host-setup", "no-such-program-here")
            assert result.exit_code == 2
        assert not avd.snapshots.exists()
        missing = run("create", "unset", "base", "--setup", tmp_path / "none.sh")
        assert missing.exit_code == 2
