"""The package android_env with a simulated phone: load, reset, step, and states saved and loaded by gRPC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import adb_programs
import android_env_worlds as worlds
import numpy as np
import pytest
import sim_phones

for _package in ("grpc", "immutabledict", "android_env"):
    pytest.importorskip(_package, reason=f"needs {_package}: not installed")

from android_env import loader
from android_env.components import adb_controller
from android_env.proto import state_pb2

WIDTH, HEIGHT = 270, 600
Status = state_pb2.LoadStateResponse.Status


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[worlds.Adb, Any]]:
    """A phone behind an adb server of its own, and the environment on it."""
    program = adb_programs.debian() or adb_programs.bundled()
    if program is None:
        pytest.skip("needs adb on PATH, or adbutils with its adb: not installed")
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adb_controller.AdbController, "_restart_server", _no_restart)
        for variable in ("ANDROID_HOME", "ANDROID_ADB_SERVER_PORT"):  # it removes them from the environment
            patch.delenv(variable, raising=False)
        with (
            adb_programs.server(program, home) as server_port,
            sim_phones.phones(1, server_port, WIDTH, HEIGHT, grpc=True) as (phone,),
        ):
            adb_programs.wait_listed(server_port, phone.serial)
            adb = worlds.Adb(program, server_port, phone, home)
            # However slow this machine: a touch is never a long press.
            adb.out("shell", "settings", "put", "secure", "long_press_timeout", "600000")
            config = worlds.configuration(
                (program, server_port),
                home,
                emulator_console_port=phone.console_port,
                adb_port=phone.adb_port,
                grpc_port=phone.grpc_port,
            )
            env = loader.load(config)
            try:
                yield adb, env
            finally:
                env.close()


def _no_restart(self: object, timeout: float | None = None) -> None:
    raise AssertionError("an adb command failed: android_env would restart the adb server")


def open_settings(adb: worlds.Adb, env: Any) -> np.ndarray:
    """Taps Settings as an agent does. Returns what is observed."""
    adb.out("shell", "input", "keyevent", "HOME")
    env.reset()
    worlds.act(env, worlds.TOUCH, adb.find("Settings"))
    worlds.act(env, worlds.REPEAT, (0.9, 0.9))
    assert adb.front() == "org.simphone.launcher"
    return worlds.act(env, worlds.LIFT)


def test_the_screen_is_observed_and_touches_and_keys_arrive(world: tuple[worlds.Adb, Any]) -> None:
    adb, env = world
    assert env.observation_spec()["pixels"].shape == (HEIGHT, WIDTH, 3)
    first = env.reset()
    assert first.first()
    before = first.observation["pixels"]
    assert (before == adb.pixels()).all()
    assert first.observation["orientation"].tolist() == [1, 0, 0, 0]
    after = open_settings(adb, env)
    assert adb.front() == "org.simphone.settings"
    assert (after == adb.pixels()).all()
    assert (after != before).any()
    worlds.act(env, worlds.KEYPRESS, keycode=9)  # X's code of Escape, which goes back
    assert adb.front() == "org.simphone.launcher"


def test_a_state_comes_back_whole(world: tuple[worlds.Adb, Any]) -> None:
    adb, env = world
    saved = open_settings(adb, env)
    adb.out("shell", "echo before > /sdcard/note")
    request = {"args": {"snapshot_name": "in_settings"}}
    answer = env.save_state(state_pb2.SaveStateRequest(**request))
    assert answer.status == state_pb2.SaveStateResponse.Status.OK, answer.error_message

    adb.out("shell", "echo after > /sdcard/note; input keyevent HOME")
    assert (worlds.act(env, worlds.REPEAT) != saved).any()
    answer = env.load_state(state_pb2.LoadStateRequest(**request))
    assert answer.status == Status.OK, answer.error_message
    adb.wait()
    assert adb.out("shell", "cat /sdcard/note") == "before\n"
    assert adb.front() == "org.simphone.settings"
    assert (worlds.act(env, worlds.REPEAT) == saved).all()

    again = env.save_state(state_pb2.SaveStateRequest(**request))
    assert again.status == state_pb2.SaveStateResponse.Status.ERROR
    assert "already exists" in again.error_message
    missing = env.load_state(state_pb2.LoadStateRequest(args={"snapshot_name": "none"}))
    assert missing.status == Status.NOT_FOUND
