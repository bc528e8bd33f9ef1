"""The section `devices`: kinds of members, the adb server's port, and mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from distrl.configs.devices import DevicesConfig
from distrl.configs.load import check_config
from distrl.configs.parse import parse_yaml
from distrl.core.errors import ConfigError
from distrl.workers.devices.guard import GuardPolicy
from distrl.workers.devices.recipes import Recipe

MIXED = """
devices:
  adb_server_port: 5039
  pool:
    - {kind: sim, count: 2, width: 1080, height: 2400}
    - {kind: adb, serials: ["emulator-5554", "emulator-56*"], snapshot: clean}
    - {kind: avd, avd: Pixel_7_API_34, count: 4, snapshot: clean, mode: read-only}
    - {kind: phone, serials: [R5CT1234567], recipe: {clear: [com.example.shop]}, reboot: true}
"""


def test_a_mixed_pool_is_read_and_written() -> None:
    config = check_config(parse_yaml(MIXED, "x"), "x")
    assert [members.kind for members in config.devices.pool] == ["sim", "adb", "avd", "phone"]
    assert check_config(parse_yaml(config.to_yaml(), "y"), "y") == config


def test_the_configurations_in_the_documentation_are_valid() -> None:
    text = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")
    blocks = [parse_yaml(block, "docs") for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    pools = [block for block in blocks if isinstance(block, dict) and "devices" in block]
    assert len(pools) >= 1
    for pool in pools:
        check_config(pool, "docs")
    for block in blocks:
        if isinstance(block, dict) and "recipe" in block:
            Recipe.of(block["recipe"])
        if isinstance(block, dict) and "guard" in block:
            GuardPolicy.of(block["guard"])


def test_devices_by_serial_are_guarded_if_they_are_physical_unless_told_otherwise() -> None:
    pool = "devices: {pool: [{kind: adb, serials: [a]}, {kind: adb, serials: [b], guard: null}]}"
    config = check_config(parse_yaml(pool, "x"), "x")
    for read in (config, check_config(parse_yaml(config.to_yaml(), "y"), "y")):
        assert [getattr(members, "guard", "") for members in read.devices.pool] == ["physical", None]


def test_by_default_there_is_no_pool() -> None:
    assert check_config({}, "x").devices.pool == []


@pytest.mark.parametrize(
    ("set_port", "environment", "port"),
    [
        (None, {}, 5037),
        (None, {"ANDROID_ADB_SERVER_PORT": "5099"}, 5099),
        (None, {"ANDROID_ADB_SERVER_PORT": ""}, 5037),
        (5040, {"ANDROID_ADB_SERVER_PORT": "5099"}, 5040),
    ],
)
def test_the_adb_server_s_port(set_port: int | None, environment: dict[str, str], port: int) -> None:
    assert DevicesConfig(adb_server_port=set_port).server_port(environment) == port


@pytest.mark.parametrize("value", ["many", "0", "70000", "-1"])
def test_a_variable_that_is_not_a_port_is_rejected(value: str) -> None:
    with pytest.raises(ConfigError, match=f"ANDROID_ADB_SERVER_PORT='{value}' is not a valid port"):
        DevicesConfig().server_port({"ANDROID_ADB_SERVER_PORT": value})


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            "{kind: sim, cout: 2}",
            "unknown key `devices.pool.0.cout`. Did you mean `devices.pool.count`?",
        ),
        (
            "{kind: sim, snapshot: clean}",
            "`devices.pool.0.snapshot` is a key of adb, avd only. Remove it, or set `devices.pool.0.kind`.",
        ),
        ("{kind: moon}", "`devices.pool.0.kind` is 'moon', expected one of 'sim', 'adb', 'avd', 'phone'"),
        ("{count: 2}", "`devices.pool.0.kind` is missing"),
        ("{kind: adb, serials: []}", "`devices.pool.0.serials` is []"),
        ("{kind: adb, serials: ['a b']}", "`devices.pool.0.serials.0` is 'a b'"),
        ("{kind: phone, serials: ['R5*']}", "`devices.pool.0.serials.0` is 'R5*'"),
        ("{kind: avd, avd: '../up'}", "`devices.pool.0.avd` is '../up'"),
        ("{kind: avd, avd: p, mode: fast}", "`devices.pool.0.mode` is 'fast'"),
        ("{kind: adb, serials: [a]}, {kind: phone, serials: [a]}", "the serial 'a' is listed twice"),
        ("{kind: avd, avd: p}, {kind: avd, avd: p}", "an AVD is listed twice"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(members: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(parse_yaml(f"devices: {{pool: [{members}]}}", "x"), "x")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rounds_of_slots_and_a_pool_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match=r"worker\.barrier does not work with devices\.pool"):
        check_config({"worker": {"barrier": True}, "devices": {"pool": [{"kind": "sim"}]}}, "x")
