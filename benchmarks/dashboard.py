"""What watching costs the learner, and how soon the dashboard of a large run shows something.

cost   A learner's network side in this process; another process plays the workers, each with slots that
       send a picture every second, and an observer. Live slots send a new one of 4 KB each time; replayed
       ones repeat the stored screens of a few episodes, shrunk as by a worker. Two arms take turns:
       without an observer, and with one that watches all pictures. Printed: the CPU time that watching
       takes, as a share of one core's time (target: at most 1%), and how many pictures a second reached
       the observer.
first  A run of 20,000 episodes. Printed: the seconds until a dashboard that has just started has served
       its page and everything that its first screen shows (target: below 1 s), the same from the start
       of its process, and how long it then reads episodes in the background.

python benchmarks/dashboard.py
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from PIL import Image

from distrl.configs.schema import Config
from distrl.core.messages import Heartbeat, Hello, SlotReport
from distrl.core.packing import pack_trajectory
from distrl.core.rundir import RunDir
from distrl.core.slot_view import SlotView
from distrl.core.sockets import Wire
from distrl.core.store import TrajectoryStore
from distrl.evaluator.dashboard.observer import Observer
from distrl.learner.server import Endpoints, LearnerServer
from distrl.workers.board import SMALL, shrunk

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "evaluator"))
from episode_factory import make_episode, make_task

TARGET_SHARE, TARGET_S = 0.01, 1.0
WORKERS = 4
PICTURE_BYTES = 4096
GOAL = "Please set an alarm for ten minutes past seven on working days, and name it after the first meeting."


def replayed() -> list[bytes]:
    """The screens of eight stored episodes, as workers send them."""
    episodes = [make_episode(make_task(number), num_steps=8)[1] for number in range(8)]
    stored = [Image.open(io.BytesIO(data)) for images in episodes for data in images.values()]
    return [shrunk("", image, SMALL).data for image in stored]


def play(control: str, num_slots: int, is_live: bool, watching: Event, pictures: Any) -> None:
    """Workers and an observer, until the parent ends."""
    rng, each, screens = random.Random(0), num_slots // WORKERS, replayed()
    with Wire() as wire:
        workers = {f"worker-{i}": wire.connect_dealer(control) for i in range(WORKERS)}
        observer, tick = Observer(control, None, lambda: (("status", "pictures")[watching.is_set()], ())), 0
        for name, channel in workers.items():
            channel.send(Hello(role="worker", name=name, slots=each))
        while True:
            started, tick = time.monotonic(), tick + 1
            for name, channel in workers.items():
                if tick % 2:
                    channel.send(Heartbeat(role="worker", name=name, slots=each, stats={"steps": tick}))
                if watching.is_set():
                    views = tuple(
                        SlotView(slot=i, state="acting", task="s/t/train/1", goal=GOAL, picture=f"{tick}/{i}")
                        for i in range(each)
                    )
                    report = SlotReport(worker=name, slots=views, pictures=tuple(range(each)))
                    live = (rng.randbytes(PICTURE_BYTES) for _ in range(each))
                    channel.send(report, list(live) if is_live else rng.choices(screens, k=each))
                while channel.recv(0.0) is not None:
                    pass
            if observer.wall is not None:
                pictures.value = max(pictures.value, observer.wall.number)
            time.sleep(max(0.0, 1.0 - (time.monotonic() - started)))


def cost(num_slots: int, is_live: bool, rounds: int, seconds: float) -> None:
    """Prints the learner's time for watched slots."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        store = TrajectoryStore(Path(folder) / "store.sqlite3")
        scheduler: Any = SimpleNamespace(tick=lambda: None)  # without leases
        local = Endpoints(*["tcp://127.0.0.1:0"] * 3)
        server = LearnerServer(local, None, store, scheduler, queue.Queue(1), "r")
        server.start()
        watching, pictures = context.Event(), context.Value("q", 0)
        arguments = (server.endpoints.control, num_slots, is_live, watching, pictures)
        peers = context.Process(target=play, args=arguments, daemon=True)
        peers.start()
        while len(server.status.slots) < WORKERS:
            time.sleep(0.1)
        shares, rates = [], []
        for _ in range(rounds):
            used = {}
            for arm in (False, True):
                watching.set() if arm else watching.clear()
                time.sleep(2.0)
                before, count, started = time.process_time(), pictures.value, time.monotonic()
                time.sleep(seconds)
                took = time.monotonic() - started
                used[arm] = (time.process_time() - before) / took
                rates.append((pictures.value - count) / took if arm else 0.0)
            shares.append(used[True] - used[False])
        peers.kill()
        server.close()
        store.close()
    share = statistics.median(shares)
    what = "live" if is_live else "replayed"
    print(f"{num_slots} {what} slots take {share:.2%} of a core of the learner (target {TARGET_SHARE:.0%};")
    print(f"  rounds: {', '.join(f'{one:.2%}' for one in shares)}), {max(rates):.0f} pictures/s arrived")


