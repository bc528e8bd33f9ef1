"""The parts of a run's state at one moment, as `distrl dashboard` and `distrl top` show it.

Pure functions of what the sources said: the newest value of each metric, the learner's status and wall.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from rich.filesize import decimal

from distrl.configs.schema import Config
from distrl.core.messages import Status, Wall
from distrl.core.metrics import PHASE_DONE, PHASE_TOTAL
from distrl.core.types import ActionRecord
from distrl.evaluator.progress import unit_of
from distrl.evaluator.report.episodes import describe
from distrl.evaluator.report.training import TRAIN_SUCCESS, VALIDATION_SUCCESS, bounds

TRAIN_WINDOW = 100
"""Episodes behind `train/success`."""

GONE_S = 10.0
"""A worker whose newest report is older is shown as gone."""

LOW_DISK = 2 * 2**30
LOW_SHARE = 0.1
WAITING, IDLE = 0.1, 0.25
"""Shares of the learner's time: above the second it waits for episodes, below the first it does not."""

Metrics = Mapping[str, float]


def progress(config: Config | None, metrics: Metrics) -> tuple[float, float]:
    """What is done of the present phase, and how much there is (0: unknown)."""
    if PHASE_TOTAL in metrics:
        return metrics.get(PHASE_DONE, 0.0), metrics[PHASE_TOTAL]
    if config is None:
        return metrics.get("episodes", 0.0), 0.0
    return metrics.get(config.goal.counter, 0.0), float(config.goal.amount)


def line(
    config: Config | None, phase: str, metrics: Metrics, status: Status | None, left_s: float
) -> dict[str, Any]:
    """Where the run stands; `left_s` is infinite if unknown."""
    done, total = progress(config, metrics)
    counted = phase if PHASE_TOTAL in metrics else "training"
    weights = status.weights if status is not None else None
    version = metrics.get("versions") if weights is None else weights.version
    updates = metrics.get("updates", metrics.get("step"))
    return {
        "phase": phase,
        "version": None if version is None else round(version),
        "success": _success(metrics, TRAIN_SUCCESS, min(TRAIN_WINDOW, metrics.get("episodes", TRAIN_WINDOW))),
        "validation": _validation(metrics),
        "done": round(done),
        "total": round(total) or None,
        "unit": "episodes" if config is None else unit_of(counted, config.goal),
        "elapsed_s": metrics.get("time/elapsed_s"),
        "left_s": left_s if math.isfinite(left_s) else None,
        "updates": None if updates is None else round(updates),
    }


def _validation(metrics: Metrics) -> dict[str, Any] | None:
    name = next((name for name in metrics if re.fullmatch(VALIDATION_SUCCESS, name)), "")
    return _success(metrics, name, metrics.get(f"{name.removesuffix('success')}episodes", 0.0))


def _success(metrics: Metrics, name: str, num: float) -> dict[str, Any] | None:
    """A success rate with its interval over `num` episodes; None if it was not measured."""
    if name not in metrics:
        return None
    rate, count = min(1.0, max(0.0, metrics[name])), max(0, round(num))
    low, high = bounds(rate, count)
    return {"rate": rate, "low": low, "high": high, "n": count}


