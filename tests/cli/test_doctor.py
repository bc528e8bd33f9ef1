"""`distrl doctor`: each line tells how it is and what to do; only what is needed can fail."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import sim_phones
from adb_programs import bundled, debian, server
from emulator_programs import program
from typer.testing import CliRunner

from distrl.cli.health import android, machine
from distrl.cli.health.machine import Need
from distrl.cli.main import app
from distrl.core.security import create_keys
from distrl.core.sockets import new_keypair
from distrl.simulator.emulator.sdk import make_avd, make_sdk
from distrl.workers.devices.sdk import Acceleration

runner = CliRunner()
NO_KVM = Acceleration(False, "there is no /dev/kvm.", "Switch on virtualisation.")
YES_KVM = Acceleration(True, "/dev/kvm answers with API version 12.")


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine without Android: no SDK, no AVDs, no KVM. Gives a port where no adb server is."""
    for variable in ("ANDROID_HOME", "ANDROID_SDK_ROOT", "ANDROID_USER_HOME", "ANDROID_EMULATOR_HOME"):
        monkeypatch.delenv(variable, raising=False)
    port = sim_phones.free_pair()
    monkeypatch.setenv("ANDROID_AVD_HOME", str(tmp_path / "avd"))
    monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(android, "probe_acceleration", lambda: NO_KVM)
    monkeypatch.chdir(tmp_path)
    return port


def doctor(*words: str) -> tuple[int, dict[str, dict[str, str]], str]:
    """Exit status, the findings by what they are about (of several the last one), standard error."""
    result = runner.invoke(app, ["doctor", "--json", *words])
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return result.exit_code, {one["about"]: one for one in found}, result.stderr


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return str(path)


def test_without_a_configuration_a_missing_emulator_is_no_failure(bare: int) -> None:
    status, found, _ = doctor()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", bare)) != 0, "no adb server was started"
    assert status == 0
    assert {found[about]["level"] for about in ("kvm", "sdk")} == {"warn"}
    assert found["python"]["level"] == "ok"


def test_a_configuration_with_emulators_needs_them(tmp_path: Path) -> None:
    text = "devices: {pool: [{kind: avd, avd: pixel, snapshot: base}]}\n"
    status, found, error = doctor("--worker", "--config", config(tmp_path, text))
    assert status == 1
    assert "must be fixed first" in error
    for about in ("kvm", "sdk", "avd pixel"):
        assert found[about]["level"] == "fail"
        assert found[about]["remedy"]


def test_with_all_there_only_the_snapshot_is_missing(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(android, "probe_acceleration", lambda: YES_KVM)
    sdk = make_sdk(tmp_path / "sdk")
    make_avd(sdk.store, "pixel")
    pool = f"{{kind: avd, avd: pixel, snapshot: base, sdk: {sdk.root}, avd_home: {sdk.store.home}}}"
    status, found, _ = doctor("--worker", "--config", config(tmp_path, f"devices: {{pool: [{pool}]}}\n"))
    assert {found[about]["level"] for about in ("kvm", "sdk", "emulator", "avd pixel")} == {"ok"}
    assert found["snapshot base"]["level"] == "fail"
    assert "distrl snapshot-avd create pixel base" in found["snapshot base"]["remedy"]
    assert status == 1


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """As if these packages were not installed."""
    version, find_spec = machine.metadata.version, machine.find_spec

    def version_of(name: str) -> str:
        if name in names:
            raise machine.metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(machine.metadata, "version", version_of)
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name in names else find_spec(name))


GYM = "env: {kind: gym, options: {id: Pendulum-v1}}\npolicy: {kind: gaussian}\nlearner: {algorithm: appo}\n"
ARM = "tasks: {suite: metaworld_ten}\nenv: {kind: metaworld}\nagent: {kind: arm}\npolicy: {kind: arm}\n"
LIBERO = ARM.replace("metaworld_ten", "two_screens").replace("metaworld", "libero")
PHONE = "tasks: {suite: two_screens, test: [test]}\nenv: {kind: two_screens}\n"
HUB = "policy: {kind: hub, model: nobody/some-model}\n"


