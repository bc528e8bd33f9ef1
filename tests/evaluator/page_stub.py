"""A dashboard with made-up answers, for the page: many slots, pools, alarms, actions, harmful texts."""

from __future__ import annotations

import contextlib
import io
import random
import time
from collections.abc import Iterator
from typing import Any

from PIL import Image, ImageDraw

from distrl.core.slot_view import Hand
from distrl.evaluator.dashboard.index import Selection
from distrl.evaluator.dashboard.server import DashboardServer

GOALS = ("Turn on Wi-Fi", "Set an alarm for 7:30", "Star the mail from Ada", "Search the shop for red shoes")
TEMPLATE_NAMES = ("toggle", "alarm", "star", "shop_search")


class Stub:
    """What `Dashboard` has, with its server.

    Attributes:
        now, curves: The answers of `snapshot` and `metrics`; change them between requests.
        every_s: From one event to the next.
        viewers, screens, selections, commands, hands: What the page has asked for, in order.
    """

    every_s = 0.2

    def __init__(self, num_slots: int = 0, port: int = 0, token: str = "", harm: str = "") -> None:
        self.viewers: list[tuple[str, str]] = []
        self.screens: list[str] = []
        self.selections: list[Selection] = []
        self.commands: list[str] = []
        self.hands: list[Hand] = []
        self.index, self._harm = self, harm
        self.now, self.curves = make_snapshot(num_slots), make_metrics()
        if harm:
            self.now["run"]["name"] = harm
            self.now["devices"]["pool"][0]["state"] = "constructor"
            for slot in self.now["slots"]:
                slot["goal"] = slot["worker"] = harm
        dashboard: Any = self
        self._server = DashboardServer(dashboard, str(port), token or None)
        self.url, self.port = self._server.url, self._server.server_address[1]

    def close(self) -> None:
        self._server.close()

    def snapshot(self) -> dict[str, Any]:
        return self.now

    def metrics(self) -> dict[str, Any]:
        return self.curves

    def heatmap(self, bins: int) -> dict[str, Any]:
        return make_heatmap(bins)

    def select(self, chosen: Selection) -> dict[str, Any]:
        self.selections.append(chosen)
        return make_episodes(chosen, self._harm)

    def episode(self, name: str) -> dict[str, Any]:
        return make_episode(name, self._harm)

    def image(self, digest: str, episode: str) -> bytes:
        return make_picture(digest)

    def picture(self, slot: str) -> bytes:
        self.screens.append(slot)
        return make_picture(slot)

    def command(self, action: str, hand: Hand | None = None) -> None:
        self.commands.append(action)
        if hand is not None:
            self.hands.append(hand)

    @contextlib.contextmanager
    def viewing(self, wants: str, follow: str) -> Iterator[None]:
        self.viewers.append((wants, follow))
        yield


def make_picture(path: str, size: tuple[int, int] = (180, 400)) -> bytes:
    """A screen whose look depends on the path."""
    rng = random.Random(path)
    image = Image.new("RGB", size, rng.choice(["#f4f6fb", "#fdf7ef", "#eef6f0", "#20242b"]))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, size[0], 46), fill=rng.choice(["#3d5afe", "#00796b", "#6d4c41", "#37474f"]))
    for row in range(7):
        top = 62 + 46 * row
        draw.rounded_rectangle((12, top, 168, top + 36), 8, fill="#ffffff", outline="#d5d8de")
        draw.rectangle((22, top + 14, 22 + rng.randint(40, 100), top + 20), fill="#9aa3ad")
    output = io.BytesIO()
    image.save(output, "JPEG", quality=70)
    return output.getvalue()


def make_slots(num_slots: int) -> list[dict[str, Any]]:
    rng = random.Random(0)
    slots = []
    for n in range(num_slots):
        state = rng.choice(["acting"] * 6 + ["thinking"] * 3 + ["resetting", "waiting"])
        device = rng.choice([""] * 12 + ["recovering", "quarantined"])
        touch: dict[str, Any] = {
            "kind": "tap",
            "point": [rng.random(), rng.random()],
            "to": None,
            "text": "Tap",
        }
        if n % 5 == 0:
            touch.update(kind="swipe", to=[rng.random(), rng.random()], text="Swipe up")
        slots.append(
            {
                "worker": f"worker-{n // 16}",
                "slot": n % 16,
                "state": state,
                "device": f"emulator-{5554 + 2 * n}",
            }
            | {"device_state": device, "task": "quickstart/toggle/train/0007", "purpose": "train"}
            | {"goal": "" if state == "waiting" else rng.choice(GOALS), "step": n % 14 + 1, "max_steps": 15}
            | {"idle_s": 3 * rng.random(), "age_s": 0.4, "touch": touch, "width": 90, "height": 200}
            | {"hand": None, "hint": ""}
            | {"screen": f"/api/screen/worker-{n // 16}/{n % 16}?v={n}"}
            | ({"screen": "", "width": 0, "height": 0} if state == "waiting" else {})
        )
    return slots


