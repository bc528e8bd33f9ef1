"""Prioritised replay: how fast batches are drawn and priorities renewed, beside torchrl's and cpprb's.

Every arm holds the same number of entries with the same priorities and is asked for the same things:

    draw          a batch by priority: indices and importance weights
    update        new priorities of a batch of random indices
    draw+update   draws a batch, then gives what was drawn new priorities, as training does

    tree     our sum tree: indices, (p + ε)^α and the weights taken here; float64
    torchrl  PrioritizedSampler, sample and update_priority: a sum and a minimum tree in C++; float32
    cpprb    PrioritizedReplayBuffer, sample and update_priorities: trees in C++. Its sample fetches what is
             stored too, here one number per entry
    replay   our whole class, as the learner uses it: entries that may have left meanwhile, three components
             per priority, running maxima; no importance weights, which training does not use; float64

tree, replay and cpprb write priorities in an update and leave the sums to the next draw; torchrl sums at
once. So an update alone says little: `draw+update` holds all the work. Arms take turns within a round and
leave nothing unsummed to the next operation. Each round gives one ratio; printed are medians and the whole
range.

Last, the cost of O(N): `replay` computes all priorities again when a running maximum has moved by 10%; by
decay alone that is every 21 updates at most.

Times are CPU time of this thread, which other work on the machine disturbs least. Still, ratios of a single
operation depend on other users of the caches.

An arm whose package is missing, or does not load, is left out, and the output says why. torchrl's wheels fit
one version of torch each, and none fits the torch of constraints.txt: build it from source (needs g++).

    pip install -c constraints.txt cpprb tensordict pybind11
    pip install --no-build-isolation --no-deps git+https://github.com/pytorch/rl
    python benchmarks/replay.py [--entries 1000000] [--batch 256] [--rounds 15] [--calls 200]
"""

from __future__ import annotations

import argparse
import importlib
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.configs.learner import ReplayConfig
from distrl.learner.replay import Replay
from distrl.learner.sum_tree import SumTree

ALPHA, BETA, EPSILON = 0.5, 0.4, 1e-6
NUM_PREPARED = 64
OPERATIONS = ("draw", "update", "draw+update")
OURS = ("tree", "replay")
PEERS = ("torchrl", "cpprb")


@dataclass
class Work:
    """The work of every arm: priorities of all entries, and batches of indices with new priorities."""

    priorities: NDArray[np.float64]
    batches: list[tuple[NDArray[np.int64], NDArray[np.float64]]]
    size: int


@dataclass
class Arm:
    """Draws a batch and returns what `update` takes; `prepared` are batches in the form that it takes.

    A batch of indices gets other priorities each time: an update that changes nothing is cheaper for some.
    """

    draw: Callable[[], Any]
    update: Callable[[Any, Any], None]
    prepared: list[tuple[Any, Any]]

    def __post_init__(self) -> None:
        indices, priorities = zip(*self.prepared, strict=True)
        self.batches = zip(cycle(indices), cycle(priorities[1:] or priorities), strict=False)


def tree_arm(work: Work) -> Arm:
    """Our sum tree."""
    tree, rng = SumTree(len(work.priorities)), np.random.default_rng(1)

    def draw() -> Any:
        indices = tree.sample(work.size, rng)
        weights = (tree.at(indices) * (tree.capacity / tree.total)) ** -BETA
        weights /= weights.max()
        return indices

    def update(indices: Any, priorities: Any) -> None:
        tree.set(indices, (priorities + EPSILON) ** ALPHA)

    update(np.arange(tree.capacity), work.priorities)
    return Arm(draw, update, work.batches)


def replay_arm(work: Work) -> Arm:
    """Our whole class."""
    capacity = len(work.priorities)
    replay = filled(capacity)

    components = [np.stack([p, p, p], axis=1) for _, p in work.batches]
    entries = [indices for indices, _ in work.batches]  # the first trajectory has entry 0
    return Arm(lambda: replay.sample(work.size), replay.update, list(zip(entries, components, strict=True)))


def filled(capacity: int) -> Replay:
    """A full replay, each entry drawn once and with a priority."""
    replay = Replay(ReplayConfig(capacity=capacity, alpha=ALPHA), seed=1)
    for number in range(capacity):
        replay.add(f"trajectory-{number}")
    replay.update(replay.sample(capacity), np.random.default_rng(2).random((capacity, 3)))
    return replay


def torchrl_arm(work: Work) -> Arm:
    """torchrl's sampler, on indices. Its C++ extension must fit the torch that is installed."""
    torch = importlib.import_module("torch")
    logging.getLogger("torchrl").setLevel(logging.WARNING)
    data = importlib.import_module("torchrl.data")
    importlib.import_module("torchrl._torchrl")
    samplers = importlib.import_module("torchrl.data.replay_buffers.samplers")
    capacity = len(work.priorities)
    storage, entries = data.LazyTensorStorage(capacity), torch.arange(capacity)
    storage.set(range(capacity), entries)
    sampler = samplers.PrioritizedSampler(capacity, alpha=ALPHA, beta=BETA, eps=EPSILON)
    sampler.extend(entries)
    sampler.update_priority(entries, torch.as_tensor(work.priorities).float())
    prepared = [(torch.as_tensor(i), torch.as_tensor(p).float()) for i, p in work.batches]
    return Arm(lambda: sampler.sample(storage, work.size)[0], sampler.update_priority, prepared)