@pytest.mark.parametrize(
    ("about", "package", "text", "is_for_workers"),
    [
        ("android_world", "android_world", "env: {kind: android_world}\n", True),
        ("control", "gymnasium", GYM, True),
        ("robot arms", "metaworld", ARM, True),
        ("libero", "libero", LIBERO, True),
        ("browser tasks", "miniwob", "env: {kind: browser}\n", True),
        ("vllm", "vllm", f"{PHONE}{HUB}inference: {{engine: vllm}}\n", False),
        ("deepspeed", "deepspeed", f"{PHONE}learner: {{engine: deepspeed}}\n", False),
        ("reports", "jinja2", PHONE, False),
        ("training", "torch", PHONE, False),
    ],
)
def test_packages_are_needed_by_what_asks_for_them(
    tmp_path: Path, monkeypatch, about: str, package: str, text: str, is_for_workers: bool
) -> None:
    without(monkeypatch, package)
    for given, level in (
        (text, "fail"),
        ("env: {kind: phone}\n", "fail" if about in ("reports", "training") else "warn"),
    ):
        found = doctor("--config", config(tmp_path, given))[1][about]
        assert (found["level"], package in found["said"], found["remedy"] != "") == (level, True, True)
    level = doctor("--worker", "--config", config(tmp_path, text))[1][about]["level"]
    assert level == ("fail" if is_for_workers else "warn")


def test_tasks_are_checked_as_the_run_checks_them(tmp_path: Path) -> None:
    missing = config(tmp_path, "tasks: {suite: no-such-file.jsonl}\n")
    status, found, _ = doctor("--config", missing)
    assert (status, found["tasks"]["level"]) == (1, "fail")
    assert "no-such-file.jsonl" in found["tasks"]["said"]
    assert "tasks" not in doctor("--worker", "--config", missing)[1], "workers are sent their tasks"
    _, found, _ = doctor("--config", config(tmp_path, PHONE), "--set", "tasks.validation=val")
    assert found["tasks"]["level"] == "ok"


@pytest.mark.parametrize(
    ("text", "about", "said"),
    [
        ("network: {keys_dir: keys, key_name: farm}\n", "network", "farm.key is missing"),
        ("network: {keys_dir: keys, control: 'tcp://no.invalid:1'}\n", "network", "no.invalid is unknown"),
        ("network: {control: 'tcp://10.0.0.1:1'}\n", "network", "needs keys"),
        ("worker: {rewards: {source: judge}}\njudge: {kind: vlm}\n", "judge", "judge.model is empty"),
    ],
)
def test_what_keeps_a_worker_from_starting_is_found(tmp_path: Path, text: str, about: str, said: str) -> None:
    create_keys(tmp_path / "keys", new_keypair(), new_keypair())
    status, found, _ = doctor("--worker", "--config", config(tmp_path, text))
    assert (status, found[about]["level"]) == (1, "fail")
    assert said in found[about]["said"]


