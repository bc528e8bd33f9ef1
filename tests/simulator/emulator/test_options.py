"""The stand-in's command line."""

from __future__ import annotations

import pytest

from distrl.simulator.emulator.startup import PLAIN, VALUED, Fault, Refused, fault_of, parse
from distrl.workers.devices.emulator import EmulatorOptions


def test_it_knows_all_that_we_tell_an_emulator() -> None:
    told = EmulatorOptions(snapshot="base", read_only=True).flags("pixel", 5580)
    options = parse(told)
    assert (options.avd, options.port, options.gpu) == ("pixel", 5580, "swiftshader_indirect")
    assert (options.snapshot, options.read_only, options.saves_on_exit) == ("base", True, False)
    assert "grpc-use-token" in options.plain


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (["-no-such"], ("unknown option: -no-such", "please use -help for a list of valid options")),
        (["-avd"], ("option -avd must be followed by a parameter",)),
        (
            ["pixel"],
            (
                "invalid command-line parameter: pixel.",
                "Hint: use '@foo' to launch a virtual device named 'foo'.",
                "please use -help for more information",
            ),
        ),
        (
            ["-port", "odd"],
            ("option -port must be followed by an even integer number between 5554 and 5682",),
        ),
        *(
            (
                ["-ports", ports],
                ("option -ports must be followed by two different ports: <consoleport>,<adbport>",),
            )
            for ports in ("5554", "5554,", "a,b", "5554,5554", "5554,70000", "1,5555", "1,2,3")
        ),
    ],
)
def test_mistakes_get_the_emulator_s_message(arguments: list[str], lines: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as caught:
        parse(arguments)
    assert caught.value.lines == lines


def test_the_other_ways_to_say_it() -> None:
    assert parse(["@pixel"]).avd == "pixel"
    assert parse(["-avd", "pixel", "-port", "5581"]).port == 5580
    assert (parse(["-ports", "7001,9000"]).port, parse(["-ports", "7001,9000"]).adb_port) == (7001, 9000)
    assert parse(["-no_window"]).plain == {"no-window"}
    assert parse(["-verbose", "-qemu", "-m", "4096"]).plain == {"verbose"}
    assert not PLAIN & VALUED


@pytest.mark.parametrize(
    ("arguments", "snapshot", "saves"),
    [
        ([], "default_boot", True),
        (["-no-snapshot-save"], "default_boot", False),
        (["-no-snapshot-load"], None, True),
        (["-no-snapshot"], None, False),
        (["-wipe-data"], None, True),
        (["-snapshot", "base"], "base", False),
        (["-read-only"], "default_boot", False),
    ],
)
def test_which_snapshot_begins_and_ends_a_run(
    arguments: list[str], snapshot: str | None, saves: bool
) -> None:
    options = parse(arguments)
    assert (options.snapshot, options.saves_on_exit) == (snapshot, saves)


def test_faults_by_the_variable_or_the_avd() -> None:
    assert fault_of({}, {}) == Fault()
    assert fault_of({"sim.fault": "crash:2.5"}, {}) == Fault("crash", 2.5)
    environ = {"DISTRL_SIMEMULATOR_FAULT": "hang_boot"}
    assert fault_of({"sim.fault": "crash:1"}, environ).name == "hang_boot"
    for wrong in ("fire", "crash:soon", "crash:-1", "crash:nan", "low_disk:3"):
        with pytest.raises(Refused):
            fault_of({"sim.fault": wrong}, {})