def alarms(
    config: Config | None,
    phase: str,
    metrics: Metrics,
    disk: tuple[int, int] | None,
    num_quarantined: int | None,
) -> list[dict[str, str]]:
    """What a person should look at, the worst first, each with its remedy.

    Args:
        disk: The total and the free bytes of the run's disk; None without a directory.
        num_quarantined: Trajectories of the store; None without a directory.
    """
    found: list[dict[str, str]] = []

    def alarm(is_on: object, level: str, text: str, remedy: str) -> None:
        if is_on:
            found.append({"level": level, "text": text, "remedy": remedy})

    kl, limit = metrics.get("mismatch/kl_recent", 0.0), metrics.get("mismatch/kl_limit", 0.0)
    text = f"Train-inference mismatch: KL {kl:.3g} per token (limit {limit:.3g})."
    remedy = "Check that all servers run the same versions and precision; see docs/models.md."
    alarm(metrics.get("mismatch/alarm"), "bad", text, remedy)
    if disk is not None:
        text = f"Only {decimal(disk[1])} of disk space is free."
        alarm(disk[1] < min(LOW_DISK, LOW_SHARE * disk[0]), "bad", text, "Free some disk space.")
    is_running = phase not in ("done", "stopped", "starting")
    lacks = {name for name in ("workers", "inference") if is_running and metrics.get(f"{name}/alive") == 0}
    remedy = "Start one with `distrl run-worker CONFIG`."
    alarm("workers" in lacks, "bad", "No worker is connected.", remedy)
    is_appo = config is not None and config.learner.algorithm.kind == "appo"  # workers act by themselves
    remedy = "Start one with `distrl serve-inference CONFIG`."
    alarm("inference" in lacks and not is_appo, "bad", "No inference server is connected.", remedy)
    num = round(metrics.get("ingest/quarantined", 0.0)) if num_quarantined is None else num_quarantined
    text = f"Quarantined trajectories, which cannot be trained on: {num}."
    alarm(num, "warn", text, "`distrl inspect RUN` lists them with the reasons.")
    num = round(metrics.get("workers/suspended", 0.0))
    alarm(num, "warn", f"Workers without leases: {num}.", "See their logs for the rejections.")
    num = round(metrics.get("batch/skipped", 0.0))
    text = f"Batches skipped because a loss or gradient was not finite: {num}."
    alarm(num, "warn", text, "Lower learner.optim.lr if this continues.")
    counts = device_counts(metrics)
    num, total = counts.get("quarantined", 0), sum(counts.values())
    level, text = "warn" if num < total else "bad", f"{num} of {total} devices are quarantined."
    alarm(num, level, text, "See their reasons below, and docs/devices.md.")
    return sorted(found, key=lambda one: one["level"])


def slots(wall: Wall, age_s: float, pictures: Mapping[str, tuple[int, bytes]]) -> list[dict[str, Any]]:
    """The slots of a wall that is `age_s` old, with the addresses of their pictures."""
    found = []
    for report, report_age_s in zip(wall.reports, wall.ages_s, strict=False):
        states, all_s = {device.id: device.state for device in report.devices}, age_s + report_age_s
        for view in report.slots:
            one = view.model_dump(mode="json", exclude={"picture"})
            if view.touch is not None:
                one["touch"]["text"] = describe(ActionRecord(**view.touch.model_dump()))
            number, _ = pictures.get(f"{report.worker}/{view.slot}", (None, b""))
            at = f"/api/screen/{quote(report.worker, safe='')}/{view.slot}?v={number}"
            one |= {"worker": report.worker, "device_state": states.get(view.device, ""), "age_s": all_s}
            one |= {"screen": "" if number is None else at}
            found.append(one | ({"state": "gone"} if all_s > GONE_S else {}))
    return sorted(found, key=lambda one: (one["worker"], one["slot"]))


def device_counts(metrics: Metrics) -> dict[str, int]:
    """Devices of all pools by state; {} without pools."""
    names = ("ready", "busy", "recovering", "quarantined")
    found = {name: round(metrics.get(f"workers/devices_{name}", 0.0)) for name in names}
    return found if any(found.values()) else {}


def pool(wall: Wall) -> list[dict[str, Any]]:
    """The devices of all pools."""
    found = [
        {"worker": report.worker, **device.model_dump()}
        for report in wall.reports
        for device in report.devices
    ]
    return sorted(found, key=lambda one: (one["worker"], one["id"]))


