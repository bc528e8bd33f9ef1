"""The stand-in's gRPC: where it listens, who is let in, and android_env's own launcher with it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import adb_programs
import android_env_worlds as worlds
import pytest
import sim_phones

grpc = pytest.importorskip("grpc", reason="needs grpcio: not installed")
pytest.importorskip("google.protobuf", reason="needs protobuf: not installed")

from grpc_phone import connected

from distrl.simulator.adb.emulator_grpc import messages
from distrl.simulator.adb.process import PhoneSpec
from distrl.simulator.emulator.sdk import SimSdk
from distrl.simulator.emulator.startup import VERSION
from distrl.workers.devices.avd import Avd, read_ini
from distrl.workers.devices.emulator import directories, running

END_S = 120.0


def advertised(pid: int) -> dict[str, str]:
    """What the emulator with this process id announces of itself."""
    (file,) = [file for folder in directories() if (file := folder / f"pid_{pid}.ini").exists()]
    return read_ini(file)


def status_of(port: int, token: str = "") -> Any:
    """What the emulator says of itself."""

    async def ask() -> Any:
        async with connected(port, token) as client:
            return await client.call("getStatus")

    return asyncio.run(ask())


def test_it_listens_where_it_is_told_and_ends_by_a_call(run: Any, avd: Avd) -> None:
    port = sim_phones.free_pair()
    emulator = run("-avd", "pixel", "-grpc", str(port), "-no-snapshot-save")
    emulator.says("Boot completed in ")
    emulator.says(f"Started GRPC server at 127.0.0.1:{port}, security: Local, auth: none")
    found = advertised(emulator.process.pid)
    assert (found["grpc.port"], found.get("grpc.token")) == (str(port), None)
    status = status_of(port)
    assert (status.booted, status.version) == (True, VERSION)

    async def save_and_end() -> None:
        async with connected(port) as client:
            assert (await client.snapshot("SaveSnapshot", "base")).success
            await client.call("setVmState", messages.VmRunState(state=messages.VmRunState.SHUTDOWN))

    asyncio.run(save_and_end())
    assert emulator.process.wait(END_S) == 0
    assert (avd.snapshots / "base" / "ram.bin").is_file()


def test_a_token_is_asked_for_if_it_is_told_to_and_lies_where_others_find_it(run: Any) -> None:
    port = sim_phones.free_pair()
    emulator = run("-avd", "pixel", "-grpc", str(port), "-grpc-use-token")
    emulator.says("auth: +token")
    emulator.says("Boot completed in ")
    token = advertised(emulator.process.pid)["grpc.token"]
    assert len(token) >= 64
    assert status_of(port, token).version
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        status_of(port)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.needs("android_env", "immutabledict")
def test_android_envs_own_launcher_starts_it_works_with_it_and_ends_it(
    sdk: SimSdk, avd: Avd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from android_env import loader
    from android_env.components import adb_controller
    from android_env.components.simulators.emulator import emulator_simulator
    from android_env.proto import state_pb2

    program = adb_programs.debian() or adb_programs.bundled()
    if program is None:
        pytest.skip("needs adb on PATH, or adbutils with its adb: not installed")
    # It would take ports in 5555 to 5585, where every adb server that starts now looks for emulators.
    adb_port = sim_phones.free_pair() + 1
    monkeypatch.setattr(emulator_simulator, "_pick_adb_port", lambda: adb_port)
    monkeypatch.setattr(emulator_simulator, "_pick_emulator_grpc_port", sim_phones.free_pair)
    for variable in ("ANDROID_HOME", "ANDROID_ADB_SERVER_PORT"):  # it removes them from the environment
        monkeypatch.delenv(variable, raising=False)
    phone = PhoneSpec(adb_port - 1, adb_port)
    with adb_programs.server(program, tmp_path / "home") as server_port:
        # When a command fails it restarts the server; here that waits for the phone, which boots in no time.
        monkeypatch.setattr(
            adb_controller.AdbController,
            "_restart_server",
            lambda self, timeout=None: adb_programs.wait_listed(server_port, phone.serial),
        )
        adb = worlds.Adb(program, server_port, phone, tmp_path / "home")

        def load(snapshot: str) -> Any:
            config = worlds.configuration(
                (program, server_port),
                tmp_path,
                emulator_path=str(sdk.root / "emulator" / "emulator"),
                android_sdk_root=str(sdk.root),
                android_avd_home=str(sdk.store.home),
                avd_name="pixel",
                snapshot_name=snapshot,
                tmp_dir=str(tmp_path / "tmp"),
                restrict_network=True,
            )
            return loader.load(config)

        env = load("")
        try:
            assert (env.reset().observation["pixels"] == adb.pixels()).all()
            adb.out("shell", "settings", "put", "secure", "long_press_timeout", "600000")
            worlds.act(env, worlds.TOUCH, adb.find("Settings"))
            after = worlds.act(env, worlds.LIFT)
            assert adb.front() == "org.simphone.settings"
            answer = env.save_state(state_pb2.SaveStateRequest(args={"snapshot_name": "there"}))
            assert answer.status == state_pb2.SaveStateResponse.Status.OK, answer.error_message
            assert len(running()) == 1
        finally:
            env.close()
        assert running() == []
        assert (avd.snapshots / "there").is_dir()

        env = load("there")
        try:
            assert (env.reset().observation["pixels"] == after).all()
            assert adb.front() == "org.simphone.settings"
        finally:
            env.close()
        assert running() == []
