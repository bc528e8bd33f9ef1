"""A run's time line over all roles, in the format of Chrome's traces, and where the time went.

Nothing is recorded for it. Episodes and their steps come from the store, by the clocks of their workers;
updates from metrics.jsonl, by the learner's clock; batches from the times that servers note in completions,
in the middle of what their slots waited. On several machines roles are thus shifted as their clocks are.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from distrl.core.errors import RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.metrics import IDLE, RESUMED, UPDATE_PARTS, read_metrics
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Chat, Trajectory
from distrl.evaluator.dashboard.snapshot import find_bottleneck

LEARNER, BATCHES, SLOT = ("learner", "updates"), "batches", "slot"
EPISODE, UPDATE, REQUEST, THINK, QUEUE, BATCH = "episode", "update", "act request", "think", "queue", "batch"
IDLE_LEARNER, WAIT = "wait for episodes", "wait"


class Span(NamedTuple):
    """Something that took time on a track (process, thread); times in seconds, Unix or virtual."""

    track: tuple[str, str]
    name: str
    start: float
    end: float
    about: Mapping[str, Any] = {}


class _Line:
    """Spans on one track, one after another within `start` and `end`: what overlaps is cut."""

    def __init__(self, track: tuple[str, str], start: float, end: float) -> None:
        self.track, self.at, self._end = track, start, end
        self.spans: list[Span] = []

    def add(self, name: str, start: float, end: float, **about: Any) -> Span:
        begin = min(max(self.at, start), self._end)
        self.at = min(max(begin, end), self._end)
        span = Span(self.track, name, begin, self.at, about)
        if self.at > begin:
            self.spans.append(span)
        return span


def slot_spans(episodes: Iterable[Trajectory]) -> list[Span]:
    """All slots' episodes with their parts, and the waits between them.

    Where a clock went back, what overlaps is cut.
    """
    lines: dict[tuple[str, str], _Line] = {}
    parts: list[Span] = []
    for one in sorted(episodes, key=lambda one: one.started_at):
        about = {"task": one.task.id, "purpose": one.purpose, "outcome": one.outcome, "id": one.id}
        track = (one.worker or "worker", f"{SLOT} {one.slot}")
        line = lines.setdefault(track, _Line(track, one.started_at, math.inf))
        line.add(WAIT, line.at, one.started_at)
        parts += _parts(one, line.add(EPISODE, one.started_at, one.started_at + one.duration_s, **about))
    return [span for line in lines.values() for span in line.spans] + parts


def _parts(one: Trajectory, episode: Span) -> list[Span]:
    """What the steps of an episode did, within its span."""
    line, inner = _Line(episode.track, episode.start, episode.end), list[Span]()
    for number, step in enumerate(one.steps):
        timing = step.timing
        seen_at = timing.started_at - timing.observe_s
        if number == 0:
            line.add("reset", line.at, seen_at)
        line.add("observe", seen_at, timing.started_at)
        chats = [chat for chat in step.chats if chat.completion.run_s > 0.0]
        decided_at = timing.started_at + timing.think_s
        thought = line.add(REQUEST if chats else THINK, timing.started_at, decided_at, step=number + 1)
        inner += _requests(thought, chats)
        line.add("act", line.at, line.at + timing.act_s, kind=step.action.kind)
        line.add("settle", line.at, line.at + timing.settle_s)
    if one.steps:
        line.add("evaluate", line.at, episode.end)
    return line.spans + inner


def _requests(thought: Span, chats: Sequence[Chat]) -> list[Span]:
    """The waits and runs of requests, one after another in the middle of the time that the slot waited."""
    answers = [chat.completion for chat in chats]
    spare_s = thought.end - thought.start - sum(answer.queue_s + answer.run_s for answer in answers)
    line = _Line(thought.track, thought.start + max(0.0, spare_s / 2.0), thought.end)
    for answer in answers:
        line.add(QUEUE, line.at, line.at + answer.queue_s)
        line.add(BATCH, line.at, line.at + answer.run_s, server=answer.server, batch=answer.batch)
    return line.spans


def server_spans(spans: Iterable[Span]) -> list[Span]:
    """The batches of each inference server; where batches overlap, the later one is cut.

    A batch lasts as long as its longest request, and starts when its requests do on average.
    """
    newest: dict[tuple[str, int], list[Span]] = {}
    groups: list[list[Span]] = []
    for span in sorted((one for one in spans if one.name == BATCH), key=lambda one: one.start):
        key = span.about["server"], span.about["batch"]
        # A server that was restarted counts from 1 again.
        if key not in newest or span.start > newest[key][-1].end + 1.0:
            newest[key] = []
            groups.append(newest[key])
        newest[key].append(span)
    lines: dict[str, _Line] = {}
    starts = [fmean(one.start for one in group) for group in groups]
    for start, group in sorted(zip(starts, groups, strict=True), key=itemgetter(0)):
        server, number = group[0].about["server"], group[0].about["batch"]
        track = (f"inference {server}".strip(), BATCHES)
        line = lines.setdefault(server, _Line(track, -math.inf, math.inf))
        end = start + max(one.end - one.start for one in group)
        line.add(BATCH, start, end, batch=number, requests=len(group))
    return [span for line in lines.values() for span in line.spans]


def learner_spans(rows: Iterable[Mapping[str, float]]) -> tuple[list[Span], list[tuple[float, float]]]:
    """The learner's updates with their parts, and when it trained: one interval for each process of it."""
    spans: list[Span] = []
    trained: list[tuple[float, float]] = []
    is_new, line = True, _Line(LEARNER, -math.inf, math.inf)
    for row in rows:
        is_new |= RESUMED in row
        if "time/update_s" not in row:
            continue
        start = row["time"] - row["time/update_s"]
        idle = line.add(IDLE_LEARNER, start - row.get(IDLE, 0.0), start)
        update = line.add(UPDATE, start, row["time"], step=int(row["step"]))
        inner = _Line(LEARNER, update.start, update.end)
        for part in UPDATE_PARTS:
            inner.add(part, inner.at, inner.at + row.get(f"time/{part}_s", 0.0))
        spans += inner.spans
        first = idle.start if is_new else trained.pop()[0]
        trained.append((first, update.end))
        is_new = False
    return line.spans + spans, trained