RATES = {
    "workers": ("workers/actions_per_s", "actions/s"),
    "servers": ("inference/requests_per_s", "requests/s"),
    "learner": ("", "updates/s"),  # computed
    "weights": ("", ""),
}
"""The rate of each stage: its metric and its unit."""
FACTS = (
    ("workers", "workers", "workers/alive", "{:.0f}"),
    ("workers", "episodes/s", "workers/episodes_per_s", "{:.2g}"),
    ("workers", "idle", "workers/idle_share", "{:.0%}"),
    ("servers", "servers", "inference/alive", "{:.0f}"),
    ("servers", "batch size", "inference/batch_size", "{:.1f}"),
    ("servers", "queue", "inference/queue", "{:.0f}"),
    ("servers", "queue wait p50", "inference/queue_wait_p50_ms", "{:.0f} ms"),
    ("servers", "queue wait p99", "inference/queue_wait_p99_ms", "{:.0f} ms"),
    ("servers", "a batch p50", "inference/batch_p50_ms", "{:.0f} ms"),
    ("learner", "an update", "time/update_s", "{:.2g} s"),
    ("learner", "waits for episodes", "time/wait_for_episodes", "{:.0%}"),
    ("learner", "waits for batches", "time/wait_for_batch", "{:.0%}"),
    ("learner", "gradients", "gradients/accepted", "{:,.0f}"),
    ("learner", "rejected", "gradients/rejected", "{:,.0f}"),
    ("learner", "replay", "replay/size", "{:,.0f}"),
    ("weights", "versions", "versions", "{:,.0f}"),
    ("weights", "versions behind, in training", "off_policy/staleness_mean", "{:.1f}"),
    ("weights", "at arrival", "off_policy/ingest_staleness", "{:.1f}"),
    ("weights", "swap pause", "inference/swap_pause_ms", "{:.0f} ms"),
)
"""Stage, label, metric and format."""


def flow(metrics: Metrics, status: Status | None) -> dict[str, Any]:
    """How actions, requests, updates and weights flow, and what limits them."""
    bottleneck, why = find_bottleneck(metrics, status)
    stages: list[dict[str, Any]] = []
    for name, (rate, unit) in RATES.items():
        facts = [
            [label, form.format(metrics[key])]
            for stage, label, key, form in FACTS
            if stage == name and key in metrics
        ]
        stages.append({"name": name, "rate": metrics.get(rate), "unit": unit, "facts": facts})
    if status is not None and status.slots:
        stages[0]["facts"].insert(1, ["slots", f"{sum(status.slots.values()):,}"])
    if update_s := metrics.get("time/update_s"):
        stages[2]["rate"] = (1.0 - metrics.get("time/wait_for_episodes", 0.0)) / max(update_s, 1e-6)
    return {"bottleneck": bottleneck, "why": why, "stages": stages}


def find_bottleneck(metrics: Metrics, status: Status | None) -> tuple[str, str]:
    """Which role limits the run, and why: "workers", "servers", "learner", "devices", or "" if unknown."""
    if status is not None and status.is_held:
        return "", "the owner has paused the run"
    if status is not None and status.paused:
        return "learner", "episodes arrive faster than it trains"
    waits = metrics.get("time/wait_for_episodes")
    if "gradients/accepted" in metrics:
        return "", "the workers compute the gradients, the learner only applies them"
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


def costs(
    config: Config | None, metrics: Metrics, num_episodes: int, num_bytes: int, disk: tuple[int, int] | None
) -> list[list[str]]:
    """Labels and texts: what judges cost, what was sent, and with a directory what the store takes."""
    found = []
    if metrics.get("judge/calls") or metrics.get("judge/judged"):
        calls, judged, read, written, waiting = (
            f"{metrics.get(f'judge/{name}', 0):,.0f}"
            for name in ("calls", "judged", "input_tokens", "output_tokens", "waiting")
        )
        found += [["Judge: verdicts", judged], ["Judge: calls", calls]]
        found.append(["Judge: tokens, in and out", f"{read} + {written}"])
        if metrics.get("judge/cost"):
            found.append(["Judge: cost", f"{metrics['judge/cost']:.4g}"])
        found.append(["Judge: waiting", waiting])
    if "weights/sent_bytes" in metrics:
        found.append(["Sent as weights", decimal(round(metrics["weights/sent_bytes"]))])
    if config is not None and disk is not None:
        limit = decimal(config.store.max_bytes)
        found.append(["Stored episodes", f"{num_episodes:,}, {decimal(num_bytes)} of {limit}"])
        found.append(["Free disk space", f"{decimal(disk[1])} of {decimal(disk[0])}"])
    return found
