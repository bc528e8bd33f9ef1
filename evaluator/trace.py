"""A run's time line over all roles, in the format of Chrome's traces, and where the time went.

Nothing is recorded for it. Episodes and their steps come from the store, by the clocks of their workers;
updates from metrics.jsonl, by the learner's clock; batches from the times that servers note in completions,
in the middle of what their slots waited. On several machines roles are thus shifted as their clocks are.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from distrl.core.errors import RunDirectoryError
from distrl.core.files import write_atomically
from distrl.core.metrics import IDLE, RESUMED, UPDATE_PARTS, read_metrics
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import Chat, Trajectory

LEARNER, BATCHES = ("learner", "updates"), "batches"
EPISODE, UPDATE, REQUEST, THINK, QUEUE, BATCH = "episode", "update", "act request", "think", "queue", "batch"
IDLE_LEARNER, OTHER, WAIT = "wait for episodes", "other", "wait"
ENVIRONMENT = ("reset", "observe", "act", "settle", "evaluate")
"""What a slot does with its environment or device."""


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

    def add(self, name: str, start: float, seconds: float, **about: Any) -> Span:
        begin = min(max(self.at, start), self._end)
        self.at = min(begin + max(0.0, seconds), self._end)
        span = Span(self.track, name, begin, self.at, about)
        if self.at > begin:
            self.spans.append(span)
        return span


def episode_spans(one: Trajectory) -> list[Span]:
    """An episode on its slot's track, and within it what its steps did."""
    start, end = one.started_at, one.started_at + max(0.0, one.duration_s)
    track = (one.worker or "worker", f"slot {one.slot}")
    about = {"task": one.task.id, "purpose": one.purpose.value, "outcome": one.outcome.value, "id": one.id}
    line, inner = _Line(track, start, end), list[Span]()
    for number, step in enumerate(one.steps):
        timing = step.timing
        seen_at = timing.started_at - timing.observe_s
        if number == 0:
            line.add("reset", start, seen_at - start)
        line.add("observe", seen_at, timing.observe_s)
        chats = [chat for chat in step.chats if chat.completion.run_s > 0.0]
        thought = line.add(REQUEST if chats else THINK, timing.started_at, timing.think_s, step=number + 1)
        inner += _requests(thought, chats)
        line.add("act", line.at, timing.act_s, kind=step.action.kind)
        line.add("settle", line.at, timing.settle_s)
    if one.steps:
        line.add("evaluate", line.at, end - line.at)
    return [Span(track, EPISODE, start, end, about), *line.spans, *inner]


def _requests(thought: Span, chats: Sequence[Chat]) -> Iterator[Span]:
    """The waits and runs of requests, each in the middle of its share of the time that the slot waited."""
    spent = sum(chat.completion.queue_s + chat.completion.run_s for chat in chats)
    whole = thought.end - thought.start
    factor = min(1.0, whole / spent) if spent else 0.0
    line, pause_s = _Line(thought.track, thought.start, thought.end), 0.0
    for chat in chats:
        answer, pause_s = chat.completion, (whole - factor * spent) / len(chats) / 2.0
        line.add(QUEUE, line.at + pause_s, factor * answer.queue_s)
        about = {"server": answer.server, "batch": answer.batch}
        start = line.at if answer.queue_s else line.at + pause_s
        line.add(BATCH, start, factor * answer.run_s, **about)
        line.at += pause_s
    yield from line.spans


def slot_spans(episodes: Iterable[Trajectory]) -> list[Span]:
    """All slots' episodes, and the waits between them. A clock that went back cuts what overlaps."""
    spans: list[Span] = []
    ends: dict[tuple[str, str], float] = {}
    for found in sorted(map(episode_spans, episodes), key=lambda found: found[0].start):
        whole = found[0]
        before = ends.get(whole.track, whole.start)
        if whole.start > before:
            spans.append(Span(whole.track, WAIT, before, whole.start))
        ends[whole.track] = max(before, whole.end)
        cut = (one._replace(start=max(before, one.start), end=max(before, one.end)) for one in found)
        spans += (one for one in cut if one.end > one.start)
    return spans