def make_snapshot(num_slots: int) -> dict[str, Any]:
    stages = [
        ("workers", 55.1, "actions/s", [["slots", "16"], ["episodes/s", "5.1"]]),
        ("servers", 57.0, "requests/s", [["batch size", "7.1"], ["queue", "3"], ["queue wait p50", "41 ms"]]),
        ("learner", 0.61, "updates/s", [["an update", "0.9 s"], ["waits for episodes", "31%"]]),
        ("weights", 0.5, "versions/s", [["versions behind", "2.1"], ["swap pause", "4 ms"]]),
    ]
    success = {"rate": 0.61, "low": 0.51, "high": 0.7, "n": 100}
    alarm = {"level": "bad", "text": "Train-inference mismatch: KL 0.3 (limit 0.05)."}
    pool = [
        {
            "worker": "worker-0",
            "id": "emulator-5554",
            "state": "recovering",
            "reason": "adb does not list it",
            "faults": 2,
        },
        {"worker": "worker-0", "id": "emulator-5556", "state": "busy", "reason": "", "faults": 0},
    ]
    autopsy = {"name": "20260131-120755_emulator-5554", "device": "emulator-5554", "time": time.time() - 300}
    return {
        "time": time.time(),
        "rows": 80,
        "indexed": 812,
        "run": {"name": "small", "path": "/runs/small"},
        "learner": {
            "address": "tcp://127.0.0.1:5700",
            "state": "joined" if num_slots else "none",
            "note": "",
        },
        "line": {
            "phase": "training",
            "version": 12,
            "success": success,
            "validation": success | {"n": 34},
            "done": 812,
            "total": 4200,
            "unit": "episodes",
            "elapsed_s": 301.0,
            "left_s": 921.0,
            "updates": 105,
            "alarms": [alarm | {"remedy": "See docs/operations.md."}] if num_slots else [],
        },
        "slots": make_slots(num_slots),
        "flow": {
            "bottleneck": "servers",
            "why": "requests wait 41 ms at the servers (median)",
            "stages": [dict(zip(("name", "rate", "unit", "facts"), one, strict=True)) for one in stages],
        },
        "devices": {
            "counts": {"ready": 3, "busy": 4, "recovering": 1, "quarantined": 0} if num_slots else {},
            "pool": pool if num_slots else [],
            "faults": {"device": 3, "env": 1, "inference": 0},
            "postmortems": [autopsy | {"error": "adb: offline", "result": "restart", "files": ["fault.json"]}]
            if num_slots
            else [],
        },
        "costs": [["Judge: calls", "120"], ["Judge: cost", "1.20"], ["Free disk space", "40 GB"]],
        "actions": {"allowed": bool(num_slots), "paused": False},
    }


def learning(rng: random.Random, train_x: float, validation_x: float) -> list[dict[str, Any]]:
    train = [[train_x * n, 0.2 + n / 150 + 0.1 * rng.random()] for n in range(80)]
    validation = [[validation_x * n, 0.2 + n / 8, 0.05 + n / 8, 0.35 + n / 8] for n in range(5)]
    return [
        {"label": "training episodes", "points": train},
        {"label": "validation, with 95% interval", "points": validation},
    ]


def make_metrics() -> dict[str, Any]:
    rng = random.Random(1)
    success = {"episodes": learning(rng, 20, 400), "minutes": learning(rng, 0.1, 2)}
    names = ("outcome", "repetition", "invalid", "shaping")
    lines = [{"label": name, "points": [[n, rng.random()] for n in range(60)]} for name in names]
    notes = ("Reward by part", "Entropy", "Effective sample size", "Mismatch", "Staleness")

    return {
        "success": success,
        "signals": [
            {"title": title, "note": "Means of new training episodes.", "lines": lines[: 4 if not n else 1]}
            for n, title in enumerate(notes)
        ],
    }


