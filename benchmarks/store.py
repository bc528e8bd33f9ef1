"""Bytes of a step in the learner's store, compressed and not.

Collects demonstrations of a preset, because the expert's episodes have the screens and chats of a run, and
packs each trajectory with and without compression.

    python benchmarks/store.py [--preset quickstart] [--episodes 200]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--preset", default="quickstart")
    parser.add_argument("--episodes", type=int, default=200)
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
        source.close()


if __name__ == "__main__":
    main()