def server_spans(spans: Iterable[Span]) -> list[Span]:
    """The batches of each inference server, by what its requests say of them."""
    batches: dict[tuple[str, int], list[list[Span]]] = defaultdict(list)
    for span in sorted((one for one in spans if one.name == BATCH), key=lambda one: one.start):
        groups = batches[span.about["server"], span.about["batch"]]
        # A server that was restarted counts from 1 again.
        if groups and span.start <= groups[-1][-1].end + 1.0:
            groups[-1].append(span)
        else:
            groups.append([span])
    found = defaultdict[str, list[Span]](list)
    for (server, number), groups in batches.items():
        track = (f"inference {server}".strip(), BATCHES)
        for group in groups:
            start = sum(one.start for one in group) / len(group)
            end = start + max(one.end - one.start for one in group)
            found[server].append(Span(track, BATCH, start, end, {"batch": number, "requests": len(group)}))
    for server, batch in found.items():
        line = _Line(batch[0].track, float("-inf"), float("inf"))
        for one in sorted(batch, key=lambda one: one.start):
            line.add(BATCH, one.start, one.end - max(one.start, line.at), **one.about)
        found[server] = line.spans
    return [span for spans in found.values() for span in spans]


def learner_spans(rows: Iterable[Mapping[str, float]]) -> tuple[list[Span], list[tuple[float, float]]]:
    """The learner's updates with their parts, and when it trained: one interval for each process of it."""
    spans: list[Span] = []
    trained: list[tuple[float, float]] = []
    is_new, line = True, _Line(LEARNER, float("-inf"), float("inf"))
    for row in rows:
        is_new |= RESUMED in row
        if "time/update_s" not in row:
            continue
        end, idle_s = row["time"], row.get(IDLE, 0.0)
        start = max(line.at, end - row["time/update_s"])
        idle = line.add(IDLE_LEARNER, start - idle_s, min(idle_s, start - line.at))
        update = line.add(UPDATE, start, end - start, step=int(row["step"]))
        parts = {part: row.get(f"time/{part}_s", 0.0) for part in UPDATE_PARTS}
        whole = update.end - update.start
        factor = min(1.0, whole / max(1e-9, sum(parts.values())))
        inner = _Line(LEARNER, update.start, update.end)
        for part, seconds in parts.items():
            inner.add(part, inner.at, factor * seconds)
        spans += inner.spans
        first = idle.start if is_new else trained.pop()[0]
        trained.append((first, update.end))
        is_new = False
    return line.spans + spans, trained


