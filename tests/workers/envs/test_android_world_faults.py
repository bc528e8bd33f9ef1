"""AndroidWorld through a double of the package: what fails, hangs, dies or is not there, and what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from android_world_bench import Emulators, counter, described, task
from waiting import until

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import ConfigError, EnvError, MissingDependency, TaskError
from distrl.core.types import Fault
from distrl.workers.envs.android_world import AndroidWorldEnv, WorldProcess

TAP = Action.tap(0.5, 0.5)
Make = Callable[..., AndroidWorldEnv]


@pytest.mark.parametrize(
    ("name", "message"),
    [("FailsToStart", "reset: RuntimeError: the app is not installed"), ("FailsToScore", "score: KeyError")],
)
def test_what_the_package_raises_is_a_fault_and_the_task_is_torn_down(
    make: Make, emulators: Emulators, name: str, message: str
) -> None:
    env = make()

    def play() -> None:
        env.reset(task(name, described(name)[0]["goal"]))
        env.evaluate()

    with pytest.raises(EnvError, match=message):
        play()
    env.close()
    assert emulators.events()[-2:] == [f"tear_down {name}", "close"]


def test_a_score_holds_though_tearing_down_fails_and_the_next_task_waits_for_a_clean_device(
    make: Make, emulators: Emulators
) -> None:
    (one,) = described("FailsToEnd")
    env = make()
    env.reset(task("FailsToEnd", one["goal"]))
    for _ in range(int(one["goal"].split()[3])):
        env.step(TAP)
    assert env.evaluate() == 1.0
    with pytest.raises(
        EnvError, match=r"the task before was not torn down: .*the snapshot is gone"
    ) as caught:
        env.reset(counter())
    assert caught.value.fault == Fault.DEVICE.value
    env.close()
    make().reset(counter())
    again = emulators.events()[emulators.events().index("close") :]
    assert again[3] == "tear_down FailsToEnd", "the next holder of the emulator tries once more"
    assert again.index("initialize CounterReach") > 3


def test_a_package_that_hangs_is_ended_and_its_task_torn_down_by_the_next(
    make: Make, emulators: Emulators
) -> None:
    env = make(deadlines={"step_s": 0.5})
    env.reset(counter())
    with pytest.raises(EnvError, match=r"did not finish step in 0\.5 s; its process was ended") as caught:
        env.step(Action(kind=ActionKind.OPEN_APP, text="hang"))
    assert caught.value.fault == Fault.DEVICE.value
    env.close()
    assert "tear_down CounterReach" not in emulators.events()
    make().reset(counter())
    assert emulators.events().count("tear_down CounterReach") == 1


def test_a_package_that_dies_says_what_it_printed(make: Make) -> None:
    env = make()
    env.reset(counter())
    with pytest.raises(EnvError, match=r"(?s)ended its process during step, exit status 3\..*about to crash"):
        env.step(Action(kind=ActionKind.OPEN_APP, text="crash"))


def test_what_the_device_fails_at_is_the_devices_fault(make: Make) -> None:
    env = make()
    env.reset(counter())
    with pytest.raises(EnvError, match="android_world failed in step: RuntimeError: emulator lost") as caught:
        env.step(Action(kind=ActionKind.OPEN_APP, text="lost"))
    assert caught.value.fault == Fault.DEVICE.value


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"params": {"task": "NoSuchTask"}}, "family 'android_world' has no task 'NoSuchTask'"),
        ({"params": {"task": "AskDay", "family": "windows"}}, "Unsupported family: windows"),
        ({"params": {}}, "names no AndroidWorld task in params.task"),
    ],
)
def test_a_task_that_the_package_does_not_have(make: Make, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        make().reset(task("AskDay", **changes))


def test_an_emulator_that_does_not_run_is_a_fault_and_the_claim_goes(
    make: Make, emulators: Emulators
) -> None:
    (emulators.folder / "running").unlink()
    with pytest.raises(
        EnvError, match="failed in attach: RuntimeError: no emulator at gRPC port 8554"
    ) as caught:
        make()
    assert caught.value.fault == Fault.DEVICE.value
    (emulators.folder / "running").touch()
    make()


def test_what_was_left_is_torn_down_when_the_emulator_is_there_again(
    make: Make, emulators: Emulators
) -> None:
    env = make()
    env.reset(counter())
    os.kill(env._process.pid, signal.SIGKILL)
    env.close()
    (emulators.folder / "running").unlink()
    with pytest.raises(EnvError, match="no emulator"):
        make()
    (emulators.folder / "running").touch()
    make()
    assert emulators.events().count("tear_down CounterReach") == 1


ABANDONED = """
import os, signal, sys
from android_world_bench import counter
from distrl.workers.envs.android_world import AndroidWorldEnv

env = AndroidWorldEnv(adb_path=sys.executable)
env.reset(counter())
print(env._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_that_is_killed_leaves_no_task_no_process_and_no_file(emulators: Emulators) -> None:
    temporary = emulators.folder / "tmp"
    temporary.mkdir()
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-c", ABANDONED],
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == -signal.SIGKILL, result.stderr
    child = int(result.stdout)
    until(lambda: emulators.events()[-2:] == ["tear_down CounterReach", "close"], "tearing down", 60.0)
    until(lambda: not Path(f"/proc/{child}").exists(), "the child's end", 60.0)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": []}, r"env\.options\.devices`"),
        ({"devices": [{"port": 1}]}, r"env\.options\.devices\.0\.port`: "),
        ({"devices": [{"console": 5554}, {"console": 5556}]}, "two devices share the grpc port 8554"),
        (
            {"devices": [{"console": 5554}, {"console": 5556, "grpc": 8555}]},
            "share the adb_server port 5037",
        ),
        ({"accessibility": "eyes"}, r"env\.options\.accessibility` is 'eyes'"),
        ({"deadlines": {"step": 3}}, r"env\.options\.deadlines\.step`: "),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AndroidWorldEnv(**options)


def test_what_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path))
    with pytest.raises(MissingDependency, match="no adb program /nowhere/adb"):
        AndroidWorldEnv(adb_path="/nowhere/adb")
    if find_spec("android_world") is not None:
        pytest.skip("needs a Python without android_world")
    process = WorldProcess()
    try:
        with pytest.raises(MissingDependency, match=r"needs the package android_world, .*requirements\.txt"):
            process.call("describe", 60.0, family="android_world", names=[], seeds=[0])
    finally:
        process.close(60.0)
