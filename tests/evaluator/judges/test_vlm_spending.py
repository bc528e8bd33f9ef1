"""What the `vlm` judge spends: votes, answers that are kept, budgets."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from asking_judge import KEY, make, serve
from episode_factory import make_episode, make_task
from judge_endpoint import Reply, says, status

from distrl.configs.judge import VlmConfig
from distrl.core.errors import JudgeUnavailable
from distrl.evaluator.judges.vlm.budget import Budget
from distrl.evaluator.judges.vlm.client import Client
from distrl.evaluator.judges.vlm.endpoints import make_endpoint
from distrl.evaluator.judges.vlm.judge import VlmJudge


def votes(*said: bool) -> list[Reply]:
    return [status(one) for one in said]


@pytest.mark.parametrize(
    ("said", "agreement", "decided", "success", "calls"),
    [
        ((True, True, False), 0.5, True, True, 2),
        ((True, False, True), 0.5, True, True, 3),
        ((False, True, False), 0.5, True, False, 3),
        ((True, False, True), 1.0, False, False, 2),
    ],
)
def test_votes(said: tuple[bool, ...], agreement: float, decided: bool, success: bool, calls: int) -> None:
    with serve(*votes(*said)) as endpoint:
        verdict = make(endpoint, votes=3, temperature=0.7, agreement=agreement).judge(*make_episode())
        assert len(endpoint.requests) == calls
    assert (verdict.is_decided, verdict.success) == (decided, success)
    if not decided:
        assert "disagree" in verdict.reason


class Passing(threading.Event):
    """A stop that never comes, and a clock that goes on while it is waited for."""

    now = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.is_set()


def test_who_is_patient_waits_for_each_vote_and_asks_none_twice() -> None:
    stop = Passing()
    with serve(*votes(True, False, True)) as endpoint:
        fields = {"model": "m", "url": endpoint.url, "votes": 3, "temperature": 0.7, "calls_per_minute": 0.5}
        config = VlmConfig.model_validate({**fields, "examples": None})
        client = Client(make_endpoint(config), config, KEY, Budget(config, lambda: stop.now))
        judge = VlmJudge(config, client)
        judge.be_patient(stop)
        verdict = judge.judge(*make_episode())
        assert len(endpoint.requests) == 3
        assert (verdict.is_decided, verdict.success, verdict.calls) == (True, True, 3)
        assert stop.now == pytest.approx(240.0)
        stop.set()
        with pytest.raises(JudgeUnavailable, match="calls_per_minute"):
            judge.judge(*make_episode())
        assert len(endpoint.requests) == 3


def test_an_even_split_is_undecided() -> None:
    with serve(*votes(True, False)) as endpoint:
        verdict = make(endpoint, votes=2, temperature=0.7).judge(*make_episode())
    assert not verdict.is_decided


def test_a_cached_answer_costs_nothing(tmp_path: Path) -> None:
    episode = make_episode()
    with serve(*votes(True, True)) as endpoint:
        judge = make(endpoint, votes=3, temperature=0.7, cache=str(tmp_path))
        first, second = judge.judge(*episode), judge.judge(*episode)
        assert len(endpoint.requests) == 2
    assert (first.is_cached, second.is_cached) == (False, True)
    assert second.answers == first.answers
    assert (first.calls, second.calls, second.input_tokens, second.cost) == (2, 0, 0, 0.0)


def test_the_cache_is_by_content_and_apart_for_each_task(tmp_path: Path) -> None:
    one, other = make_episode(make_task(1)), make_episode(make_task(2))
    with serve(status(True)) as endpoint:
        make(endpoint, cache=str(tmp_path)).judge(*one)
        make(endpoint, cache=str(tmp_path)).judge(*other)
        assert len(endpoint.requests) == 2
        make(endpoint, cache=str(tmp_path), model="n").judge(*one)
        assert len(endpoint.requests) == 3
    assert len(list(tmp_path.iterdir())) == 2
    assert KEY not in "".join(file.read_text() for file in tmp_path.rglob("*.json"))


def test_a_damaged_cache_is_asked_anew(tmp_path: Path) -> None:
    episode = make_episode()
    with serve(status(True)) as endpoint:
        judge = make(endpoint, cache=str(tmp_path))
        judge.judge(*episode)
        (file,) = tmp_path.rglob("*.json")
        file.write_text("{")
        assert judge.judge(*episode).success
        assert len(endpoint.requests) == 2


def test_a_cache_that_cannot_be_written_is_told_once_and_the_verdicts_stand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    with serve(status(True)) as endpoint:
        judge = make(endpoint, cache=str(folder))
        verdicts = [judge.judge(*make_episode()) for _ in range(2)]
    assert [(one.is_decided, one.success) for one in verdicts] == [(True, True)] * 2
    (told,) = [record.getMessage() for record in caplog.records]
    assert f"judge.vlm.cache {folder} cannot be written" in told


def test_garbage_is_not_cached(tmp_path: Path) -> None:
    episode = make_episode()
    with serve(says("hm"), says("hm"), status(True)) as endpoint:
        judge = make(endpoint, cache=str(tmp_path), attempts=2)
        assert not judge.judge(*episode).is_decided
        assert judge.judge(*episode).success


def test_a_spent_budget_is_undecided() -> None:
    with serve(status(True)) as endpoint:
        judge = make(endpoint, max_calls=1)
        assert judge.judge(*make_episode()).is_decided
        verdict = judge.judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert not verdict.is_decided
    assert "max_calls=1" in verdict.reason


def test_a_spent_purse_is_undecided() -> None:
    with serve(status(True)) as endpoint:
        judge = make(endpoint, max_cost=0.001, price_input=1.0)
        assert judge.judge(*make_episode()).is_decided
        assert "max_cost" in judge.judge(*make_episode()).reason
