"""The throughput of a worker while its devices hang, crash, go offline, turn blank or slow.

Eight simulated phones behind a real adb server, each a process, run scripted episodes for one worker. One
fault after the other is injected: a process that hangs (SIGSTOP), a crash, an offline and an unauthorised
device, a blank screen, an adb server that restarts, a device 100 times as slow. For each, the rate of steps
before, the lowest rate afterwards, and the time until it is at 0.9 of before again. At the end: the fate of
all episodes, processes that are left over, and whether an adb server and a phone that are not the worker's
were left alone.

    python benchmarks/chaos.py                 # ten minutes
    python benchmarks/chaos.py --seconds 60    # one fault of each kind, with shorter pauses
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from chaos_world import World

from distrl.core.files import Scratch

TARGET = 0.9
RETURN_S = 60.0
WARM_UP_S = 60.0


@dataclass(frozen=True)
class Injection:
    """One fault and its effect.

    Attributes:
        kind, device: What, where.
        before: Steps a second in the time before.
        lowest: The lowest rate of any window afterwards.
        return_s: From the injection to the end of the first window at `TARGET` of before again, after the
            lowest; None if none came in time.
    """

    kind: str
    device: str
    before: float
    lowest: float
    return_s: float | None


class Chaos:
    """Injects faults.

    Args:
        world: The phones, the adb server and the worker.
        fault_s: How long a fault lasts, but for a crash and a restart.
        calm_s: How long the rate before is measured.
        window_s: How long the rate must be back.
    """

    def __init__(self, world: World, fault_s: float, calm_s: float, window_s: float) -> None:
        self.world, self._fault_s, self._calm_s, self._window_s = world, fault_s, calm_s, window_s
        self.kinds: dict[str, Callable[[int], str]] = {
            "hang (SIGSTOP)": self._hang,
            "crash": lambda index: self._console(index, "crash 2"),
            "offline": lambda index: self._console(index, f"offline {fault_s:g}"),
            "unauthorised": lambda index: self._console(index, f"unauthorized {fault_s:g}"),
            "blank frame": lambda index: self._console(index, f"blank {fault_s:g}"),
            "adb server restart": self._restart_server,
            "slow (100x)": lambda index: self._console(index, f"slow 100 {fault_s:g}"),
        }

    def inject(self, kind: str, index: int) -> Injection:
        """Measures, disturbs, and waits until the rate is as before."""
        world = self.world
        world.wait(self._calm_s)
        at = time.monotonic()
        before = world.link.rate(at - self._calm_s, at)
        device = self.kinds[kind](index)

        def is_back() -> bool:
            now = time.monotonic()
            if now - at < self._window_s + self._fault_s:
                return False
            return world.link.rate(now - self._window_s, now) >= TARGET * before

        came_back = world.wait(RETURN_S, is_back)
        lowest = min(self._windows(at), default=before)
        return_s = self._return_s(at, TARGET * before) if came_back else None
        return Injection(kind, device, before, lowest, return_s)

    def _windows(self, since: float) -> list[float]:
        """The rates of all windows since then, every half second."""
        now, rate, half_s = time.monotonic(), self.world.link.rate, self._window_s / 2
        ends = [since + half_s + 0.5 * step for step in range(int((now - since) * 2))]
        return [rate(end - half_s, end) for end in ends if end <= now]

    def _return_s(self, at: float, wanted: float) -> float:
        """When the first window reached `wanted` after the lowest one; 0 if all did."""
        windows = self._windows(at)
        if not windows or min(windows) >= wanted:
            return 0.0
        lowest = windows.index(min(windows))
        for step, rate in enumerate(windows):
            if step > lowest and rate >= wanted:
                return self._window_s / 2 + 0.5 * step
        return time.monotonic() - at

    def _console(self, index: int, fault: str) -> str:
        phone = self.world.phone(index)
        self.world.say(phone, f"sim fault {fault}")
        return phone.serial

    def _hang(self, index: int) -> str:
        """Every other time the process continues; else it is killed, and its host starts another."""
        phone = self.world.phone(index)
        os.kill(phone.pid, signal.SIGSTOP)
        self.world.wait(self._fault_s)
        os.kill(phone.pid, signal.SIGCONT if index % 2 else signal.SIGKILL)
        return phone.serial

    def _restart_server(self, index: int) -> str:
        self.world.server.kill()
        self.world.server.start()
        return "all"


def run(world: World, seconds: float) -> Iterator[Injection]:
    """Injects one fault after the other, each kind at least once, until the time is up."""
    short = min(1.0, seconds / 600.0)
    chaos = Chaos(world, *(max(1.5, usual_s * short) for usual_s in (10.0, 10.0, 5.0)))
    assert world.wait(WARM_UP_S, lambda: world.link.rate(time.monotonic() - 1.0, time.monotonic()) > 0), (
        f"nothing works: {world.places.line()}"
    )
    world.wait(max(1.5, 5.0 * short))
    started = time.monotonic()
    for number, kind in enumerate(itertools.cycle(chaos.kinds)):
        if number >= len(chaos.kinds) and time.monotonic() - started >= seconds:
            return
        yield chaos.inject(kind, number)


def verdicts(
    injections: Sequence[Injection], counts: dict[str, float], left_over: Sequence[str], is_foreign_well: bool
) -> dict[str, bool]:
    """The promises, and whether they were kept."""
    return {
        f"throughput returned to {TARGET:g} within {RETURN_S:g} s each time": all(
            injection.return_s is not None for injection in injections
        ),
        "no episode was lost": counts["lost"] == 0,
        "no episode with a fault was accepted": counts["wrong"] == 0,
        "no process was left over": not left_over,
        "no other server or phone was touched": is_foreign_well,
    }


def show(injection: Injection) -> None:
    """Prints a row."""
    back = "never" if injection.return_s is None else f"{injection.return_s:.1f} s"
    share = injection.lowest / injection.before if injection.before else 0.0
    print(
        f"{injection.kind:<20}{injection.device:<16}{injection.before:>8.1f}/s{injection.lowest:>9.1f}/s"
        f"{share:>8.2f}{back:>12}",
        flush=True,
    )


def main() -> int:
    """Prints the table and the verdicts. 1 if a promise was not kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long faults are injected")
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--width", type=int, default=540)
    parser.add_argument("--height", type=int, default=1200)
    parser.add_argument("--latency", type=float, default=0.15, help="median seconds of an action, besides")
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    args = parser.parse_args()
    logging.basicConfig(filename=os.devnull)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all of it is stopped and removed
    with Scratch("chaos") as scratch:
        folder = scratch.path
        os.environ["DISTRL_STATE_DIR"] = str(folder / "state")
        hurry, size = min(1.0, args.seconds / 600.0), (args.width, args.height)
        world = World(args.devices, folder, hurry, size, args.latency)
        injections = []
        print(f"{'fault':<20}{'device':<16}{'before':>10}{'lowest':>11}{'':>8}{'back after':>12}")
        with world.running():
            for injection in run(world, args.seconds):
                injections.append(injection)
                show(injection)
            is_foreign_well = world.strangers_are_well()
            states = world.places.line()
        counts, left_over = world.link.counts(), world.left_over()
        bundles = len(list(folder.glob(".postmortems/run/*/fault.json")))
    print(f"\n{', '.join(f'{name} {value:g}' for name, value in counts.items())}; {bundles} post-mortems")
    print(f"in the end: {states}")
    for command in left_over:
        print(f"left over: {command}")
    kept = verdicts(injections, counts, left_over, is_foreign_well)
    for promise, is_kept in kept.items():
        print(f"{'kept  ' if is_kept else 'BROKEN'}  {promise}")
    if args.json:
        rows = [asdict(injection) for injection in injections]
        args.json.write_text(json.dumps({"injections": rows, "counts": counts, "kept": kept}, indent=1))
    return 0 if all(kept.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
