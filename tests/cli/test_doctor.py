"""`distrl doctor`: each line tells how it is and what to do; only what is needed can fail."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
import sim_phones
import yaml
from adb_programs import bundled, debian, server
from emulator_programs import program
from typer.testing import CliRunner

from distrl.cli.health import android, machine
from distrl.cli.health.machine import Need
from distrl.cli.main import app
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
    for about in ("kvm", "sdk", "avds"):
        assert found[about]["level"] == "warn"
        assert found[about]["remedy"]
    assert found["python"]["level"] == "ok"
    assert "nvidia-smi was not found" in found["gpu"]["said"]
    assert "none runs at port" in found["adb server"]["said"]


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
    assert {about: found[about]["level"] for about in ("kvm", "sdk", "emulator", "avd pixel")} == {
        "kvm": "ok",
        "sdk": "ok",
        "emulator": "ok",
        "avd pixel": "ok",
    }
    assert "36.1" in found["emulator"]["said"]
    assert found["snapshot base"]["level"] == "fail"
    assert "distrl snapshot-avd create pixel base" in found["snapshot base"]["remedy"]
    assert status == 1


def test_a_run_with_other_tasks_does_not_need_emulators(tmp_path: Path) -> None:
    _, found, _ = doctor("--worker", "--config", config(tmp_path, "env: {kind: browser}\n"))
    assert found["sdk"]["level"] == "warn"
    assert found["chromium"]["level"] == "fail"
    assert "DISTRL_CHROMIUM" in found["chromium"]["remedy"]


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
PHONE = "tasks: {suite: two_screens, test: [test]}\nenv: {kind: two_screens}\n"
HUB = "policy: {kind: hub, model: nobody/some-model}\n"


@pytest.mark.parametrize(
    ("about", "package", "text", "is_for_workers"),
    [
        ("android_world", "android_world", "env: {kind: android_world}\n", True),
        ("control", "gymnasium", GYM, True),
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


def test_without_workers_here_no_environment_is_needed_here(tmp_path: Path) -> None:
    far = config(tmp_path, "env: {kind: android_world}\nlocal: {workers: 0}\n")
    found = doctor("--config", far)[1]
    assert "env" not in found
    assert found["android_world"]["level"] == "warn"
    there = doctor("--worker", "--config", far)[1]
    assert (there["env"]["level"], there["android_world"]["level"]) == ("ok", "fail")


def test_tasks_are_checked_as_the_run_checks_them(tmp_path: Path) -> None:
    missing = config(tmp_path, "tasks: {suite: no-such-file.jsonl}\n")
    status, found, _ = doctor("--config", missing)
    assert (status, found["tasks"]["level"]) == (1, "fail")
    assert "no-such-file.jsonl" in found["tasks"]["said"]
    assert "tasks" not in doctor("--worker", "--config", missing)[1], "workers are sent their tasks"
    _, found, _ = doctor("--config", config(tmp_path, "tasks: {validation: no-such-split}\n"))
    assert "no-such-split" in found["tasks"]["said"]
    assert (
        doctor("--config", config(tmp_path, PHONE), "--set", "tasks.validation=val")[1]["tasks"]["level"]
        == "ok"
    )


def test_tasks_that_nobody_judges_are_warned_of(tmp_path: Path) -> None:
    entries = [
        {"id": "a", "goal": "Go", "params": {"check": {"foreground": "com.example"}}},
        {"id": "b", "goal": "Go on"},
    ]
    suite = tmp_path / "mixed.yaml"
    suite.write_text(yaml.safe_dump({"tasks": entries}))
    tasks = f"tasks={{suite: {suite}, train: test, validation: test}}"
    command = ["doctor", "--config", "phones", "--set", tasks, "--set", "worker.rewards.source=environment"]
    told = [line.split() for line in runner.invoke(app, command).stdout.splitlines()]
    told = [words for words in told if words[1:2] == ["tasks"]]
    assert [words[0] for words in told] == ["ok", "warn"]
    assert "1 of the 2 tasks" in " ".join(told[1])


def test_a_module_of_ones_own_that_is_broken_ends_no_check(tmp_path: Path) -> None:
    (tmp_path / "broken_env.py").write_text("def go(:\n")
    _, found, _ = doctor("--config", config(tmp_path, "env: {import_path: broken_env:Env}\n"))
    assert found["env"]["level"] == "fail"
    assert "SyntaxError" in found["env"]["said"]
    assert "disk" in found


def test_an_environment_that_is_not_known_is_told(tmp_path: Path) -> None:
    status, _, error = doctor("--worker", "--config", config(tmp_path, "env: {kind: phones}\n"))
    assert status == 2
    assert "`env.kind` is 'phones', which does not exist. Did you mean 'phone'?" in error
    text = "env: {kind: android_world, options: {adb_path: nowhere/adb}}\n"
    _, found, _ = doctor("--worker", "--config", config(tmp_path, text))
    assert "no adb program" in found["env"]["said"]


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

    assert said("nobody/some-model") == ("warn", "Run `hf download nobody/some-model` before.")
    assert said(directory)[0] == "fail"
    for place, model, before in ((directory, directory, "fail"), (snapshot, "nobody/some-model", "warn")):
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
        assert said(model)[0] == before, "its weights are missing"
        (place / "model.safetensors").touch()
        assert said(model)[0] == "ok"


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
        "said": "its state is missing.",
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
    assert "their protocols differ (39, 41)" in said[2][1]


def test_addresses_in_use_and_low_disks_are_told(tmp_path: Path, monkeypatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        used, free = machine.addresses(
            {"control": f"tcp://127.0.0.1:{port}", "weights": f"tcp://*:{sim_phones.free_pair()}"}
        )
        assert (used.is_good, free.is_good) == (False, True)
        assert list(machine.addresses({"act": "tcp://127.0.0.1:*", "broadcast": "ipc:///x"})) == []
    assert machine.disk("disk", tmp_path / "not" / "yet").said.endswith(
        f"free for {tmp_path}/not/yet, which is writable."
    )
    (tmp_path / "file").touch()
    refused = machine.disk("disk", tmp_path / "file" / "runs", Need.RUN)
    assert f"cannot be created: {tmp_path}/file is not a directory" in refused.said
    assert refused.level(frozenset({Need.RUN})) == "fail"
    monkeypatch.setattr(machine, "TOO_LOW_BYTES", 10**18)
    assert machine.disk("disk", tmp_path).level(frozenset({Need.BASE})) == "fail"


def test_the_gpu_is_what_nvidia_smi_says(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB, 570.1'")
    assert machine.gpu().said == "NVIDIA H200, 143771 MiB, 570.1."
    assert machine.first_gpu() == ("NVIDIA H200", 143771 * 2**20)
    program(tmp_path / "bin" / "nvidia-smi", "echo 'NVIDIA GB10, [N/A], 580.1'")
    assert machine.first_gpu() == ("NVIDIA GB10", None)
    program(tmp_path / "bin" / "nvidia-smi", "echo 'No devices were found'; exit 6")
    assert "No devices were found" in machine.gpu().said
    assert not machine.gpu().is_good
    assert machine.first_gpu() == (None, None)
