"""The state of a run at one moment, as `distrl dashboard` and `distrl top` show it.

Pure functions of what the sources said: the run directory's files, the learner's status and wall.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from distrl.configs.schema import Config
from distrl.core.messages import SlotReport, Status, Wall
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL
from distrl.core.slot_view import SlotView
from distrl.core.types import ActionRecord
from distrl.evaluator.progress import unit_of
from distrl.evaluator.report.episodes import describe
from distrl.evaluator.report.training import VALIDATION_SUCCESS, bounds

TRAIN_WINDOW = 100
"""Episodes behind `train/success`."""

GONE_S = 10.0
"""A worker whose newest report is older is shown as gone."""

LOW_DISK = 2 * 2**30
LOW_SHARE = 0.1
WAITING, IDLE = 0.1, 0.25
"""Shares of the learner's time: above the second it waits for episodes, below the first it does not."""

Facts = list[list[str]]


@dataclass(frozen=True)
class Sources:
    """What is known now.

    Attributes:
        metrics: The newest value of each metric.
        left_s: Seconds until the end of the run's phase, infinite if unknown.
        wall_age_s: How old `wall` is.
        num_quarantined, num_episodes: Of the store; None without a directory.
        faults: Faulted episodes by fault.
    """

    config: Config | None
    path: str
    phase: str
    metrics: Mapping[str, float]
    status: Status | None
    wall: Wall | None
    wall_age_s: float
    address: str
    state: str
    note: str
    left_s: float
    num_quarantined: int | None = None
    num_episodes: int | None = None
    store_bytes: int | None = None
    disk: tuple[int, int] | None = None
    faults: Mapping[str, int] = field(default_factory=dict)
    postmortems: Sequence[Mapping[str, Any]] = ()
    versions: Mapping[tuple[str, int], int] = field(default_factory=dict)  # of slots' pictures


def snapshot(of: Sources, now: float, allowed: bool, why: str) -> dict[str, Any]:
    """The snapshot as plain data; `allowed` and `why` say whether the owner's actions are possible."""
    config = of.config
    run_id = of.status.run_id if of.status is not None else ""
    return {
        "time": now,
        "run": {
            "name": config.name if config is not None else run_id,
            "path": of.path,
            "suite": config.tasks.suite if config is not None and not _is_appo(config) else "",
            "kind": "appo" if _is_appo(config) else "gui",
            "unit": config.goal.unit if config is not None else "training episodes",
        },
        "learner": {"address": of.address, "state": of.state, "note": of.note},
        "line": _line(of),
        "slots": _slots(of),
        "flow": flow(of.metrics, of.status),
        "devices": _devices(of),
        "costs": _costs(of),
        "actions": {
            "allowed": allowed,
            "why": why,
            "paused": of.status.is_held if of.status is not None else False,
        },
    }


def _is_appo(config: Config | None) -> bool:
    """Whether workers act and train themselves, on environments without a suite."""
    return config is not None and config.learner.algorithm.kind == "appo"


def progress(config: Config | None, metrics: Mapping[str, float]) -> tuple[float, float]:
    """What is done of the present phase, and how much there is (0: unknown)."""
    if PHASE_TOTAL in metrics:
        return metrics[PHASE_DONE], metrics[PHASE_TOTAL]
    if config is None:
        return metrics.get("episodes", 0.0), 0.0
    return metrics.get(config.goal.counter, 0.0), float(config.goal.amount)


