"""`python -m distrl.simulator.emulator`: the stand-in as a program with the emulator's command line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from distrl.core.errors import DistrlError
from distrl.simulator.emulator.startup import VERSION, Options, Refused, fault_of, find_avd, parse, take_locks
from distrl.workers.devices.avd import AvdStore

_BANNER = f"Android emulator version {VERSION} (build_id distrl-stand-in) (CL:N/A)"


def say(level: str, text: str) -> None:
    """Prints a line of the log as the emulator does."""
    print(f"{level:<13}| {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs the program. Returns its exit status."""
    try:
        options = parse(arguments)
        if options.plain & {"version", "help", "list-avds", "accel-check"}:
            return _answer(options)
        avd = find_avd(options.avd)
        say("INFO", _BANNER)
        say("INFO", f"Found AVD name '{avd.name}'")
        fault = fault_of(avd.config())
        locks = take_locks(avd, options, fault)
        try:
            # Drawing the phone takes a moment to import: what only looks at locks does without.
            from distrl.simulator.emulator.phone import Emulator

            asyncio.run(Emulator(avd, options, fault, say).run())
        finally:
            locks.release()
    except (Refused, DistrlError) as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def _answer(options: Options) -> int:
    if "version" in options.plain:
        say("INFO", _BANNER)
    elif "help" in options.plain:
        print("Android Emulator usage: emulator [options] [-qemu args]")
    elif "list-avds" in options.plain:
        for avd in AvdStore().list():
            print(avd.name)
    else:
        print("accel:\n0\nThe stand-in emulator needs no acceleration.\naccel")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
