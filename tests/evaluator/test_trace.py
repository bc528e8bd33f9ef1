"""The trace of a run: spans nest, none overlaps on its track, and the shares of the summary add up."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner
from virtual_world import Leases, make_world

from distrl.cli.main import app
from distrl.configs.schema import Config
from distrl.core.metrics import UPDATE_PARTS
from distrl.core.rundir import RunDir
from distrl.core.store import TrajectoryStore
from distrl.core.types import ActionRecord, Chat, Completion, Observation, Task, TimeStep, Timing, Trajectory
from distrl.evaluator.trace import LEARNER, Trace, learner_spans, server_spans, slot_spans

SCREEN = Observation(image="", width=100, height=200)
TASK = Task(id="t/0", suite="t", template="t", split="train", goal="Tap", max_steps=9)


def answer(queue_s: float, run_s: float, batch: int) -> Completion:
    return Completion(text="", server="s", queue_s=queue_s, run_s=run_s, batch=batch)


def step(started_at: float, think_s: float, *chats: tuple[float, float, int], **timing: float) -> TimeStep:
    """A step whose requests waited and ran for so many seconds, in the batch with this number."""
    return TimeStep(
        observation=SCREEN,
        chats=tuple(Chat(messages=(), completion=answer(*chat)) for chat in chats),
        action=ActionRecord(kind="tap"),
        timing=Timing(started_at=started_at, think_s=think_s, **timing),
    )


def episode(name: str, slot: int, start: float, duration: float, *steps: TimeStep) -> Trajectory:
    return Trajectory(
        id=name, task=TASK, worker="w", slot=slot, steps=steps, started_at=start, duration_s=duration
    )


def update(number: int, end: float, idle: float, **parts: float) -> dict[str, float]:
    spent = {f"time/{part}_s": parts.get(part, 0.0) for part in UPDATE_PARTS}
    return {"step": number, "time": end, "time/update_s": sum(parts.values()), "time/idle_s": idle, **spent}


def steady() -> Trace:
    """Ten seconds: two in batches and eight in the environment; the learner waits for five."""
    first = episode(
        "a", 0, 100.0, 5.0,
        step(101.5, 1.0, (0.3, 0.7, 1), observe_s=0.5, act_s=2.0),
    )  # fmt: skip
    second = episode(
        "b", 0, 105.0, 5.0,
        step(106.5, 1.0, (0.3, 0.7, 2), observe_s=0.5, act_s=1.0, settle_s=1.0),
    )  # fmt: skip
    parts = {"train": 1.9, "batch": 0.1}  # the learner's batches are none of the servers
    rows = [update(1, 105.0, 2.5, publish=0.5, **parts), update(2, 110.0, 2.5, **parts)]
    slots = slot_spans([second, first])
    learner, trained = learner_spans([{"step": 0, "time": 90.0}, *rows])
    return Trace([*learner, *server_spans(slots), *slots], trained)


def test_shares_say_where_the_time_went() -> None:
    trace = steady()
    assert trace.trained == [(100.0, 110.0)]
    learner = {"wait for episodes": 0.5, "batch": 0.02, "train": 0.38, "publish": 0.05, "other": 0.05}
    shares = trace.shares()
    assert shares["learner"] == pytest.approx(learner)
    slots = {
        "reset": 0.2,
        "observe": 0.1,
        "act": 0.3,
        "settle": 0.1,
        "evaluate": 0.1,
        "queue": 0.06,
        "batch": 0.14,
    }
    assert shares["slots"] == pytest.approx({**slots, "other": 0.0})
    assert shares["servers"] == pytest.approx({"batch": 0.14, "idle": 0.86})
    said = "Bottleneck: workers (the learner waits for episodes 50% of its time, the servers do not queue)"
    assert trace.lines()[-1] == said


def test_slots_that_wait_while_the_learner_waits_now_and_then_do_not_limit_the_run() -> None:
    episodes = [episode(str(at), 0, at, 1.0, step(at, 0.5, (0.0, 0.5, at))) for at in (0, 5, 10)]
    learner, trained = learner_spans([update(1, 5.0, 2.0, train=3.0), update(2, 10.0, 1.0, train=4.0)])
    slots = slot_spans(episodes)
    trace = Trace([*learner, *server_spans(slots), *slots], trained)
    assert trace.lines()[-1] == "Bottleneck: learner (slots are without an episode 80% of their time)"


def test_requests_of_one_batch_are_one_span_also_where_the_server_counts_anew() -> None:
    together = [
        episode(str(slot), slot, 10.0, 3.0, step(10.0, 2.0 + slot / 10, (0.2, 1.0, 1))) for slot in range(3)
    ]
    later = episode("later", 0, 60.0, 3.0, step(60.0, 2.0, (0.2, 1.0, 1)))
    batches = server_spans(slot_spans([*together, later]))
    assert [(span.track[0], span.about["requests"]) for span in batches] == [
        ("inference s", 3),
        ("inference s", 1),
    ]
    assert batches[0].start == pytest.approx(10.65)  # the middle of where its requests place it
    assert batches[0].end == pytest.approx(11.65)


def test_what_is_derived_of_servers_and_slots_is_what_a_simulation_measures() -> None:
    leases = Leases()
    options = {"worker": {"slots": 24}, "local": {"workers": 1, "inference_servers": 2}}
    with closing(make_world(leases, inference={"max_batch": 2}, **options)) as world:
        world.advance(20.0)
        start = world.moment()
        world.advance(60.0)
        found = world.since(start)
        world.advance(10.0)  # episodes under way end
    slots = slot_spans([one for _, one in leases.ended])
    learner, _ = learner_spans([update(1, 80.0, 59.0, train=1.0)])
    trace = Trace([*learner, *server_spans(slots), *slots], [(20.0, 80.0)])
    assert 0.5 < found["inference/busy_share"] <= 1.0
    shares = trace.shares()
    assert shares["servers"]["batch"] == pytest.approx(found["inference/busy_share"], abs=0.01)
    acting, in_batches = shares["slots"]["act"], shares["slots"]["batch"]
    assert acting == pytest.approx(4.0 * in_batches, rel=0.02), "a second and a quarter of one"
    assert trace.lines()[-1].startswith("Bottleneck: servers (requests wait ")


def test_time_between_processes_of_a_learner_is_not_training() -> None:
    rows = [update(1, 10.0, 1.0, train=1.0), {"step": 0, "time": 50.0, "resumed": 1.0}]
    _, trained = learner_spans([*rows, update(1, 60.0, 2.0, train=3.0)])
    assert trained == [(8.0, 10.0), (55.0, 60.0)]


def jumbled(run: RunDir, seed: int) -> None:
    """Episodes and rows whose clocks jump and whose parts take longer than the whole."""
    rng = random.Random(seed)
    store = TrajectoryStore(run.store)
    for number in range(40):
        start, steps = rng.uniform(0.0, 100.0), []
        for _ in range(rng.randrange(5)):
            chats = [(rng.uniform(0.0, 1.0), rng.uniform(0.0, 2.0), rng.randrange(8)) for _ in "ab"]
            times = {name: rng.uniform(0.0, 2.0) for name in ("think_s", "observe_s", "act_s", "settle_s")}
            steps.append(step(start + rng.uniform(-1.0, 6.0), times.pop("think_s"), *chats, **times))
        store.add(episode(f"{number}", rng.randrange(3), start, rng.uniform(0.0, 9.0), *steps), {"": b""})
    store.close()
    with run.metrics.open("w") as file:
        for number in range(30):
            at, idle = rng.uniform(3.2, 3.4) * number, rng.uniform(0.0, 2.0)
            row = update(number, at, idle, train=rng.uniform(0.0, 3.0))
            row["time/update_s"] *= rng.uniform(0.5, 1.5)
            print(json.dumps(row), file=file)


@pytest.mark.parametrize("seed", range(5))
def test_a_trace_loads_and_its_spans_nest_whatever_the_clocks_say(tmp_path: Path, seed: int) -> None:
    run = RunDir.create(Config.model_validate({"name": "mine", "runs_dir": str(tmp_path)}))
    jumbled(run, seed)
    result = CliRunner().invoke(app, ["trace", str(run.path), "--out", str(tmp_path / "t.json")])
    assert result.exit_code == 0, result.output
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    named = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"learner", "w", "inference s", "updates", "batches", "slot 0", "slot 1", "slot 2"} == named
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert isinstance(event["ts"], int)
            assert event["ts"] >= 0
            tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
    assert len(tracks) == 5
    for spans in tracks.values():
        open_ends: list[int] = []
        for start, length, name in sorted(spans):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or start - length <= open_ends[-1], f"{name} crosses the end of its parent"
            open_ends.append(start - length)
            assert len(open_ends) <= 3
    trace = Trace.of(run)
    assert LEARNER in {span.track for span in trace.spans}
    for shares in trace.shares().values():
        assert sum(shares.values()) == pytest.approx(1.0)
        assert min(shares.values()) > -1e-9, shares


def test_a_run_without_anything_is_one_line(tmp_path: Path) -> None:
    run = RunDir.create(Config.model_validate({"name": "mine", "runs_dir": str(tmp_path)}))
    result = CliRunner().invoke(app, ["trace", str(run.path)])
    assert result.exit_code == 3
    assert "has neither episodes nor updates" in result.stderr
