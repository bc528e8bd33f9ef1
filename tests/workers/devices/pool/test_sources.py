"""Pools made from a configuration: members of each kind, mistakes, and an evaluation on simulated phones."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, MissingDependency
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.progress import LineProgress
from distrl.simulator.emulator.sdk import make_avd, make_sdk
from distrl.workers.devices.health import SlotState
from distrl.workers.devices.sources import make_pool, postmortem_folder

DEADLINE_S = 20.0


def config(*pool: dict[str, object], **sections: object) -> Config:
    return Config.model_validate({"devices": {"adb_server_port": 5901, "pool": list(pool)}, **sections})


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_STATE_DIR", str(tmp_path / "state"))


def test_simulated_phones_are_ready_at_once() -> None:
    with make_pool(config({"kind": "sim", "count": 2, "width": 720, "height": 1600}), 8) as pool:
        with pool.acquire(DEADLINE_S) as one, pool.acquire(DEADLINE_S) as two:
            assert (one.kind, one.device.size) == ("sim", (720, 1600))
            assert one.id != two.id
        assert pool.capacity == 2


def test_no_more_is_opened_than_is_wanted() -> None:
    pool = make_pool(config({"kind": "sim", "count": 5}), 2)
    with pool, pool.acquire(DEADLINE_S), pool.acquire(DEADLINE_S):
        assert pool.capacity == 2
        assert sorted(pool.states().values()).count(SlotState.ABSENT) == 3


def test_emulators_are_named_after_their_avd(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    make_avd(sdk.store, "pixel")
    part = {"kind": "avd", "avd": "pixel", "count": 2, "sdk": str(sdk.root), "avd_home": str(sdk.store.home)}
    pool = make_pool(config(part, {"kind": "adb", "serials": ["host:5555"]}), 8)
    assert set(pool.states()) == {"pixel-distrl-0", "pixel-distrl-1", "host:5555"}


@pytest.mark.parametrize(
    ("serial", "is_address"),
    [
        ("127.0.0.1:5555", True),
        ("[::1]:5555", True),
        ("fe80::1", True),
        ("127.0.0.1:55*", False),
        ("10.0.0.?:5555", False),
        ("10.0.0.[12]:5555", False),
        ("[ab]*:5555", False),
    ],
)
def test_addresses_are_connected_to_and_patterns_of_them_wait_for_what_fits(
    serial: str, is_address: bool
) -> None:
    pool = make_pool(config({"kind": "adb", "serials": [serial]}), 8)
    assert list(pool.states()) == ([serial] if is_address else [])


@pytest.mark.parametrize("named", [True, False])
def test_a_missing_sdk_is_to_be_named_in_the_configuration(tmp_path: Path, monkeypatch, named: bool) -> None:
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    part = {"kind": "avd", "avd": "pixel"} | ({"sdk": str(tmp_path)} if named else {})
    with pytest.raises(MissingDependency, match=r"name it by `sdk` of its entry in devices\.pool") as caught:
        make_pool(config(part), 8)
    assert "--sdk" not in str(caught.value)


def test_an_avd_that_is_not_there_is_told_before_anything_starts(tmp_path: Path) -> None:
    sdk = make_sdk(tmp_path / "sdk")
    make_avd(sdk.store, "pixel")
    part = {"kind": "avd", "avd": "pixl", "sdk": str(sdk.root), "avd_home": str(sdk.store.home)}
    with pytest.raises(ConfigError, match="Did you mean 'pixel'"):
        make_pool(config(part), 8)


def test_an_sdk_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingDependency, match="no Android emulator was found"):
        make_pool(config({"kind": "avd", "avd": "pixel", "sdk": str(tmp_path)}), 8)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"kind": "phone", "serials": ["R5"], "recipe": {"clear": ["a b"]}}, r"recipe\.clear\.0"),
        ({"kind": "phone", "serials": ["R5"], "guard": {"call": False}}, r"guard\.call"),
    ],
)
def test_mistakes_in_recipes_and_guards_are_told_at_once(part: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_pool(config(part), 8)


def test_post_mortems_lie_in_the_run_if_it_is_here(tmp_path: Path) -> None:
    settings = config(runs_dir=str(tmp_path), name="mine")
    assert postmortem_folder(settings) == tmp_path / ".postmortems" / "mine"
    (tmp_path / "mine").mkdir()
    assert postmortem_folder(settings) == tmp_path / "mine" / "postmortems"


def test_an_evaluation_uses_the_pool(tmp_path: Path) -> None:
    settings = config(
        {"kind": "sim", "count": 2},
        tasks={"suite": "quickstart", "test": ["test"]},
        evaluate={"slots": 4, "episodes": 6},
        runs_dir=str(tmp_path),
    )
    done = measure(settings, Measured(agent="expert"), tmp_path / "out", progress=LineProgress(io.StringIO()))
    overall = done.splits["test"].overall
    assert (overall.successes, overall.episodes) == (6, 6)
