"""The size of the learner's store: bytes per step, compressed and not, and growth under `store.max_bytes`.

Collects demonstrations of a preset (the expert's episodes have the screens and chats of a run), then

- packs each trajectory with and without compression,
- stores copies of them under new ids, trimming to `--max-bytes` as a learner does, and reports the largest
  file. A week of the quickstart on two cores is 14 million episodes; the file's size is level long before.

    python benchmarks/store.py [--preset quickstart] [--episodes 200] [--copies 20000] [--max-bytes 24000000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgpack

from distrl.core.packing import pack_trajectory
from distrl.core.store import TrajectoryStore

TRIM_EVERY = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--copies", type=int, default=20_000)
    parser.add_argument("--max-bytes", type=int, default=24_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demos = Path(folder) / "demos"
        command = [sys.executable, "-m", "distrl", "collect", arguments.preset, "--output", str(demos)]
        subprocess.run([*command, "--episodes", str(arguments.episodes)], check=True, capture_output=True)
        source = TrajectoryStore(demos / "store.sqlite3")
        episodes = list(source.iterate())
        plain = [msgpack.packb(episode.model_dump(), use_bin_type=True) for episode in episodes]
        started = time.perf_counter()
        packed = [pack_trajectory(episode) for episode in episodes]
        pack_ms = 1000.0 * (time.perf_counter() - started) / len(episodes)
        steps = sum(len(episode.steps) for episode in episodes)
        before, after = sum(map(len, plain)) / steps, sum(map(len, packed)) / steps
        print(f"{len(episodes)} episodes, {steps} steps; packing one takes {pack_ms:.2f} ms")
        print(f"bytes per step: {before:.0f}, compressed {after:.0f}, ratio {before / after:.2f}")
        images = source.images({digest for episode in episodes for digest in episode.image_digests})
        store = TrajectoryStore(Path(folder) / "long" / "store.sqlite3")
        sizes = []
        for number in range(arguments.copies):
            episode = episodes[number % len(episodes)].model_copy(update={"id": f"copy-{number}"})
            store.add(episode, images)
            if number % TRIM_EVERY == TRIM_EVERY - 1:
                store.trim(arguments.max_bytes)
                sizes.append(store.path.stat().st_size)
        tenth = len(sizes) // 10
        print(f"{arguments.copies} episodes under {arguments.max_bytes} bytes: {store.count()} kept")
        print("file after each tenth of them:", *(size for size in sizes[tenth - 1 :: tenth]))
        store.close()
        source.close()


if __name__ == "__main__":
    main()
