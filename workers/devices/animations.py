"""Switching a device's animations off, so that screens stand still sooner, and checking that they are."""

from __future__ import annotations

from distrl.workers.devices.errors import ResetFailed
from distrl.workers.devices.front import ASK_S, Shell

SCALES = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")


def turn_off(shell: Shell) -> None:
    """Sets the three animation scales to 0 and reads them back.

    Raises:
        ResetFailed: One is not 0 afterwards.
        DeviceError: The device did not answer.
    """
    puts = [f"settings put global {name} 0" for name in SCALES]
    gets = [f"settings get global {name}" for name in SCALES]
    # Putting 0 twice is putting it once, so the whole line may be repeated.
    result = shell.shell("; ".join([*puts, *gets]), ASK_S, reads=True)
    values = result.out.decode("utf-8", "replace").split()[-len(SCALES) :]
    still_on = [name for name, value in zip(SCALES, values, strict=False) if not _is_zero(value)]
    if still_on or len(values) != len(SCALES):
        raise ResetFailed(
            f"its animations cannot be switched off: {', '.join(still_on) or 'no answer'}.",
            "Allow adb to change settings in the developer options (some makers add a switch for that).",
            serial=shell.serial,
            evidence=(result.out[-500:] + b"\n" + result.err[-500:]).decode("utf-8", "replace"),
        )


def _is_zero(value: str) -> bool:
    try:
        return float(value) == 0.0
    except ValueError:
        return False
