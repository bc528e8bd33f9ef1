"""`distrl top`: the state of a run in a terminal."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.cli.dashboard import KeyNameOption, KeysOption, LearnerOption, RunArgument, open_dashboard
from distrl.core.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Group

    from distrl.core.terminal import Console
    from distrl.evaluator.dashboard.dashboard import Dashboard

EVERY_S = 1.0
SETTLE_S = 5.0
"""With --once: how long to wait for the learner, and then for its workers' slots."""
MAX_SLOTS = 64


def top(
    run: RunArgument = None,
    learner: LearnerOption = None,
    keys: KeysOption = None,
    key_name: KeyNameOption = "client",
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --once: print it as JSON.")] = False,
) -> None:
    """Show a run in the terminal: its phase, success, flow, alarms, and what every slot does.

    It reads the same places as `distrl dashboard`. Ctrl-C ends it, not the run.
    """
    from rich.live import Live

    from distrl.core.process import install_signals
    from distrl.core.terminal import Console

    if as_json and not once:
        raise ConfigError("--json needs --once.", "Add --once.")
    stop, console = install_signals(), Console()
    with open_dashboard(run, learner, keys, key_name) as watched, watched.viewing("slots"):
        if once:
            found = settled(watched)
            if as_json:
                typer.echo(json.dumps(found))
            else:
                console.print(render(found, console))
            return
        with Live(console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while not stop.is_set():
                live.update(render(watched.snapshot(), console), refresh=True)
                stop.wait(EVERY_S)


def settled(watched: Dashboard) -> dict[str, Any]:
    """A snapshot, after the learner has answered and its slots have reported, if they do so soon."""
    deadline = time.monotonic() + SETTLE_S
    watched.index.has_read.wait(SETTLE_S)
    while True:
        found = watched.snapshot()
        state = found["learner"]["state"]
        is_complete = state in ("none", "refused") or (state == "joined" and bool(found["slots"]))
        if is_complete or time.monotonic() >= deadline:
            return found
        time.sleep(0.2)


def render(found: dict[str, Any], console: Console) -> Group:
    """A snapshot as rich shows it. All of its texts are other people's."""
    from rich.console import Group
    from rich.table import Table

    line, flow = found["line"], found["flow"]
    parts: list[Any] = [console.render_str(_headline(found), style="bold")]
    for alarm in line["alarms"]:
        style = "red" if alarm["level"] == "bad" else "yellow"
        parts.append(console.render_str(f"! {alarm['text']} {alarm['remedy']}", style=style))
    stages = Table.grid(padding=(0, 2))
    for stage in flow["stages"]:
        rate = "" if stage["rate"] is None else f"{stage['rate']:.3g} {stage['unit']}"
        facts = "  ".join(f"{label} {text}" for label, text in stage["facts"])
        mark = "▶" if stage["name"] == flow["bottleneck"] else " "
        stages.add_row(f"{mark} {stage['name']}", rate, facts)
    limit = ": ".join(filter(None, ("bottleneck", flow["bottleneck"], flow["why"])))
    parts += [stages, console.render_str(limit, style="dim")]
    if found["slots"]:
        parts.append(_slots(found["slots"]))
    costs = "   ".join(f"{label}: {text}" for label, text in found["costs"])
    return Group(*parts, console.render_str(costs, style="dim"))


def _headline(found: dict[str, Any]) -> str:
    from distrl.cli.local.progress import clock

    line, learner = found["line"], found["learner"]
    fields = [found["run"]["name"] or "run", line["phase"]]
    if line["total"]:
        fields.append(f"{line['done']:,}/{line['total']:,} {line['unit']}")
    for label, one in (("success", line["success"]), ("validation", line["validation"])):
        if one is not None:
            low, high = 100 * one["low"], 100 * one["high"]
            fields.append(f"{label} {one['rate']:.0%} ({low:.0f} to {high:.0f})")
    if line["version"] is not None:
        fields.append(f"version {line['version']}")
    if line["left_s"] is not None:
        fields.append(f"{clock(line['left_s'])} left")
    if learner["state"] not in ("none", "joined"):
        fields.append(f"learner {learner['state']}: {learner['note']}")
    return " · ".join(fields)


def _slots(slots: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table("slot", "state", "device", "step", "idle", "action", "goal", box=None, expand=True)
    for one in slots[:MAX_SLOTS]:
        step = f"{one['step']}/{one['max_steps']}" if one["max_steps"] else ""
        device = f"{one['device']} {one['device_state']}".strip()
        touch = one["touch"]["text"] if one["touch"] else ""
        idle = f"{one['idle_s'] + one['age_s']:.0f} s"
        name = f"{one['worker']}/{one['slot']}"
        table.add_row(name, one["state"], device, step, idle, touch, " ".join(one["goal"].split()))
    if len(slots) > MAX_SLOTS:
        table.add_row(f"{len(slots) - MAX_SLOTS} more")
    return table
