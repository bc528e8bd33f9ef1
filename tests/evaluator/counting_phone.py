"""An environment whose tasks are solved by a number of taps, and which faults when a task says so."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from PIL import Image

from distrl.configs.schema import Config
from distrl.core.actions import Action, ActionKind
from distrl.core.errors import EnvError
from distrl.core.types import ChatMessage, Completion, Prefix, Sampling, Task, TextPart
from distrl.evaluator.progress import EvaluationProgress
from distrl.evaluator.statistics import EpisodeResult
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.envs.base import Frame, StepResult


class Quiet(EvaluationProgress):
    """Keeps what is said and the results; sets `stop` after `stop_after` episodes."""

    def __init__(self, stop: threading.Event | None = None, stop_after: int = 0) -> None:
        self.said: list[str] = []
        self.results: list[EpisodeResult] = []
        self.stop, self.stop_after = stop, stop_after

    def start(self, total: int, done: int) -> None:
        self.said.append(f"{done} of {total}")

    def add(self, result: EpisodeResult, is_final: bool) -> None:
        self.results.append(result)
        if self.stop is not None and len(self.results) == self.stop_after:
            self.stop.set()

    def say(self, message: str) -> None:
        self.said.append(message)

    def close(self) -> None:
        pass


TAP = Action.tap(0.5, 0.5)
COMPLETE = Action(kind=ActionKind.COMPLETE)


class CountingEnv:
    """`params`: "taps" solve the task; the first "faults" resets of the task fail, in this process."""

    resets: ClassVar[Counter[str]] = Counter()

    def __init__(self, starts: bool = True) -> None:
        if not starts:
            raise EnvError("the phone does not boot", fault="device")
        self.taps = 0
        self.task: Task | None = None

    def reset(self, task: Task) -> Frame:
        CountingEnv.resets[task.id] += 1
        if CountingEnv.resets[task.id] <= task.params.get("faults", 0):
            raise EnvError("the phone went away", fault="device")
        self.task, self.taps = task, 0
        return self._frame()

    def step(self, action: Action) -> StepResult:
        self.taps += action.kind is ActionKind.TAP
        return StepResult(self._frame())

    def evaluate(self) -> float:
        assert self.task is not None
        return float(self.taps == self.task.params["taps"])

    def expert_action(self) -> Action:
        assert self.task is not None
        return TAP if self.taps < self.task.params["taps"] else COMPLETE

    def close(self) -> None:
        pass

    def _frame(self) -> Frame:
        return Frame.of(Image.new("RGB", (36, 80), (10 * self.taps % 256, 80, 160)), app="counter")


class TappingPolicy:
    """Taps `taps` times and then says that it is done, whatever the task."""

    def __init__(self, taps: int) -> None:
        self.taps = taps
        self.asked: list[Sampling] = []

    def act(
        self, messages: Sequence[ChatMessage], images: Mapping[str, bytes], sampling: Sampling, prefix: Prefix
    ) -> Completion:
        self.asked.append(sampling)
        text = " ".join(p.text for m in messages for p in m.parts if isinstance(p, TextPart))
        found = re.search(r"step (\d+)", text)
        assert found is not None
        action = TAP if int(found.group(1)) < self.taps else COMPLETE
        return Completion(
            text=AutoUIAgent().format(action), token_ids=(1,), logprobs=(-0.5,), weight_versions=(4,)
        )

    def close(self) -> None:
        pass


def write_suite(folder: Path, tasks: Sequence[dict[str, object]]) -> Path:
    """A task file. Each entry needs "taps", and may have "split", "template" and "faults"."""
    file = folder / "counting.jsonl"
    lines = [
        {
            "id": f"counting/{folder.name}/{number}",
            "suite": "counting",
            "split": entry.get("split", "test"),
            "template": entry.get("template", "count"),
            "goal": f"Tap {entry['taps']} times",
            "params": {key: entry[key] for key in ("taps", "faults") if key in entry},
            "max_steps": 6,
        }
        for number, entry in enumerate(tasks)
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def counting_config(suite: Path, **evaluate: object) -> Config:
    """A configuration whose phone is a `CountingEnv`."""
    return Config.model_validate(
        {
            "tasks": {"suite": str(suite)},
            "env": {"import_path": "counting_phone:CountingEnv"},
            "evaluate": {"slots": 2, **evaluate},
        }
    )
