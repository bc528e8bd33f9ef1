"""The view of an episode: what a step's card says beside the picture."""

from __future__ import annotations

from distrl.core.types import ActionRecord, Observation, Outcome, Task, TimeStep, Timing, Trajectory
from distrl.evaluator.judges.base import Verdict
from distrl.evaluator.report.episodes import episode_view


def step(kind: str, guard: str = "", reason: str = "", **timing: float) -> TimeStep:
    return TimeStep(
        observation=Observation(image="0" * 32, width=9, height=20),
        chats=(),
        action=ActionRecord(kind=kind, text="Clock", reason=reason, point=(0.5, 0.5)),
        timing=Timing(**timing),
        guard=guard,
    )


def test_a_card_tells_of_the_guard_of_settling_and_of_new_kinds_of_action() -> None:
    steps = (
        step("tap", guard="call: com.android.dialer/com.android.dialer.Main", act_s=0.5, settle_s=1.5),
        step("open_app"),
        step("double_tap"),
        step("answer"),
        step("invalid", reason="no JSON object"),
    )
    trajectory = Trajectory(
        id="t",
        task=Task(id="s/t/1", suite="s", template="t", split="test", goal="Go"),
        steps=steps,
        outcome=Outcome.UNJUDGED,
    )
    view = episode_view(trajectory, {}, Verdict(success=False, score=0.0, reason="?"), 100)
    assert view.verdict == "not judged"
    cards = view.steps
    assert cards[0].detail == "the guard left call: com.android.dialer/com.android.dialer.Main"
    assert cards[0].seconds == (("act", 0.5), ("settle", 1.5))
    assert [card.action for card in cards[1:4]] == ["Open “Clock”", "Double tap 50%, 50%", "Answer “Clock”"]
    assert cards[2].mark.kind == "tap"
    assert cards[4].detail == "no JSON object"
