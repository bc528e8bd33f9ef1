"""What `distrl train` shows: one line that changes on a terminal, plain lines now and then in a log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from distrl.configs.schema import Config
from distrl.core.logs import printable
from distrl.core.messages import Status
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL
from distrl.core.terminal import Console
from distrl.evaluator.progress import TimeLeft, unit_of

LINE_EVERY_S = 15.0
STEPS_PER_S = "throughput/env_steps_per_s"
NUMBERS = (
    ("return", "train/return", "{:.1f}"),
    ("validation", "eval/return", "{:.1f}"),
    ("staleness", "off_policy/staleness_mean", "{:.1f}"),
    ("steps/s", STEPS_PER_S, "{:.0f}"),
    ("train success", "train/success", "{:.0%}"),
)
"""Labels, metrics and their formats; those that the learner broadcasts are shown."""
Fields = list[tuple[str, str]]


class Progress:
    """Shows where the run of `config` stands. `now` gives monotonic seconds."""

    def __init__(self, config: Config, console: Console, now: Callable[[], float] = time.monotonic) -> None:
        self._config, self._console, self._now = config, console, now
        self._goal = config.goal
        self._numbers = (*NUMBERS, ("validation", f"eval/{config.tasks.validation}/success", "{:.0%}"))
        self._started_at = now()
        self._phase, self._is_counted = "starting", False
        self._left = TimeLeft(now)
        self._next_line = 0.0
        self._spinner = Spinner("dots")
        self._is_alarmed = False
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(text, soft_wrap=True)

    def show(self, status: Status | None, processes: int, restarts: int) -> None:
        """Shows the learner's newest status, and how many children run and replaced another."""
        around = [("processes", str(processes)), *([("restarts", str(restarts))] if restarts else [])]
        if status is None:
            self._draw("starting", "", 0.0, 0.0, around, {})
            return
        self._warn(status.metrics)
        unit = unit_of(status.phase, self._goal)
        done, total = (status.metrics.get(name, 0.0) for name in (PHASE_DONE, PHASE_TOTAL))
        self._draw(status.phase, unit, done, total, self._fields(status) + around, status.metrics)

    def show_evaluations(self, counts: Mapping[str, tuple[int, int]], num: int) -> None:
        """Shows how far `num` evaluations are: by checkpoint, what is done, and of how much."""
        done = sum(done for done, _ in counts.values())
        total = num * max((total for _, total in counts.values()), default=0)
        fields = [(name, f"{done}/{total}") for name, (done, total) in counts.items()] if num > 1 else []
        self._draw("evaluating", self._goal.measured, done, total, fields, {})

    def _draw(
        self,
        phase: str,
        unit: str,
        done: float,
        total: float,
        fields: Fields,
        metrics: Mapping[str, float],
    ) -> None:
        """Draws on a terminal; in a log prints a line now and then, and when a phase or its total is new."""
        now = self._now()
        is_new = (phase, total > 0) != (self._phase, self._is_counted)
        self._phase, self._is_counted = phase, total > 0
        left_s = self._left.left_s(phase, done, total, metrics, self._config)
        counted = [(unit, f"{done:.0f}/{total:.0f}")] if total else []
        left = [("", f"{clock(left_s)} left")] if left_s < math.inf else []
        fields = [("", clock(now - self._started_at)), *counted, *left, *fields]
        if self._live is not None:
            share = min(1.0, done / total) if total else float(phase == "done")
            self._live.update(self._render(phase, fields, share))
        elif is_new or now >= self._next_line:
            self._next_line = now + LINE_EVERY_S
            self.note(
                f"[{phase}] " + " · ".join(f"{name} {value}" if name else value for name, value in fields)
            )

    def _warn(self, metrics: Mapping[str, float]) -> None:
        """Reports once when the learner's alarm begins, and when it is over."""
        is_alarmed = bool(metrics.get("mismatch/alarm"))
        if is_alarmed and not self._is_alarmed:
            kl, limit = (metrics.get(f"mismatch/{name}", 0.0) for name in ("kl_recent", "kl_limit"))
            self.note(
                f"ALARM: train-inference mismatch, KL {kl:.3g} per token (limit {limit:.3g}). An inference "
                "server runs different weights than it reports, or computes differently. "
                "See logs/learner.log."
            )
        elif self._is_alarmed and not is_alarmed:
            self.note("The train-inference mismatch alarm has cleared.")
        self._is_alarmed = is_alarmed

    def _fields(self, status: Status) -> Fields:
        metrics, numbers = status.metrics, self._numbers
        fields = [(label, form.format(metrics[name])) for label, name, form in numbers if name in metrics]
        if metrics.get("updates"):
            fields.append(("updates", f"{metrics['updates']:.0f}"))
        if "workers/actions_per_s" in metrics and STEPS_PER_S not in metrics:
            fields.append(("actions/s", f"{metrics['workers/actions_per_s']:.1f}"))
        # Devices of the pool that work, where they are fewer than the configuration names.
        states = ("workers/devices_ready", "workers/devices_busy")
        found = [metrics[name] for name in states if name in metrics]
        slots = self._config.worker.slots * self._config.local.workers
        wanted = min(self._config.devices.num_named, slots)
        if found and sum(found) < wanted:
            fields.append(("devices", f"{sum(found):.0f}/{wanted}"))
        if status.weights is not None:
            fields.append(("version", str(status.weights.version)))
        return fields

    def _render(self, phase: str, fields: Fields, share: float) -> Group:
        top = Table.grid(padding=(0, 1))
        name = self._console.render_str(phase, style="bold")
        top.add_row(self._spinner, name, ProgressBar(100, share * 100, width=30))
        words = Text("  ")
        for label, value in fields:
            words.append(printable(f"{label} ") if label else "", style="dim")
            words.append(f"{value}   ")
        return Group(top, words)


def clock(seconds: float) -> str:
    """Minutes and seconds, e.g. "3:07"; with hours from one hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
