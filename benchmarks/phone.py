"""The cost of a step on the simulated phone in this process, on one core: tree, elements, picture.

Each arm takes the same steps (random targets, back, home, scrolling) and looks at each screen in its own way.
The arms take turns, and CPU time is counted, so that other load on the machine changes little.

Arms, as steps per second and as a ratio to `tree`
    tree        the screen tree alone
    elements    and its uiautomator hierarchy            ≥ 1,800 steps/s
    listed      and the elements in that, none listed before
    prompt      and the prompt of the agent `elements`
    picture     and its picture at 540x1200, no screen drawn before

    python benchmarks/phone.py
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from distrl.core.types import Element
from distrl.simulator.device import SimDevice
from distrl.simulator.phone import nodes, render
from distrl.workers.agents.elements import element_lines
from distrl.workers.devices.device import Key
from distrl.workers.envs.phone import elements_of

SIZE = (540, 1200)


def listed(device: SimDevice) -> tuple[Element, ...]:
    return elements_of.__wrapped__(device.hierarchy(), SIZE)


ARMS: dict[str, Callable[[SimDevice], object]] = {
    "tree": lambda device: None,
    "elements": SimDevice.hierarchy,
    "listed": lambda device: listed(device),
    "prompt": lambda device: element_lines(listed(device)),
    "picture": lambda device: render.draw(device.phone.tree(), *SIZE),
}


def act(device: SimDevice, rng: random.Random) -> None:
    """One random input."""
    roll, (width, height) = rng.random(), SIZE
    if roll < 0.1:
        device.key(rng.choice((Key.BACK, Key.HOME)))
    elif roll < 0.2:
        device.swipe(width // 2, height * 2 // 3, width // 2, height // 3)
    else:
        screen = (0.0, 0.0, nodes.WIDTH, height * nodes.WIDTH / width)
        seen = [box for node, box in nodes.visible(device.phone.tree(), screen) if node.clickable]
        left, top, right, bottom = rng.choice(seen)
        device.phone.tap((left + right) / 2, (top + bottom) / 2)


def step_s(look: Callable[[SimDevice], object], steps: int, seed: int) -> float:
    """CPU seconds of a step."""
    device, rng = SimDevice(*SIZE), random.Random(seed)
    since = time.process_time()
    for _ in range(steps):
        act(device, rng)
        device.phone.tree()
        look(device)
    return (time.process_time() - since) / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in ARMS}
    for seed in range(given.rounds):
        for name, look in ARMS.items():
            found[name].append(step_s(look, given.steps, seed))
    base = found["tree"]
    for name, times in found.items():
        ratio = statistics.median(bare / full for bare, full in zip(base, times, strict=True))
        print(f"{name:<9} {1 / statistics.median(times):7.0f} steps/s   {ratio:.2f} of tree")


if __name__ == "__main__":
    main()
