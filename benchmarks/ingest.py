"""Durable ingest: trajectories into the learner's store, against appending the same bytes to a file.

Both sync to disk after each group of `--group` trajectories, as the learner does with those that wait
together. Rounds alternate and medians are compared; peak memory shows whether it grows with the store.

    python benchmarks/ingest.py [--trajectories 200] [--group 8] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import tempfile
import time
from pathlib import Path

from distrl.core.packing import pack_trajectory
from distrl.core.store import Item, TrajectoryStore
from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    ImagePart,
    Observation,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)

NUM_STEPS = 15
SCREENSHOT_BYTES = 40_000  # a 540x1200 JPEG of the simulated phone


def make(number: int, rng: random.Random) -> Item:
    """A trajectory of fifteen steps, one screenshot each."""
    images, steps = {}, []
    for _ in range(NUM_STEPS):
        data = rng.randbytes(SCREENSHOT_BYTES)
        digest = image_digest(data)
        images[digest] = data
        parts = (TextPart(text="Goal: switch the alarm off"), ImagePart(digest=digest))
        completion = Completion(
            text="tap",
            prompt_token_ids=tuple(range(60)),
            token_ids=(1, 2),
            logprobs=(-0.1, -0.2),
            weight_versions=(3, 3),
        )
        steps.append(
            TimeStep(
                observation=Observation(image=digest, width=540, height=1200),
                chats=(Chat(messages=(ChatMessage(role="user", parts=parts),), completion=completion),),
                action=ActionRecord(kind="tap", point=(0.5, 0.5)),
            )
        )
    task = Task(id="q/t/1", suite="q", template="t", split="train", goal="Switch the alarm off")
    return Trajectory(id=f"{number}-{rng.random()}", task=task, steps=tuple(steps)), images


def ingest(store: TrajectoryStore, groups: list[list[Item]]) -> float:
    """Seconds to commit all groups."""
    started_at = time.perf_counter()
    for group in groups:
        store.add_many(group)
    return time.perf_counter() - started_at


def append(path: Path, groups: list[list[bytes]]) -> float:
    """Seconds to append and sync all groups."""
    started_at = time.perf_counter()
    with path.open("ab", buffering=0) as file:
        for group in groups:
            file.write(b"".join(group))
            os.fsync(file.fileno())
    return time.perf_counter() - started_at


def main() -> None:
    """Runs the rounds and prints medians and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trajectories", type=int, default=200)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None, help="where to write; the disk to measure")
    options = parser.parse_args()
    rng = random.Random(0)
    ours, raw = [], []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = TrajectoryStore(Path(folder) / "store.sqlite3")
        for _ in range(options.rounds + 1):
            items = [make(number, rng) for number in range(options.trajectories)]
            groups = [items[i : i + options.group] for i in range(0, len(items), options.group)]
            flat = [
                [part for item, images in group for part in (pack_trajectory(item), *images.values())]
                for group in groups
            ]
            num_bytes = sum(len(part) for group in flat for part in group)
            ours.append(ingest(store, groups))
            raw.append(append(Path(folder) / "raw", flat))
        store.close()
    ratio = statistics.median(r / o for r, o in zip(raw[1:], ours[1:], strict=True))
    for name, seconds in (("store", ours), ("append + fsync", raw)):
        median = statistics.median(seconds[1:])
        rate = num_bytes / median / 1e6
        print(f"{name:<15} {options.trajectories / median:7.0f} trajectories/s {rate:7.0f} MB/s")
    print(f"speed of the store / append + fsync: {ratio:.2f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
