"""What `distrl train` shows: one line that changes on a terminal, plain lines now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from distrl.configs.schema import Config
from distrl.core.messages import Status
from distrl.core.model_points import doubt_of_files

LINE_EVERY_S = 15.0


class Progress:
    """Shows where the run stands.

    Args:
        config: Of the run: how many episodes make it complete.
        console: Where to.
    """

    def __init__(self, config: Config, console: Console) -> None:
        self._config = config
        self._is_control, self._env_steps = config.is_control, config.learner.appo.max_env_steps
        self._episodes = config.learner.episodes
        self._demonstrations = config.learner.demonstrations.episodes
        self._cloning = config.learner.demonstrations.updates
        self._rates = {
            "train success": "train/success",
            "validation": f"eval/{config.tasks.validation}/success",
        }
        self._console = console
        self._started_at = time.monotonic()
        self._phase = "starting"
        self._next_line = 0.0
        self._spinner = Spinner("dots")
        self._is_alarmed = self._has_weights = False
        self._live = Live(console=console, refresh_per_second=4) if console.is_terminal else None

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """Prints a line that stays."""
        self._console.print(Text(text))

    def show(self, status: Status | None, processes: int, restarts: int) -> None:
        """Shows the newest state; call it often.

        Args:
            status: What the learner said last; None before it said anything.
            processes, restarts: How many children run; how many replaced another.
        """
        phase = status.phase if status is not None else "starting"
        if status is not None:
            self._warn(status.metrics)
            self._warn_of_points(status)
        fields = self._fields(status, processes, restarts)
        if self._live is not None:
            self._live.update(self._render(phase, fields, self._share(status)))
            return
        now = time.monotonic()
        if phase != self._phase or now >= self._next_line:
            self._phase, self._next_line = phase, now + LINE_EVERY_S
            line = " · ".join(f"{name} {value}" if name else value for name, value in fields)
            self._console.print(Text(f"[{phase}] {line}"), soft_wrap=True)

    def _warn(self, metrics: Mapping[str, float]) -> None:
        """Says once when the learner's alarm begins, and when it is over."""
        is_alarmed = bool(metrics.get("mismatch/alarm"))
        if is_alarmed and not self._is_alarmed:
            kl, limit = (metrics.get(f"mismatch/{name}", 0.0) for name in ("kl_recent", "kl_limit"))
            self.note(
                f"ALARM, train-inference mismatch: KL {kl:.3g} of a token (limit {limit:.3g}): an inference "
                "server acts with other weights than it names, or computes otherwise. logs/learner.log says "
                "more."
            )
        elif self._is_alarmed and not is_alarmed:
            self.note("The alarm of train-inference mismatch is over.")
        self._is_alarmed = is_alarmed

    def _warn_of_points(self, status: Status) -> None:
        """Says once, when the model's files are here, what the learner's log says of the agent's points."""
        if self._has_weights or status.weights is None:
            return
        self._has_weights = True
        warning = doubt_of_files(self._config.agent, self._config.policy)
        if warning is not None:
            self.note(f"warning: {warning}")

    def _fields(self, status: Status | None, processes: int, restarts: int) -> list[tuple[str, str]]:
        fields = [("", clock(time.monotonic() - self._started_at))]
        if status is not None:
            metrics = status.metrics
            if self._is_control:
                fields += self._control_fields(metrics)
            elif metrics.get("episodes"):
                fields.append(("episodes", f"{metrics['episodes']:.0f}/{self._episodes}"))
            elif metrics.get("cloning_updates"):
                fields.append(("cloning", f"{metrics['cloning_updates']:.0f}/{self._cloning}"))
            elif "demonstrations" in metrics:
                fields.append(("demonstrations", f"{metrics['demonstrations']:.0f}/{self._demonstrations}"))
            fields += [
                (label, f"{metrics[name]:.0%}") for label, name in self._rates.items() if name in metrics
            ]
            if metrics.get("updates"):
                fields.append(("updates", f"{metrics['updates']:.0f}"))
            if "workers/actions_per_s" in metrics and not self._is_control:
                fields.append(("actions/s", f"{metrics['workers/actions_per_s']:.1f}"))
            if lacking := self._devices(metrics):
                fields.append(("devices", lacking))
            if status.weights is not None:
                fields.append(("version", str(status.weights.version)))
        fields.append(("processes", str(processes)))
        if restarts:
            fields.append(("restarts", str(restarts)))
        return fields

    def _devices(self, metrics: Mapping[str, float]) -> str:
        """How many devices of the pool work, where they are fewer than the configuration names; else ""."""
        numbers = [metrics.get(f"workers/devices_{state}") for state in ("ready", "busy")]
        found = [number for number in numbers if number is not None]
        wanted = self._config.devices.num_named
        slots = self._config.worker.slots * self._config.local.workers
        return f"{sum(found):.0f}/{min(wanted, slots)}" if found and sum(found) < min(wanted, slots) else ""

    def _control_fields(self, metrics: Mapping[str, float]) -> list[tuple[str, str]]:
        fields = [("steps", f"{metrics.get('env_steps', 0):.0f}/{self._env_steps}")]
        fields += [
            (label, f"{metrics[name]:.1f}")
            for label, name in (
                ("return", "train/return"),
                ("validation", "eval/return"),
                ("staleness", "off_policy/staleness_mean"),
            )
            if name in metrics
        ]
        if "throughput/env_steps_per_s" in metrics:
            fields.append(("steps/s", f"{metrics['throughput/env_steps_per_s']:.0f}"))
        return fields

    def _share(self, status: Status | None) -> float:
        name, total = ("env_steps", self._env_steps) if self._is_control else ("episodes", self._episodes)
        return min(1.0, status.metrics.get(name, 0) / total) if status is not None else 0.0

    def _render(self, phase: str, fields: list[tuple[str, str]], share: float) -> Group:
        top = Table.grid(padding=(0, 1))
        top.add_row(self._spinner, Text(phase, style="bold"), ProgressBar(100, share * 100, width=30))
        words = Text("  ")
        for name, value in fields:
            words.append(f"{name} " if name else "", style="dim")
            words.append(f"{value}   ")
        return Group(top, words)


def clock(seconds: float) -> str:
    """Minutes and seconds, e.g. "3:07"; with hours from one hour on."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
