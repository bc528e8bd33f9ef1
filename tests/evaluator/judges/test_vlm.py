"""The judge `vlm` against an endpoint that fails in every way before it answers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from asking_judge import KEY, Slept, make, serve
from episode_factory import make_episode
from judge_endpoint import Reply, says, status

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError, JudgeUnavailable
from distrl.core.messages import pack_trajectory, unpack_trajectory
from distrl.core.types import Verdict
from distrl.evaluator.judges.vlm.judge import VlmJudge, decide, is_lost

GARBAGE = [
    says("I cannot help with that."),
    says("Status: success\nStatus: failure"),
    says('{"status": "perhaps"}'),
    Reply(body='{"choices": [{"message": {"cont'),
    Reply(body="<html>gateway</html>"),
    Reply(body='{"choices": []}'),
    Reply(body='{"choices": [{"message": {"content": null, "refusal": "No."}}]}'),
    Reply(body="[" * 100_000),
    says("x" * 100_000 + "\nStatus: success"),
]
BUSY = [Reply(429), Reply(500, "oh"), Reply(503), Reply(body=status(True).body, cut=True), Reply(hangs=True)]
NO_ANSWER = Reply(body='{"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 20}}')
PRICES = {"price_input": 2.0, "price_output": 10.0}
COST = (1000 * 2.0 + 20 * 10.0) / 1e6


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", KEY)


@pytest.mark.parametrize("success", [True, False])
def test_a_verdict_holds_question_answer_model_and_cost(success: bool) -> None:
    with serve(status(success)) as endpoint:
        verdict = make(endpoint, **PRICES, screenshots=3).judge(*make_episode(num_steps=4))
        path, headers, body = endpoint.requests[0]
    assert (verdict.success, verdict.is_decided, verdict.score) == (success, True, float(success))
    assert (verdict.judge, verdict.model) == ("vlm", "m")
    assert verdict.answers == (f"I see it.\nStatus: {'success' if success else 'failure'}",)
    assert "Task: Turn on switch 0" in verdict.prompt
    assert "expert in evaluating" in verdict.prompt
    assert verdict.cost == pytest.approx(COST)
    assert (verdict.input_tokens, verdict.output_tokens) == (1000, 20)
    assert KEY not in verdict.model_dump_json()
    assert (path, headers["Authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    parts = body["messages"][1]["content"]
    assert [part["type"] for part in parts].count("image_url") == 4 + 3, "of examples, and the last screens"
    texts = [part["text"] for part in parts if part["type"] == "text"]
    assert sum("Status: failure" in text for text in texts) == 2
    assert "Screenshot 3 of 3, the last:" in texts


@pytest.mark.parametrize("bad", [*BUSY, *GARBAGE])
def test_what_may_pass_is_tried_again(bad: Reply) -> None:
    with serve(bad, bad, status(True)) as endpoint:
        verdict = make(endpoint, timeout_s=0.5).judge(*make_episode())
        assert len(endpoint.requests) == 3
    assert (verdict.success, verdict.is_decided) == (True, True)


@pytest.mark.parametrize("bad", GARBAGE)
def test_nothing_but_garbage_is_undecided(bad: Reply) -> None:
    with serve(bad) as endpoint:
        verdict = make(endpoint, attempts=3).judge(*make_episode())
        assert len(endpoint.requests) == 3
    assert (verdict.success, verdict.is_decided) == (False, False)


BAD_KEY = json.dumps({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}})


@pytest.mark.parametrize(
    ("reply", "fields", "num", "is_postponed", "reason"),
    [
        (Reply(503), {"attempts": 2}, 2, True, "answers 503"),
        (Reply(hangs=True), {"attempts": 2, "timeout_s": 0.05}, 2, True, "does not answer"),
        (Reply(429, headers={"Retry-After": "3600"}), {}, 1, True, "429"),
        *[(Reply(code, f"bad key {KEY}"), {}, 1, True, r"bad key \*\*\*") for code in (401, 402, 403, 404)],
        (Reply(400, BAD_KEY), {}, 1, True, "the key"),
        (Reply(400, "too many pictures"), {}, 1, False, "too many pictures"),
    ],
)
def test_without_a_verdict_an_episode_is_asked_about_later_or_never(
    reply: Reply, fields: dict[str, Any], num: int, is_postponed: bool, reason: str
) -> None:
    slept = Slept()
    with serve(reply) as endpoint:
        with pytest.raises(JudgeError, match=reason) as caught:
            make(endpoint, slept, **fields).judge(*make_episode())
        assert len(endpoint.requests) == num
    assert isinstance(caught.value, JudgeUnavailable) is is_postponed
    assert KEY not in str(caught.value)
    assert len(slept) == num - 1
    assert caught.value.spent is not None
    assert caught.value.spent.calls == num


def test_an_address_without_a_server_and_a_redirect() -> None:
    with serve(status(True)) as other:
        there = Reply(302, headers={"Location": f"{other.url}/chat/completions"})
        with serve(there) as endpoint, pytest.raises(JudgeError):
            make(endpoint).judge(*make_episode())
        assert other.requests == [], "the key stays"
        judge = make(other, attempts=2)
    with pytest.raises(JudgeUnavailable, match="does not answer"):
        judge.judge(*make_episode())


@pytest.mark.parametrize("tokens", [10**400, -5, "many", None, 1.5])
def test_a_wild_answer_can_be_stored_and_counted(tokens: object, tmp_path: Path) -> None:
    wild = says("\ud800 \x00 I see it.\nStatus: success", input_tokens=tokens)  # type: ignore[arg-type]
    trajectory, images = make_episode()
    with serve(wild) as endpoint:
        judge = make(endpoint, cache=str(tmp_path), price_input=1.0)
        verdict = judge.judge(trajectory, images)
        assert judge.judge(trajectory, images).is_cached
    assert verdict.success
    assert (verdict.calls, verdict.input_tokens) == (1, 0)
    packed = pack_trajectory(trajectory.model_copy(update={"verdict": verdict}))
    assert unpack_trajectory(packed).verdict == verdict


def test_a_page_that_repeats_the_key_does_not_bring_it_into_a_verdict() -> None:
    with serve(Reply(body=f"<html>Bearer {KEY}</html>")) as endpoint:
        verdict = make(endpoint, attempts=1).judge(*make_episode())
    assert "Bearer ***" in verdict.reason
    assert KEY not in verdict.model_dump_json()


@pytest.mark.parametrize("drips", ["headers", "body"])
@pytest.mark.parametrize("code", [200, 400])
def test_the_deadline_is_for_the_whole_reply_however_it_drips(drips: Any, code: int) -> None:
    """Each byte comes in time."""
    slow = Reply(code, body=" " * 60 + status(True).body, drips=drips)
    reason = "answers 400" if (drips, code) == ("body", 400) else "does not answer"
    with serve(slow) as endpoint, pytest.raises(JudgeError, match=reason) as caught:
        make(endpoint, timeout_s=0.3, attempts=1).judge(*make_episode())
    assert "choices" not in caught.value.message, "what came after the deadline"


def test_pauses_grow_within_bounds_and_the_endpoints_wish_counts() -> None:
    slept = Slept()
    wish = Reply(429, headers={"Retry-After": "30"})
    with serve(Reply(500), Reply(500), wish, *[Reply(500)] * 37, status(True)) as endpoint:
        assert make(endpoint, slept, attempts=50).judge(*make_episode()).success
    assert 0.75 <= slept[0] <= 1.25
    assert 1.5 <= slept[1] <= 2.5
    assert round(slept[2]) == 30
    assert max(slept) <= 75.0


@pytest.mark.parametrize("last", [Reply(500), Reply(401), Reply(400)])
def test_without_a_verdict_question_model_and_answers_are_kept(last: Reply) -> None:
    with serve(status(True), last) as endpoint, pytest.raises(JudgeError) as caught:
        make(endpoint, votes=3, temperature=0.7, attempts=1).judge(*make_episode())
    asked = caught.value.asked
    assert asked is not None
    verdict = Verdict.none("vlm", "Nobody.", asked)
    assert (verdict.is_decided, verdict.reason, verdict.judge, verdict.model) == (
        False, "Nobody.", "vlm", "m",
    )  # fmt: skip
    assert "Task: Turn on switch 0" in verdict.prompt
    assert verdict.answers == ("I see it.\nStatus: success",)


@pytest.mark.parametrize(
    ("replies", "calls", "paid"),
    [
        ([status(True)], 1, 1),
        ([says("hm"), says("hm"), status(True)], 3, 3),
        ([says("hm")], 4, 4),
        ([NO_ANSWER, status(True)], 2, 2),
        ([Reply(500), Reply(body="<html>"), status(True)], 3, 1),
    ],
)
def test_every_call_is_counted_whatever_came_of_it(replies: list[Reply], calls: int, paid: int) -> None:
    with serve(*replies) as endpoint:
        verdict = make(endpoint, **PRICES).judge(*make_episode())
    assert (verdict.calls, verdict.input_tokens, verdict.output_tokens) == (calls, 1000 * paid, 20 * paid)
    assert verdict.cost == pytest.approx(paid * COST)


def test_what_a_model_thought_is_counted() -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 100}
    reply = {"choices": [{"message": {"content": "Status: failure"}}], "usage": usage}
    with serve(Reply(body=json.dumps(reply))) as endpoint:
        verdict = make(endpoint).judge(*make_episode())
    assert (verdict.input_tokens, verdict.output_tokens) == (7, 93)


@pytest.mark.parametrize("content", ["Status: success\nOr is it? The alarm", None])
def test_an_answer_that_was_cut_off_is_none(content: str | None) -> None:
    reply = {"choices": [{"message": {"content": content}, "finish_reason": "length"}]}
    with serve(Reply(body=json.dumps(reply))) as endpoint:
        verdict = make(endpoint, max_tokens=9, attempts=2).judge(*make_episode())
    assert not verdict.is_decided
    assert "cut off at judge.max_tokens=9" in verdict.reason
    assert verdict.calls == 2


def test_answers_that_contradict_themselves_never_count() -> None:
    torn = says("Status: success\nFinal status: failed (no alarm)")
    with serve(torn, status(False)) as endpoint:
        assert not make(endpoint).judge(*make_episode()).success
        assert len(endpoint.requests) == 2
    with serve(torn) as endpoint:
        verdict = make(endpoint, attempts=2).judge(*make_episode())
    assert not verdict.is_decided
    assert "failed (no alarm)" in verdict.reason


def test_the_key_has_to_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTRL_JUDGE_KEY")
    with pytest.raises(ConfigError, match="DISTRL_JUDGE_KEY"):
        VlmJudge(VlmConfig(model="m"))
    VlmJudge(VlmConfig(model="m", key_env="", url="http://127.0.0.1:1/v1"))


@pytest.mark.parametrize("text", ["examples: [", "examples: []", "examples: [{image: no.jpg}]", "[]"])
def test_wrong_examples_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "examples.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"examples\.yaml"):
        VlmJudge(VlmConfig(model="m", examples=str(file)))


@pytest.mark.parametrize("total", [1, 2, 3, 5])
@pytest.mark.parametrize("agreement", [0.5, 0.6, 0.8, 1.0])
def test_a_verdict_is_there_as_soon_as_no_vote_can_change_it(total: int, agreement: float) -> None:
    for votes in itertools.product([True, False], repeat=total):
        final = decide(votes, total, agreement)
        for count in range(total + 1):
            early = decide(votes[:count], total, agreement)
            assert early is None or early is final
            if is_lost(votes[:count], total, agreement):
                assert final is None
    assert decide([True] * total, total, agreement) is True