def _line(of: Sources) -> dict[str, Any]:
    metrics = of.metrics
    done, total = progress(of.config, metrics)
    counted = of.phase if PHASE_TOTAL in metrics else "training"
    unit = "episodes" if of.config is None else unit_of(counted, of.config.goal)
    version = of.status.weights.version if of.status is not None and of.status.weights else None
    return {
        "phase": of.phase,
        "version": version if version is not None else _whole(metrics.get("versions")),
        "success": _train_success(metrics),
        "validation": _validation(of.config, metrics),
        "done": round(done),
        "total": round(total) or None,
        "unit": unit,
        "elapsed_s": metrics.get("time/elapsed_s"),
        "left_s": of.left_s if math.isfinite(of.left_s) else None,
        "updates": _whole(metrics.get("updates", metrics.get("step"))),
        "alarms": alarms(of),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _train_success(metrics: Mapping[str, float]) -> dict[str, Any] | None:
    rate = metrics.get("train/success")
    if rate is None:
        return None
    count = min(TRAIN_WINDOW, max(1, round(metrics.get("episodes", TRAIN_WINDOW))))
    return _rate(rate, count, f"last {count} training episodes")


def _validation(config: Config | None, metrics: Mapping[str, float]) -> dict[str, Any] | None:
    name = next((name for name in metrics if re.fullmatch(VALIDATION_SUCCESS, name)), None)
    if name is None:
        return None
    stem = name.removesuffix("success")
    return _rate(metrics[name], round(metrics.get(f"{stem}episodes", 0)), stem.split("/")[1])


def _rate(rate: float, count: int, name: str) -> dict[str, Any]:
    rate = min(1.0, max(0.0, rate))
    low, high = bounds(rate, count)
    return {"rate": rate, "low": low, "high": high, "n": count, "name": name}


def alarms(of: Sources) -> list[dict[str, str]]:
    """What a person should look at, the worst first, each with its remedy."""
    found: list[dict[str, str]] = []

    def alarm(kind: str, level: str, text: str, remedy: str) -> None:
        found.append({"kind": kind, "level": level, "text": text, "remedy": remedy})

    metrics, is_running = of.metrics, of.phase not in ("done", "stopped", "starting")
    if metrics.get("mismatch/alarm"):
        kl, limit = metrics.get("mismatch/kl_recent", 0.0), metrics.get("mismatch/kl_limit", 0.0)
        alarm(
            "mismatch",
            "bad",
            f"Train-inference mismatch: KL {kl:.3g} per token (limit {limit:.3g}).",
            "Check that all servers run the same versions and precision; see docs/models.md.",
        )
    if of.disk is not None and of.disk[0] < min(LOW_DISK, LOW_SHARE * of.disk[1]):
        alarm("disk", "bad", f"Only {size(of.disk[0])} of disk space are free.", "Free some disk space.")
    if is_running and metrics.get("workers/alive") == 0:
        alarm("workers", "bad", "No worker is connected.", "Start one with `distrl run-worker CONFIG`.")
    if is_running and metrics.get("inference/alive") == 0 and not _is_appo(of.config):
        alarm(
            "servers",
            "bad",
            "No inference server is connected.",
            "Start one with `distrl serve-inference CONFIG`.",
        )
    quarantined = of.num_quarantined
    if quarantined is None:
        quarantined = round(metrics.get("ingest/quarantined", 0.0))
    if quarantined:
        alarm(
            "quarantined",
            "warn",
            f"Quarantined trajectories, which cannot be trained on: {quarantined}.",
            "`distrl inspect RUN` lists them with the reasons.",
        )
    if count := round(metrics.get("workers/suspended", 0.0)):
        alarm("suspended", "warn", f"Workers without leases: {count}.", "See their logs for the rejections.")
    if count := round(metrics.get("batch/skipped", 0.0)):
        alarm(
            "skipped",
            "warn",
            f"Batches skipped because a loss or gradient was not finite: {count}.",
            "Lower learner.optim.lr if it goes on.",
        )
    counts = device_counts(metrics)
    if counts.get("quarantined"):
        text = f"{counts['quarantined']} of {sum(counts.values())} devices are quarantined."
        level = "warn" if counts["quarantined"] < sum(counts.values()) else "bad"
        alarm("devices", level, text, "See their reasons below, and docs/devices.md.")
    return sorted(found, key=lambda one: one["level"])


def _slots(of: Sources) -> list[dict[str, Any]]:
    if of.wall is None:
        return []
    found = []
    for report, age_s in zip(of.wall.reports, of.wall.ages_s, strict=False):
        states = {device.id: device.state for device in report.devices}
        for view in report.slots:
            found.append(_slot(of, report, view, age_s + of.wall_age_s, states))
    return sorted(found, key=lambda one: (one["worker"], one["slot"]))


def _slot(
    of: Sources, report: SlotReport, view: SlotView, age_s: float, states: Mapping[str, str]
) -> dict[str, Any]:
    touch, version = view.touch, of.versions.get((report.worker, view.slot))
    at = f"/api/screen/{quote(report.worker, safe='')}/{view.slot}.jpg?v={version}"
    shown = None
    if touch is not None:
        words = describe(ActionRecord(**touch.model_dump()))
        shown = {"kind": touch.kind, "point": touch.point, "to": touch.to, "text": words}
    return {
        "worker": report.worker,
        "slot": view.slot,
        "state": "gone" if age_s > GONE_S else view.state,
        "device": view.device,
        "device_state": states.get(view.device, ""),
        "task": view.task,
        "goal": view.goal,
        "purpose": view.purpose.value if view.purpose else "",
        "step": view.step,
        "max_steps": view.max_steps,
        "idle_s": view.idle_s,
        "age_s": age_s,
        "touch": shown,
        "hand": view.hand,
        "hint": view.hint,
        "screen": at if version is not None else "",
        "width": view.width,
        "height": view.height,
    }


def device_counts(metrics: Mapping[str, float]) -> dict[str, int]:
    """Devices of all pools by state; {} without pools."""
    names = ("ready", "busy", "recovering", "quarantined")
    found = {name: round(metrics.get(f"workers/devices_{name}", 0.0)) for name in names}
    return found if any(found.values()) else {}


def _devices(of: Sources) -> dict[str, Any]:
    reports = of.wall.reports if of.wall is not None else ()
    pool = [
        {"worker": report.worker, **device.model_dump()} for report in reports for device in report.devices
    ]
    return {
        "counts": device_counts(of.metrics),
        "pool": sorted(pool, key=lambda one: (one["worker"], one["id"])),
        "faults": dict(of.faults),
        "postmortems": list(of.postmortems),
    }


STAGES: tuple[tuple[str, str, str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        *("workers", "workers/actions_per_s", "actions/s"),
        (
            ("workers", "workers/alive", "{:.0f}"),
            ("episodes/s", "workers/episodes_per_s", "{:.2g}"),
            ("idle", "workers/idle_share", "{:.0%}"),
        ),
    ),
    (
        *("servers", "inference/requests_per_s", "requests/s"),
        (
            ("servers", "inference/alive", "{:.0f}"),
            ("batch size", "inference/batch_size", "{:.1f}"),
            ("queue", "inference/queue", "{:.0f}"),
            ("queue wait p50", "inference/queue_wait_p50_ms", "{:.0f} ms"),
            ("queue wait p99", "inference/queue_wait_p99_ms", "{:.0f} ms"),
            ("a batch p50", "inference/batch_p50_ms", "{:.0f} ms"),
        ),
    ),
    (
        *("learner", "", "updates/s"),
        (
            ("an update", "time/update_s", "{:.2g} s"),
            ("waits for episodes", "time/wait_for_episodes", "{:.0%}"),
            ("waits for batches", "time/wait_for_batch", "{:.0%}"),
            ("replay", "replay/size", "{:,.0f}"),
        ),
    ),
    (
        *("weights", "", ""),
        (
            ("versions", "versions", "{:,.0f}"),
            ("versions behind, in training", "off_policy/staleness_mean", "{:.1f}"),
            ("at arrival", "off_policy/ingest_staleness", "{:.1f}"),
            ("swap pause", "inference/swap_pause_ms", "{:.0f} ms"),
        ),
    ),
)
"""Name, metric and unit of the rate, and facts: label, metric, format. The learner's rate is computed."""


def flow(metrics: Mapping[str, float], status: Status | None) -> dict[str, Any]:
    """How actions, requests, updates and weights flow, and what limits them."""
    bottleneck, why = find_bottleneck(metrics, status)
    stages: list[dict[str, Any]] = []
    for name, rate, unit, facts in STAGES:
        known = [[label, form.format(metrics[key])] for label, key, form in facts if key in metrics]
        stages.append({"name": name, "rate": metrics.get(rate), "unit": unit, "facts": known})
    if status is not None and status.slots:
        stages[0]["facts"].insert(1, ["slots", f"{sum(status.slots.values()):,}"])
    if update_s := metrics.get("time/update_s"):
        stages[2]["rate"] = (1.0 - metrics.get("time/wait_for_episodes", 0.0)) / update_s
    return {"bottleneck": bottleneck, "why": why, "stages": stages}


def find_bottleneck(metrics: Mapping[str, float], status: Status | None) -> tuple[str, str]:
    """Which role limits the run, and why: "workers", "servers", "learner", "devices", or "" if unknown."""
    if status is not None and status.is_held:
        return "", "the owner has paused the run"
    if status is not None and status.paused:
        return "learner", "more episodes arrive than it takes"
    waits = metrics.get("time/wait_for_episodes")
    if waits is None:
        return "", "the learner has made no update yet"
    if waits < WAITING:
        return "learner", f"it computes {1.0 - waits:.0%} of its time"
    idle = metrics.get("workers/idle_share", 0.0)  # known of simulations and traces
    if idle > max(0.5, waits):
        return "learner", f"slots are without an episode {idle:.0%} of their time"
    counts, wait_ms = device_counts(metrics), metrics.get("inference/queue_wait_p50_ms")
    batch_ms = metrics.get("inference/batch_p50_ms")
    if wait_ms is not None and batch_ms is not None and wait_ms > 0.5 * batch_ms:
        return "servers", f"requests wait {wait_ms:.0f} ms for batches of {batch_ms:.0f} ms (medians)"
    if counts and not counts["ready"] and counts["recovering"] + counts["quarantined"] > counts["busy"]:
        return "devices", "most devices are under repair"
    if waits < IDLE:
        return "", f"the learner waits for episodes {waits:.0%} of its time; nothing stands out"
    return "workers", f"the learner waits for episodes {waits:.0%} of its time, the servers do not queue"


def _costs(of: Sources) -> Facts:
    metrics, found = of.metrics, list[list[str]]()
    if metrics.get("judge/calls") or metrics.get("judge/judged"):
        found.append(["Judge: verdicts", f"{metrics.get('judge/judged', 0):,.0f}"])
        found.append(["Judge: calls", f"{metrics.get('judge/calls', 0):,.0f}"])
        tokens = [f"{metrics.get(f'judge/{name}_tokens', 0):,.0f}" for name in ("input", "output")]
        found.append(["Judge: tokens, in and out", " + ".join(tokens)])
        if metrics.get("judge/cost"):
            found.append(["Judge: cost", f"{metrics['judge/cost']:.4g}"])
        found.append(["Judge: waiting", f"{metrics.get('judge/waiting', 0):,.0f}"])
    if "weights/sent_bytes" in metrics:
        found.append(["Sent as weights", size(metrics["weights/sent_bytes"])])
    if of.num_episodes is not None:
        limit = f" of {size(of.config.store.max_bytes)}" if of.config is not None else ""
        on_disk = f", {size(of.store_bytes)}{limit}" if of.store_bytes is not None else ""
        found.append(["Stored episodes", f"{of.num_episodes:,}{on_disk}"])
    if of.disk is not None:
        found.append(["Free disk space", f"{size(of.disk[0])} of {size(of.disk[1])}"])
    return found


def size(num_bytes: float) -> str:
    """A number of bytes, e.g. "1.2 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} {unit}" if unit == "B" else f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"