@dataclass
class Trace:
    """A run's spans, and where time went while it `trained`; without updates, while there were episodes."""

    spans: list[Span]
    trained: list[tuple[float, float]]

    @classmethod
    def of(cls, run: RunDir) -> Trace:
        """The trace of a run directory; RunDirectoryError if nothing has happened in it."""
        slots: list[Span] = []
        if run.store.exists():
            store = TrajectoryStore(run.store)
            try:
                slots = slot_spans(store.iterate())
            finally:
                store.close()
        learner, trained = learner_spans(read_metrics(run.metrics))
        spans = [*learner, *server_spans(slots), *slots]
        if not spans:
            raise RunDirectoryError(f"{run.path} has neither episodes nor updates.", "Wait for the first.")
        whole = (min(span.start for span in spans), max(span.end for span in spans))
        return cls(spans, trained or [whole])

    def _spent(self, is_of: Callable[[Span], bool]) -> dict[str, float]:
        """Seconds in the time of training by the names of spans."""
        spent = defaultdict[str, float](float)
        for span in filter(is_of, self.spans):
            times = (min(span.end, end) - max(span.start, start) for start, end in self.trained)
            spent[span.name] += sum(max(0.0, seconds) for seconds in times)
        return spent

    @property
    def trained_s(self) -> float:
        """Seconds between the first and the last update, of each process of the learner."""
        return sum(end - start for start, end in self.trained)

    def learner_shares(self) -> dict[str, float]:
        """The learner's time by part, as shares of `trained_s`; {} without updates."""
        spent = self._spent(lambda span: span.track == LEARNER)
        return _shares(spent, [IDLE_LEARNER, *UPDATE_PARTS], self.trained_s) if UPDATE in spent else {}

    def slot_shares(self) -> dict[str, float]:
        """The slots' time by part, as shares of the time from each one's first to its last episode."""
        spent = self._spent(lambda span: span.track[1] not in (BATCHES, LEARNER[1]))
        spent[REQUEST] -= spent[QUEUE] + spent[BATCH]  # what is left: prompts and the network
        names = [*ENVIRONMENT, THINK, QUEUE, BATCH, REQUEST, WAIT]
        return _shares(spent, names, spent[EPISODE] + spent[WAIT])

    def server_share(self) -> float:
        """The share of their time that inference servers spend in batches."""
        busy_s = self._spent(lambda span: span.track[1] == BATCHES)[BATCH]
        return busy_s / max(1e-9, self._count(BATCHES) * self.trained_s)

    def busy_shares(self) -> dict[str, float]:
        """How busy each role is: the one that is busiest limits the others."""
        slots, learner = self.slot_shares(), self.learner_shares()
        return {
            "environments": sum(slots.get(name, 0.0) for name in ENVIRONMENT),
            "inference servers": self.server_share(),
            "learner": 1.0 - learner.get(IDLE_LEARNER, 0.0) if learner else 0.0,
        }

    def _count(self, kind: str) -> int:
        """How many tracks are called so."""
        return len({span.track for span in self.spans if span.track[1].startswith(kind)})

    def lines(self) -> list[str]:
        """The summary for people."""
        shown = {
            "learner": self.learner_shares(),
            f"slots ({self._count('slot')})": self.slot_shares(),
            f"servers ({self._count(BATCHES)})": {BATCH: self.server_share()},
        }
        lines = [f"Where the time went, in {self.trained_s:.1f} s between the first and the last update:"]
        for who, shares in shown.items():
            parts = ", ".join(f"{name} {100 * share:.1f}%" for name, share in shares.items() if share >= 5e-4)
            lines.append(f"  {who:<11} {parts}")
        (slowest, most), *others = sorted(self.busy_shares().items(), key=lambda item: -item[1])
        rest = ", ".join(f"{role} {100 * share:.0f}%" for role, share in others)
        return [*lines, f"Bottleneck: {slowest}, busy {100 * most:.0f}% of the time ({rest})"]

    def write(self, path: Path) -> None:
        """Writes the spans as JSON for Chrome and Perfetto; RunDirectoryError if it cannot."""
        zero = min(span.start for span in self.spans)
        processes = dict.fromkeys(span.track[0] for span in self.spans)
        pids = {name: number for number, name in enumerate(processes, 1)}
        tids = {track: number for number, track in enumerate(dict.fromkeys(s.track for s in self.spans), 1)}
        events: list[dict[str, Any]] = []
        for name, pid in pids.items():
            events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        for (process, thread), tid in tids.items():
            about = {"pid": pids[process], "tid": tid, "args": {"name": thread}}
            events.append({"ph": "M", "name": "thread_name", **about})
        for span in self.spans:
            start, end = (round(1e6 * (at - zero)) for at in (span.start, span.end))
            place = {"pid": pids[span.track[0]], "tid": tids[span.track], "ts": start, "dur": end - start}
            events.append({"ph": "X", "name": span.name, "cat": "distrl", **place, "args": span.about})
        lines = ",\n".join(json.dumps(event) for event in events)
        write_atomically(path, f'{{"displayTimeUnit": "ms", "traceEvents": [\n{lines}\n]}}\n')


def _shares(spent: Mapping[str, float], names: Sequence[str], whole_s: float) -> dict[str, float]:
    """The shares of the parts that took any time, and of what is left; {} of nothing."""
    if not whole_s:
        return {}
    shares = {name: spent[name] / whole_s for name in names if spent.get(name)}
    return {**shares, OTHER: 1.0 - sum(shares.values())}
