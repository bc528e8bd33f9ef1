"""Judging between the slots and the link: nobody is waited for, nothing is lost, nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_env import CountingEnv, counting_task
from judge_endpoint import JudgeEndpoint, Reply, status
from link_fake import FakeJudge, FakeLink
from policy_of_counting import CountingPolicy
from waiting import until

from distrl.configs.judge import CustomJudgeConfig, RewardConfig, RulesConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, JudgeError, JudgeUnavailable
from distrl.core.messages import Lease
from distrl.core.types import Fault, Outcome, Purpose, Spent, Trajectory, Verdict
from distrl.evaluator.judges.vlm import client
from distrl.workers import judging as judging_module
from distrl.workers.agents.autoui import AutoUIAgent
from distrl.workers.episode import EpisodeRunner
from distrl.workers.judging import JudgingLink, judge_steps, load_judge
from distrl.workers.spool import Spool

DEADLINE_S = 20.0
YES = Verdict(success=True, score=1.0, reason="Yes.", judge="fake", cost=0.5)
NO = Verdict(success=False, score=0.0, reason="No.", judge="fake", cost=0.5)
UNSURE = Verdict(success=False, score=0.5, reason="Who knows.", is_decided=False, judge="fake")
REWARDS = RewardConfig(source="judge")
EMPTY = (b"\x80", b"\x80")  # maps in msgpack
Start = Callable[..., tuple[JudgingLink, FakeLink]]


def play(
    purpose: Purpose = Purpose.TRAIN, index: int = 0, **rewards: Any
) -> tuple[Trajectory, dict[str, bytes]]:
    """An episode that counts to three and says that it is done."""
    settings = {"source": "judge", **rewards}
    config = Config.model_validate({"judge": {"kind": "rules"}, "worker": {"rewards": settings}}).worker
    lease = Lease(id=f"lease-{index}", task=counting_task(index), purpose=purpose)
    episode = EpisodeRunner(CountingEnv(), AutoUIAgent(), CountingPolicy(0), config).run(lease)
    assert episode is not None
    return episode


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_module, "RETRY_S", 0.01)
    monkeypatch.setattr(client, "BACKOFF_S", 0.001)


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    spool = Spool(tmp_path / "judge.sqlite3")
    yield spool
    spool.close()


@pytest.fixture
def start(spool: Spool) -> Iterator[Start]:
    """Starts a link with a judge that says what is given; every thread has ended after the test."""
    started = []

    def _start(*says: Verdict | Exception, **fields: Any) -> tuple[JudgingLink, FakeLink]:
        link, judge = FakeLink(), FakeJudge(*says)
        started.append(
            judging := JudgingLink(link, judge, RulesConfig.model_validate(fields), REWARDS, spool)
        )
        judging.start()
        return judging, link

    yield _start
    assert all(judging.close() for judging in started)


def the_only(link: FakeLink) -> Trajectory:
    until(lambda: link.submitted, "the episode")
    (trajectory,) = link.submitted
    assert set(link.images[0]) == set(trajectory.image_digests)
    return trajectory


@pytest.mark.parametrize(
    ("verdict", "outcome", "success"), [(YES, Outcome.SUCCESS, 1.0), (NO, Outcome.FAILURE, 0.0)]
)
def test_the_verdict_is_the_reward(
    start: Start, spool: Spool, verdict: Verdict, outcome: Outcome, success: float
) -> None:
    judging, link = start(verdict)
    judging.submit(*play())
    trajectory = the_only(link)
    assert (trajectory.outcome, trajectory.success) == (outcome, success)
    assert trajectory.steps[-1].reward.outcome == success
    assert trajectory.verdict == verdict
    assert trajectory.truth == 1.0
    until(lambda: len(spool) == 0)
    judging.set_stats({"mine": 1.0})
    assert link.stats["judge_judged"] == 1.0
    assert link.stats["judge_cost"] == 0.5
    assert link.stats["mine"] == 1.0


def test_what_is_not_for_the_judge_goes_on_at_once(start: Start) -> None:
    judging, link = start(YES)
    faulted = play()[0].model_copy(update={"fault": Fault.DEVICE})
    judging.submit(faulted, play()[1])
    judging.submit(*play(Purpose.DEMO))
    assert len(link.submitted) == 2
    assert judging._judge.asked == 0


def test_what_was_spent_before_a_verdict_came_is_part_of_it(start: Start) -> None:
    away, refuses = JudgeUnavailable("Away."), JudgeError("It refuses.")
    away.spent = refuses.spent = Spent(calls=2, input_tokens=10, cost=0.25)
    judging, link = start(away, YES, away, refuses)
    judging.submit(*play())
    first = the_only(link).verdict
    assert first is not None
    assert (first.success, first.calls, first.input_tokens, first.cost) == (True, 2, 10, 0.75)
    judging.submit(*play(index=1))
    until(lambda: len(link.submitted) == 2, "the other episode")
    second = link.submitted[1].verdict
    assert second is not None
    assert (second.is_decided, second.calls, second.cost) == (False, 4, 0.5)
    stats = judging.stats()
    assert (judging._judge.asked, stats["judge_retries"]) == (4, 2.0)
    assert [stats[f"judge_{name}"] for name in ("calls", "input_tokens", "cost")] == [6.0, 30.0, 1.25]


def test_a_judge_of_steps_counts_the_steps_before_the_one_where_it_failed() -> None:
    away = JudgeUnavailable("Away.")
    away.spent = Spent(calls=1)
    with pytest.raises(JudgeUnavailable) as caught:
        judge_steps(FakeJudge(NO, away), *play(require_complete=False))
    assert caught.value.spent == Spent(calls=1, cost=0.5)


def test_after_its_patience_an_episode_is_unjudged(start: Start) -> None:
    away = JudgeUnavailable("Away.", retry_after_s=9.0)
    away.asked = UNSURE.model_copy(update={"model": "m", "prompt": "Is it done?"})
    judging, link = start(away, patience_s=0.05)
    judging.submit(*play())
    trajectory = the_only(link)
    assert (trajectory.outcome, trajectory.success) == (Outcome.UNJUDGED, 0.0)
    assert trajectory.verdict is not None
    assert (trajectory.verdict.model, trajectory.verdict.prompt) == ("m", "Is it done?")
    assert "Away." in trajectory.verdict.reason
    until(lambda: judging.stats()["judge_unjudged"] == 1.0)


@pytest.mark.parametrize("said", [UNSURE, JudgeError("It refuses.")])
def test_without_a_verdict_it_is_unjudged(start: Start, said: Verdict | Exception) -> None:
    judging, link = start(said)
    judging.submit(*play())
    trajectory = the_only(link)
    assert trajectory.outcome is Outcome.UNJUDGED
    assert trajectory.steps[-1].reward.outcome == 0.0
    assert trajectory.truth == 1.0


def test_a_bug_of_the_judge_is_seen_and_costs_no_episode(start: Start, spool: Spool) -> None:
    judging, link = start(ZeroDivisionError("a bug"))
    judging.submit(*play())

    def fails() -> bool:
        try:
            judging.check()
        except ZeroDivisionError:
            return True
        return False

    until(fails, "the bug")
    assert len(spool) == 1
    assert link.submitted == []


def test_what_waits_outlives_the_process(spool: Spool, start: Start) -> None:
    judge, link = FakeJudge(YES), FakeLink()
    judge.gate.clear()
    judging = JudgingLink(link, judge, RulesConfig(), REWARDS, spool)
    judging.start()
    episodes = [play(index=index) for index in range(3)]
    for episode in episodes:
        judging.submit(*episode)
    assert not judging.close()  # it is still being asked
    judge.gate.set()
    until(judging.close)
    assert link.submitted == []
    _, link = start(YES)
    until(lambda: len(link.submitted) == 3, "the three episodes")
    assert [trajectory.id for trajectory in link.submitted] == [one.id for one, _ in episodes]
    assert link.runs == {"r"}


def test_an_episode_of_another_version_is_set_aside(spool: Spool, start: Start) -> None:
    spool._connection.execute(
        "INSERT INTO spooled (id, run_id, body, images) VALUES ('old', 'r', ?, ?)", EMPTY
    )
    judging, link = start(YES)
    judging.submit(*play())
    the_only(link)
    until(lambda: spool.refused(), "the other one")
    judging.check()
    assert "not a trajectory" in spool.refused()["old"]
    assert judging.stats()["judge_waiting"] == 0.0


def test_while_too_many_wait_nothing_is_leased(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging_module, "MAX_WAITING", 1)
    judging, link = start(YES)
    link.leases = [Lease(id="next", task=counting_task())]
    judging._judge.gate.clear()
    judging.submit(*play())
    assert judging.lease(0.05) is None
    judging._judge.gate.set()
    lease = judging.lease(DEADLINE_S)
    assert lease is not None
    assert lease.id == "next"


@pytest.mark.parametrize(("distances", "truth"), [((2, 1, 0, 0), 1.0), ((2, 1, 1, 0), 0.0), (None, None)])
def test_a_cut_episode_has_the_truth_of_where_it_was_cut(
    start: Start, distances: tuple[int, ...] | None, truth: float | None
) -> None:
    judging, link = start(NO, YES, when="steps")
    trajectory, images = play(require_complete=False)
    assert trajectory.truth == 1.0
    if distances is not None:
        seen = (step.observation for step in trajectory.steps)
        steps = tuple(
            step.model_copy(update={"observation": shown.model_copy(update={"distance": distance})})
            for step, shown, distance in zip(trajectory.steps, seen, distances, strict=True)
        )
        trajectory = trajectory.model_copy(update={"steps": steps})
    judging.submit(trajectory, images)
    cut = the_only(link)
    assert (len(cut.steps), cut.success, cut.ground_truth) == (2, 1.0, truth)
    assert (cut.steps[-1].done, cut.steps[-1].reward.outcome) == (True, 1.0)
    assert cut.final == trajectory.steps[2].observation
    assert cut.verdict is not None
    assert (cut.verdict.step, cut.verdict.cost, judging._judge.asked) == (2, 1.0, 2)


def test_a_screen_that_was_seen_is_not_judged_again() -> None:
    trajectory, images = play(require_complete=False)
    same = trajectory.steps[1].observation
    steps = tuple(step.model_copy(update={"observation": same}) for step in trajectory.steps)
    judge = FakeJudge(NO)
    verdict = judge_steps(judge, trajectory.model_copy(update={"steps": steps, "final": same}), images)
    assert judge.asked == 2  # the first screen, and the end
    assert not verdict.success


def test_an_unsure_step_leaves_the_episode_open() -> None:
    trajectory, images = play(require_complete=False)
    judge = FakeJudge(NO, UNSURE, YES)
    assert not judge_steps(judge, trajectory, images).is_decided
    assert judge.asked == 2


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        (None, "No judge is configured"),
        ({"kind": "vlm"}, "judge.model"),
        ({"kind": "local"}, "judge.path"),
        ({"kind": "rules"}, "no rules"),
        ({"import_path": "counting_env:Nobody"}, "Nobody"),
    ],
)
def test_a_judge_that_cannot_be_made_is_told(judge: dict[str, Any] | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_judge(Config.model_validate({"judge": judge}).judge)


def test_a_judge_of_ones_own() -> None:
    assert load_judge(CustomJudgeConfig(import_path="link_fake:FakeJudge")).name == "fake"


def test_a_judge_that_waits_for_a_busy_endpoint_stops_at_once(spool: Spool, monkeypatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", "sk")
    link = FakeLink()
    with JudgeEndpoint([status(True), Reply(429, headers={"Retry-After": "60"})]) as endpoint:
        vlm = {"kind": "vlm", "url": endpoint.url, "model": "m", "examples": None}
        config = Config.model_validate({"judge": vlm})
        judging = JudgingLink(link, load_judge(config.judge), config.judge, REWARDS, spool)
        judging.start()
        for index in range(2):
            judging.submit(*play(index=index))
        until(lambda: len(endpoint.requests) == 2, "the second question")
        until(lambda: link.submitted, "the first verdict")
        assert judging.close()
    assert len(spool.ids()) == 1, "the other episode is judged in the next session"