def make_heatmap(bins: int) -> dict[str, Any]:
    rng, start = random.Random(2), time.time() - 1800
    rows = []
    for task in TEMPLATE_NAMES:
        cells = []
        for n in range(bins):
            episodes, faults = rng.choice([0, 4, 9, 20]), rng.choice([0, 0, 0, 1])
            solved = round(max(0, episodes - faults) * min(1.0, 0.2 + 0.8 * n / bins))
            cells.append([episodes, solved, min(faults, episodes), max(0, episodes - faults)])
        rows.append({"task": task, "episodes": sum(cell[0] for cell in cells), "cells": cells})
    return {
        "times": [start + 1800 * n / bins for n in range(bins + 1)],
        "rows": rows,
    }


def make_row(seq: int, harm: str = "") -> dict[str, Any]:
    solved, fault = seq % 3 == 0, "device" if seq % 11 == 0 else ""
    ended = "device fault" if fault else "solved" if solved else "not solved"
    return {
        "seq": seq,
        "id": f"{seq:032x}",
        "task": f"quickstart/toggle/train/{seq % 5:04}",
        "template": TEMPLATE_NAMES[seq % 4],
        "goal": harm or GOALS[seq % 4],
        "purpose": "train",
        "ended": ended,
        "outcome": "success" if solved else "failure",
        "solved": solved and not fault,
        "fault": fault,
        "mode": "" if solved else "stuck",
        "mode_words": "" if solved else "Gets stuck midway",
        "steps": 6,
        "reward": 0.9 if solved else -0.1,
        "duration_s": 3.1,
        "started_at": time.time() - 3 * (900 - seq),
        "worker": "worker-0",
        "slot": seq % 16,
        "group": f"group-{seq // 4}",
        "versions": f"v{seq // 80}–v{seq // 80 + 1}",
        "oldest_version": seq // 80,
        "staleness": seq % 4,
        "quarantined": "",
    }


def make_episodes(chosen: Selection, harm: str = "") -> dict[str, Any]:
    rows = [row for row in (make_row(seq, harm) for seq in range(812, 0, -1)) if chosen.fits(row)]
    return {
        "rows": rows[: chosen.limit],
        "more": len(rows) > chosen.limit,
        "indexed": 812,
        "total": 812,
        "modes": {"stuck": "Gets stuck midway"},
        "templates": list(TEMPLATE_NAMES),
    }


def make_episode(id: str, harm: str = "") -> dict[str, Any]:
    seq = int(id, 16)
    rng, row = random.Random(seq), make_row(seq, harm)

    def shot(n: int) -> dict[str, Any]:
        return {"image": f"/api/image/{seq}-{n}?episode={id}", "width": 180, "height": 400}

    def step(n: int) -> dict[str, Any]:
        words = [harm] if harm else ["tap", " 41", " 12", "<end>"]
        tokens = [{"text": word, "logprob": -rng.random(), "shade": rng.randint(0, 9)} for word in words]
        point = {"kind": "tap", "x": 100 * rng.random(), "y": 222 * rng.random(), "arrow": ""}
        return {
            "number": n,
            "shot": shot(n),
            "mark": point,
            "action": f"Tap {point['x']:.0f}%, {point['y'] / 2.22:.0f}%",
            "detail": "",
            "touched": 7,
            "probability": rng.random(),
            "versions": "v4",
            "rewards": {"outcome": 1.0} if n == 6 else {"repetition": -0.1},
            "reward": 1.0 if n == 6 else -0.1,
            "value": rng.random(),
            "advantage": rng.random() - 0.4,
            "ratio": 0.9 + rng.random() / 5,
            "app": "settings",
            "seconds": {"observe": 0.01, "think": 0.1, "act": 0.05},
            "elements": [{"number": 7, "text": "Wi-Fi", "class": "Switch", "flags": []}],
            "calls": [
                {"prompt": harm or "Goal: …", "answer": harm or "tap 7", "logprob": -0.19, "tokens": tokens}
            ],
        }

    return {
        "row": row,
        "reason": harm or "The switch is on, as the goal wants.",
        "tone": "good" if row["outcome"] == "success" else "bad",
        "judged": [["score", "0.90"], ["judge", "vlm"], ["answers", harm or "yes, yes, no"]],
        "final": shot(7),
        "group": [make_row(one, harm) for one in range(4 * (seq // 4), 4 * (seq // 4) + 4) if one != seq],
        "trained": 105,
        "steps": [step(n) for n in range(1, 7)],
    }