class Trace(NamedTuple):
    """A run's spans, and when it `trained`; without updates, when there were episodes."""

    spans: Sequence[Span]
    trained: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, run: RunDir) -> Trace:
        """The trace of a run directory; RunDirectoryError if nothing has happened in it."""
        slots: list[Span] = []
        if run.store.exists():
            with closing(TrajectoryStore(run.store, read_only=True)) as store:
                slots = slot_spans(store.iterate())
        learner, trained = learner_spans(read_metrics(run.metrics))
        spans = [*learner, *server_spans(slots), *slots]
        if not spans:
            raise RunDirectoryError(f"{run.path} has neither episodes nor updates.", "Wait for the first.")
        whole = (min(span.start for span in spans), max(span.end for span in spans))
        return cls(spans, trained or [whole])

    @property
    def trained_s(self) -> float:
        return sum(end - start for start, end in self.trained)

    def shares(self) -> dict[str, dict[str, float]]:
        """How the learner, the slots and the servers spent the time of training, as shares by part.

        Of a slot that is the time from its first to its last episode. {} for what the run does not have.
        """
        spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        servers = {span.track for span in self.spans if span.track[1] == BATCHES}
        for span in self.spans:
            times = (min(span.end, end) - max(span.start, start) for start, end in self.trained)
            spent[_kind(span.track)][span.name] += sum(max(0.0, seconds) for seconds in times)
        learner, slots = spent[LEARNER[1]], spent[SLOT]
        slots[REQUEST] -= slots[QUEUE] + slots[BATCH]  # what is left: prompts and the network
        parts = ("reset", "observe", "act", "settle", "evaluate", THINK, QUEUE, BATCH, REQUEST, WAIT)
        return {
            "learner": _shares(learner, [IDLE_LEARNER, *UPDATE_PARTS], self.trained_s * (UPDATE in learner)),
            "slots": _shares(slots, parts, slots[EPISODE] + slots[WAIT]),
            "servers": _shares(spent[BATCHES], [BATCH], self.trained_s * len(servers), "idle"),
        }

    def lines(self) -> list[str]:
        """The summary for people."""
        shares, tracks = self.shares(), Counter(_kind(track) for track in {span.track for span in self.spans})
        what = " of training, up to the last update" if shares["learner"] else ""
        lines = [f"Where the time went in {self.trained_s:.1f} s{what}:"]
        labels = ("learner", f"slots ({tracks[SLOT]})", f"servers ({tracks[BATCHES]})")
        for label, spent in zip(labels, shares.values(), strict=True):
            parts = [f"{name} {100 * share:.1f}%" for name, share in spent.items() if share >= 5e-4]
            lines += [f"  {label:<11} {', '.join(parts)}"] if parts else []
        metrics = {"workers/idle_share": shares["slots"].get(WAIT, 0.0)}
        if shares["learner"]:
            metrics["time/wait_for_episodes"] = shares["learner"].get(IDLE_LEARNER, 0.0)
        for name, part in (("queue_wait_p50_ms", QUEUE), ("batch_p50_ms", BATCH)):
            found = [one for one in self.spans if one.name == part and _kind(one.track) == SLOT]
            metrics[f"inference/{name}"] = 1000.0 * median([one.end - one.start for one in found] or [0.0])
        slowest, why = find_bottleneck(metrics, None)
        return [*lines, f"Bottleneck: {slowest or 'unknown'} ({why})"]

    def write(self, path: Path) -> None:
        """Writes the spans as JSON for Chrome and Perfetto; RunDirectoryError if it cannot."""
        zero = min(span.start for span in self.spans)
        tracks = sorted({span.track for span in self.spans}, key=lambda track: (len(track[1]), track))
        tids = {track: number for number, track in enumerate(tracks, 1)}
        pids = {process: number for number, process in enumerate(dict(tracks), 1)}
        events: list[dict[str, Any]] = []
        for (process, thread), tid in tids.items():
            for what, name in (("process_name", process), ("thread_name", thread)):
                about = {"pid": pids[process], "tid": tid, "args": {"name": name}}
                events.append({"ph": "M", "name": what, **about})
        for span in self.spans:
            start, end = (round(1e6 * (at - zero)) for at in (span.start, span.end))
            place = {"pid": pids[span.track[0]], "tid": tids[span.track], "ts": start, "dur": end - start}
            events.append({"ph": "X", "name": span.name, "cat": "distrl", **place, "args": span.about})
        lines = ",\n".join(json.dumps(event) for event in events)
        write_atomically(path, f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')


def _kind(track: tuple[str, str]) -> str:
    """What a track is of: "slot", or the name of the only track of a learner or server."""
    return track[1].partition(" ")[0]


def _shares(
    spent: Mapping[str, float], names: Iterable[str], whole_s: float, rest: str = "other"
) -> dict[str, float]:
    """The shares of the parts that took any time, and the `rest`; {} of nothing."""
    if not whole_s:
        return {}
    shares = {name: spent[name] / whole_s for name in names if spent.get(name)}
    return {**shares, rest: 1.0 - sum(shares.values())}
