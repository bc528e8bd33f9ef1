"""`cmd simphone`: gives and takes the simulated phone's state, for tasks. Real phones do not have it."""

from __future__ import annotations

import json
from typing import Any

from distrl.simulator.adb.call import Call, Failure
from distrl.simulator.apps import APPS, BUILT_IN
from distrl.simulator.phone.phone import Phone, new_state

MAX_STATE = 1 << 24
"""Most bytes of a state."""
_USAGE = "Usage: cmd simphone dump | load [FILE] | wait | foreground | reset [APP…]"


async def simphone(call: Call) -> int:
    """cmd simphone dump | load [FILE] | wait | foreground | reset [APP…]"""
    verb, rest = (call.args[0], call.args[1:]) if call.args else ("", [])
    if verb == "dump":
        await call.write(call.system.device.phone.dump())
    elif verb == "foreground":
        await call.line(call.system.device.foreground())
    elif verb == "load":
        if rest:
            data = call.files.read(call.path(rest[0]))
        else:
            data = b"".join([chunk async for chunk in call.chunks(MAX_STATE)])
        _load(call, data)
    elif verb == "wait":
        call.system.device.phone.wait()
        call.system.activities.observe()
    elif verb == "reset":
        _load(call, json.dumps(new_state(installed=_apps(rest))).encode())
    else:
        raise Failure(_USAGE, 255, prefixed=False)
    return 0


def _apps(more: list[str]) -> list[str]:
    unknown = [name for name in more if name not in APPS]
    if unknown:
        raise Failure(f"Error: the simulated phone has no app {', '.join(unknown)}", prefixed=False)
    return list(dict.fromkeys((*BUILT_IN, *more)))


def _load(call: Call, data: bytes) -> None:
    try:
        state = json.loads(data)
    except ValueError as error:
        raise Failure(f"Error: the state is not JSON: {error}", prefixed=False) from error
    problem = _problem(state, call.system.device.phone.height)
    if problem:
        raise Failure(f"Error: the state cannot be used: {problem}", prefixed=False)
    call.system.device.load(state)
    call.system.input.reset()
    call.system.activities.observe()


def _problem(state: Any, height: float) -> str:
    """Why `state` is not one of this phone, "" if it is."""
    wanted = set(new_state())
    if not isinstance(state, dict):
        return "it is not an object"
    if set(state) != wanted:
        return f"its keys differ: {', '.join(sorted(set(state) ^ wanted))}"
    try:
        Phone(state, height).tree()
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