def cpprb_arm(work: Work) -> Arm:
    """cpprb's buffer; one number per entry is the least that it stores."""
    cpprb = importlib.import_module("cpprb")
    capacity = len(work.priorities)
    buffer = cpprb.PrioritizedReplayBuffer(capacity, {"done": {}}, alpha=ALPHA, eps=EPSILON)
    buffer.add(done=np.zeros(capacity), priorities=work.priorities)
    return Arm(lambda: buffer.sample(work.size, beta=BETA)["indexes"], buffer.update_priorities, work.batches)


def calls_per_s(arm: Arm, operation: str, num_calls: int) -> float:
    """How often in a second."""
    started = time.thread_time()
    for _ in range(num_calls):
        indices, priorities = next(arm.batches)
        if operation != "update":
            drawn = arm.draw()
            indices = drawn if operation == "draw+update" else None
        if operation != "draw":
            arm.update(indices, priorities)
    elapsed = time.thread_time() - started
    arm.draw()  # sums what updates have left
    return num_calls / elapsed


def build(work: Work) -> dict[str, Arm]:
    """All arms whose packages are here."""
    arms = {"tree": tree_arm(work)}
    for name, make in (("torchrl", torchrl_arm), ("cpprb", cpprb_arm)):
        try:
            arms[name] = make(work)
        except ModuleNotFoundError as error:
            print(f"{name} is left out: {error}. Install it: pip install -c constraints.txt {name}")
        except ImportError as error:
            print(f"{name} is left out: it is installed, but does not load: {error}")
            print("    A wheel of torchrl fits one version of torch. To build it, see this file's docstring.")
    return arms | {"replay": replay_arm(work)}


def report(rates: dict[str, dict[str, list[float]]], size: int) -> None:
    """Prints entries per second of each arm, and ours to the others' in the same rounds."""
    for operation in OPERATIONS:
        print(f"\n{operation}: million entries a second, median (range)")
        for name, of_arm in rates.items():
            values = [rate * size / 1e6 for rate in of_arm[operation]]
            print(f"  {name:14}{statistics.median(values):8.2f}  ({min(values):.2f}–{max(values):.2f})")
        for mine in OURS:
            for peer in (name for name in PEERS if name in rates):
                pairs = zip(rates[mine][operation], rates[peer][operation], strict=True)
                ratios = [one / other for one, other in pairs]
                spread = f"({min(ratios):.2f}–{max(ratios):.2f})"
                print(f"  {mine + ' / ' + peer:24}{statistics.median(ratios):6.2f}  {spread}")


def report_rebuild(entries: int, size: int, rounds: int) -> None:
    """Prints the time of an update and the next draw, when a maximum moves and when it does not."""
    replay, rng = filled(entries), np.random.default_rng(3)
    times: dict[bool, list[float]] = {False: [], True: []}
    largest = 1.0
    for number in range(2 * rounds):
        is_moved = number % 2 == 1
        entries, raw = replay.sample(size), rng.random((size, 3))
        largest *= 1.2 if is_moved else 1.0
        raw[0] = largest
        started = time.thread_time()
        replay.update(entries, raw)
        replay.sample(size)
        times[is_moved].append(1000 * (time.thread_time() - started))
    usual, moved = statistics.median(times[False]), statistics.median(times[True])
    print(f"\nreplay, update and the next draw: {usual:.2f} ms; with a rebuild {moved:.1f} ms (medians)")


def main() -> None:
    """Runs all arms in turns and prints the ratios."""
    parser = argparse.ArgumentParser(description="Draws and updates of prioritised replay buffers.")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=200, help="per arm, operation and round")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    batches = [
        (rng.integers(0, args.entries, args.batch), rng.random(args.batch)) for _ in range(NUM_PREPARED)
    ]
    arms = build(Work(rng.random(args.entries), batches, args.batch))
    rates: dict[str, dict[str, list[float]]] = {name: {what: [] for what in OPERATIONS} for name in arms}
    for number in range(args.rounds + 1):
        for operation in OPERATIONS:
            for name, arm in arms.items():
                rate = calls_per_s(arm, operation, args.calls)
                if number > 0:  # the first round warms up
                    rates[name][operation].append(rate)
    print(f"{args.entries} entries, batches of {args.batch}, {args.rounds} rounds of {args.calls} calls")
    report(rates, args.batch)
    report_rebuild(args.entries, args.batch, args.rounds)


if __name__ == "__main__":
    main()