def make_run(folder: Path, num_episodes: int) -> RunDir:
    """A run directory with so many episodes of eight steps, and a row of metrics for every eight."""
    run = RunDir.create(Config.model_validate({"name": "large", "runs_dir": str(folder)}))
    names = [f"family{i}/name{j}" for i in range(14) for j in range(10)]
    rng, store = random.Random(0), TrajectoryStore(run.store)
    for start in range(0, num_episodes, 500):
        items = []
        for number in range(start, min(num_episodes, start + 500)):
            task = make_task(number % 50, f"template-{number % 12}", goal=GOAL)
            trajectory, images = make_episode(task, success=rng.random() < 0.6, num_steps=8)
            items.append((trajectory.model_copy(update={"started_at": 1e9 + number}), images))
        store.add_many(items, [pack_trajectory(trajectory) for trajectory, _ in items])
    store.close()
    with run.metrics.open("w") as file:
        for update in range(num_episodes // 8):
            row = {"step": update, "time": 1e9 + 8 * update, "episodes": 8 * update, "versions": update}
            row |= {"train/success": rng.random(), "policy/entropy": rng.random()}
            file.write(json.dumps(row | {name: round(rng.random(), 6) for name in names}) + "\n")
    return run


DATA = ("api/snapshot", "api/metrics", "api/heatmap", "api/episodes")
FIRST = ("", "static/app.js", "static/style.css", *DATA)


def first(num_episodes: int) -> None:
    """Prints the time to the first screen of a large run."""
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(Path(folder), num_episodes)
        started = time.monotonic()
        command = [sys.executable, "-m", "distrl", "dashboard", str(run.path), "--http", "0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with contextlib.ExitStack() as stack:
            stack.callback(process.wait)
            stack.callback(process.kill)
            url = process.stdout.readline().split()[-1]

            def get(path: str) -> bytes:
                with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
                    data: bytes = answer.read()
                    return data

            ready, found = time.monotonic(), {path: get(path) for path in FIRST}
            rows = json.loads(found["api/episodes"])["rows"]
            get(f"api/episode/{rows[0]['id']}" if rows else "")
            took, all_s = time.monotonic() - ready, time.monotonic() - started
            size = sum(map(len, found.values())) / 1e6
            print(f"the first screen of {num_episodes:,} episodes: {took:.2f} s (target {TARGET_S:g} s),")
            print(f"  {all_s:.2f} s from the start of the process; {size:.2f} MB, {len(rows)} rows")
            while json.loads(get("api/episodes?limit=1"))["indexed"] < num_episodes:
                time.sleep(1.0)
            print(f"  all episodes are read after {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--live", type=int, default=64, help="slots")
    parser.add_argument("--replayed", type=int, default=256, help="slots")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--episodes", type=int, default=20_000)
    chosen = parser.parse_args()
    cost(chosen.live, True, chosen.rounds, chosen.seconds)
    cost(chosen.replayed, False, chosen.rounds, chosen.seconds)
    first(chosen.episodes)