def test_a_model_is_looked_for_where_it_is_loaded_from(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub" / "models--nobody--some-model" / "snapshots" / "abc"
    (snapshot.parents[1] / "refs").mkdir(parents=True)
    (snapshot.parents[1] / "refs" / "main").write_text("abc")
    directory = tmp_path / "model"

    def said(model: object) -> tuple[str, str]:
        text = f"{PHONE}policy: {{kind: hub, model: {model}}}\n"
        found = doctor("--config", config(tmp_path, text))[1]["model"]
        return found["level"], found["remedy"]

    monkeypatch.setattr("distrl.core.hub_files._unreachable", lambda model: "no network")
    assert said("nobody/some-model")[0] == said(directory)[0] == "fail"
    directory.mkdir()
    assert said(directory)[0] == "ok"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").touch()
    assert said("nobody/some-model")[0] == "ok"


def test_a_server_that_runs_tells_which_devices_are_missing(tmp_path: Path, monkeypatch, bare: int) -> None:
    adb = bundled() or debian()
    if adb is None:
        pytest.skip("needs adb, or the package adbutils, which brings one")
    with server(adb, tmp_path) as port:
        monkeypatch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        text = "devices: {pool: [{kind: phone, serials: [R5CT123]}, {kind: adb, serials: ['emulator-*']}]}\n"
        status, found, _ = doctor("--worker", "--config", config(tmp_path, text))
    assert found["adb server"]["level"] == "ok"
    assert f"at port {port}: no devices" in found["adb server"]["said"]
    assert found["R5CT123"] == {
        "about": "R5CT123",
        "level": "fail",
        "said": "Its state is missing.",
        "remedy": "Plug it in, start it, or accept its key.",
    }
    assert status == 1
    assert not [about for about in found if "*" in about]


def test_adb_programs_that_do_not_get_along_are_told(tmp_path: Path, monkeypatch) -> None:
    def adb(path: Path, protocol: int) -> Path:
        return program(
            path, f"echo 'Android Debug Bridge version 1.0.{protocol}'; echo 'Version 3{protocol}.0'"
        )

    monkeypatch.setattr(android, "adb_path", lambda: str(adb(tmp_path / "ours", 41)))
    adb(tmp_path / "bin" / "adb", 39)
    said = [(finding.is_good, finding.said) for finding in android.adb_programs(None)]
    assert [good for good, _ in said] == [True, True, False]
    assert "version 339.0" in said[1][1]
    assert "Their protocols differ (39, 41)" in said[2][1]


def test_an_address_in_use_is_found_where_it_is_bound(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port, free = taken.getsockname()[1], sim_phones.free_pair()
        path = config(
            tmp_path,
            f"network: {{control: 'tcp://127.0.0.1:{port}', weights: 'tcp://127.0.0.1:{free}',"
            " broadcast: 'tcp://127.0.0.1:*'}\n",
        )
        _, found, _ = doctor("--config", path)
        assert "port *" not in found
        assert (found[f"port {port}"]["level"], found[f"port {free}"]["level"]) == ("warn", "ok")
        assert f"port {port}" not in doctor("--config", path, "--worker")[1]


def test_a_disk_must_be_writable_and_have_room(tmp_path: Path, monkeypatch) -> None:
    said = machine.disk(tmp_path / "not" / "yet").said
    assert said.endswith(f"free for {tmp_path}/not/yet, which is writable.")
    (tmp_path / "file").touch()
    refused = machine.disk(tmp_path / "file" / "runs", Need.RUN)
    assert f"cannot be created: {tmp_path}/file is not a directory" in refused.said
    assert refused.level(frozenset({Need.RUN})) == "fail"
    monkeypatch.setattr(machine, "LOW_BYTES", 10**18)
    assert machine.disk(tmp_path).level(frozenset({Need.BASE})) == "fail"


@pytest.mark.parametrize(
    ("body", "said", "first"),
    [
        ("echo 'NVIDIA H200, 143771 MiB, 570.1'", "NVIDIA H200, 143", ("NVIDIA H200", 143771 * 2**20)),
        ("echo 'NVIDIA GB10, [N/A], 580.1'", "NVIDIA GB10", ("NVIDIA GB10", None)),
        ("echo 'No devices were found'; exit 6", "No devices were found", (None, None)),
    ],
)
def test_the_gpu_is_what_nvidia_smi_says(tmp_path: Path, body: str, said: str, first: tuple) -> None:
    program(tmp_path / "bin" / "nvidia-smi", body)
    assert said in machine.gpu().said
    assert machine.gpu().is_good == (first != (None, None))
    assert machine.first_gpu() == first
