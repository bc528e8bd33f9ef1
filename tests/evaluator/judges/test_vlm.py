"""The judge `vlm` against an endpoint that fails in every way before it answers."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from asking_judge import KEY, Slept, make
from episode_factory import make_episode
from judge_endpoint import JudgeEndpoint, Reply, says, status

from distrl.configs.judge import VlmConfig
from distrl.core.errors import ConfigError, JudgeError, JudgeUnavailable
from distrl.core.packing import pack_trajectory, unpack_trajectory
from distrl.core.types import Verdict
from distrl.evaluator.judges.vlm.judge import VlmJudge, read_status

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


def test_a_verdict_holds_question_answer_model_and_cost() -> None:
    with JudgeEndpoint([status(True), status(False)]) as endpoint:
        judge = make(endpoint, **PRICES, screenshots=3)
        verdict, other = (judge.judge(*make_episode(num_steps=4)) for _ in range(2))
        path, headers, body = endpoint.requests[0]
    assert (verdict.success, verdict.is_decided, verdict.score) == (True, True, 1.0)
    assert (other.success, other.is_decided, other.score) == (False, True, 0.0)
    assert (verdict.judge, verdict.model) == ("vlm", "m")
    assert verdict.answers == ("I see it.\nStatus: success",)
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
    with JudgeEndpoint([bad, bad, status(True)]) as endpoint:
        verdict = make(endpoint, timeout_s=0.2).judge(*make_episode())
        assert len(endpoint.requests) == 3
    assert (verdict.success, verdict.is_decided) == (True, True)
    if bad in GARBAGE:
        with JudgeEndpoint([bad]) as endpoint:
            verdict = make(endpoint, attempts=3).judge(*make_episode())
            assert len(endpoint.requests) == 3
        assert (verdict.success, verdict.is_decided) == (False, False)


BAD_KEY = json.dumps({"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}})


@pytest.mark.parametrize(
    ("reply", "fields", "num", "is_postponed", "reason"),
    [
        (Reply(503), {"attempts": 2}, 2, True, "answers 503"),
        (Reply(hangs=True), {"attempts": 2, "timeout_s": 0.05}, 2, True, "does not answer"),
        *[(Reply(code, f"bad key {KEY}"), {}, 1, True, r"bad key \*\*\*") for code in (401, 402, 403, 404)],
        (Reply(400, BAD_KEY), {}, 1, True, "the key"),
        (Reply(400, "too many pictures"), {}, 1, False, "too many pictures"),
    ],
)
def test_without_a_verdict_an_episode_is_asked_about_later_or_never(
    reply: Reply, fields: dict[str, Any], num: int, is_postponed: bool, reason: str
) -> None:
    with JudgeEndpoint([reply]) as endpoint:
        with pytest.raises(JudgeError, match=reason) as caught:
            make(endpoint, **fields).judge(*make_episode())
        assert len(endpoint.requests) == num
    assert isinstance(caught.value, JudgeUnavailable) is is_postponed
    assert KEY not in str(caught.value)
    assert caught.value.spent is not None
    assert caught.value.spent.calls == num


def test_an_address_without_a_server_and_a_redirect() -> None:
    with JudgeEndpoint([status(True)]) as other:
        there = Reply(302, headers={"Location": f"{other.url}/chat/completions"})
        with JudgeEndpoint([there]) as endpoint, pytest.raises(JudgeError):
            make(endpoint).judge(*make_episode())
        assert other.requests == [], "the key stays"
        judge = make(other, attempts=2)
    with pytest.raises(JudgeUnavailable, match="does not answer"):
        judge.judge(*make_episode())


@pytest.mark.parametrize("tokens", [10**400, -5, "many", None, 1.5])
def test_a_wild_answer_can_be_stored_and_counted(tokens: object) -> None:
    wild = says("\ud800 \x00 I see it.\nStatus: success", input_tokens=tokens)  # type: ignore[arg-type]
    trajectory, images = make_episode()
    with JudgeEndpoint([wild]) as endpoint:
        verdict = make(endpoint, price_input=1.0).judge(trajectory, images)
    assert (verdict.success, verdict.calls, verdict.input_tokens) == (True, 1, 0)
    packed = pack_trajectory(trajectory.model_copy(update={"verdict": verdict}))
    assert unpack_trajectory(packed).verdict == verdict


def test_a_page_that_repeats_the_key_does_not_bring_it_into_a_verdict() -> None:
    with JudgeEndpoint([Reply(body=f"<html>Bearer {KEY}</html>")]) as endpoint:
        verdict = make(endpoint, attempts=1).judge(*make_episode())
    assert "Bearer ***" in verdict.reason
    assert KEY not in verdict.model_dump_json()


@pytest.mark.parametrize("drips", ["headers", "body"])
@pytest.mark.parametrize("code", [200, 400])
def test_the_deadline_is_for_the_whole_reply_however_it_drips(drips: Any, code: int) -> None:
    """Each byte comes in time."""
    slow = Reply(code, body=" " * 60 + status(True).body, drips=drips)
    reason = "answers 400" if (drips, code) == ("body", 400) else "does not answer"
    with JudgeEndpoint([slow]) as endpoint, pytest.raises(JudgeError, match=reason) as caught:
        make(endpoint, timeout_s=0.3, attempts=1).judge(*make_episode())
    assert "choices" not in caught.value.message, "what came after the deadline"


def test_pauses_grow_within_bounds_and_the_endpoints_wish_counts() -> None:
    slept = Slept()
    wish, hour = (Reply(429, headers={"Retry-After": seconds}) for seconds in ("30", "3600"))
    with JudgeEndpoint([Reply(500), Reply(500), wish, hour, *[Reply(500)] * 9, status(True)]) as endpoint:
        assert make(endpoint, slept, attempts=50).judge(*make_episode()).success
    assert 0.75 <= slept[0] <= 1.25
    assert 1.5 <= slept[1] <= 2.5
    assert slept[2:4] == [30.0, 60.0]
    assert max(slept) == 60.0


@pytest.mark.parametrize("last", [Reply(500), Reply(401), Reply(400)])
def test_without_a_verdict_question_model_and_answers_are_kept(last: Reply) -> None:
    with JudgeEndpoint([status(True), last]) as endpoint, pytest.raises(JudgeError) as caught:
        make(endpoint, votes=3, temperature=0.7, attempts=1).judge(*make_episode())
    asked = caught.value.asked
    assert asked is not None
    verdict = Verdict.none("vlm", "Nobody.", asked)
    assert (verdict.is_decided, verdict.reason, verdict.judge, verdict.model) == (
        False, "Nobody.", "vlm", "m",
    )  # fmt: skip
    assert "Task: Turn on switch 0" in verdict.prompt
    assert verdict.answers == ("I see it.\nStatus: success",)


THOUGHT = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 100}
THINKS = {"choices": [{"message": {"content": "Status: failure"}}], "usage": THOUGHT}


@pytest.mark.parametrize(
    ("replies", "calls", "input_tokens", "output_tokens"),
    [
        ([status(True)], 1, 1000, 20),
        ([says("hm"), says("hm"), status(True)], 3, 3000, 60),
        ([says("hm")], 4, 4000, 80),
        ([NO_ANSWER, status(True)], 2, 2000, 40),
        ([Reply(500), Reply(body="<html>"), status(True)], 3, 1000, 20),
        ([Reply(body=json.dumps(THINKS))], 1, 7, 93),  # what a model thought is counted
    ],
)
def test_every_call_is_counted_whatever_came_of_it(
    replies: list[Reply], calls: int, input_tokens: int, output_tokens: int
) -> None:
    with JudgeEndpoint(replies) as endpoint:
        verdict = make(endpoint, **PRICES).judge(*make_episode())
    assert (verdict.calls, verdict.input_tokens, verdict.output_tokens) == (
        calls,
        input_tokens,
        output_tokens,
    )
    assert verdict.cost == pytest.approx((2.0 * input_tokens + 10.0 * output_tokens) / 1e6)


@pytest.mark.parametrize("content", ["Status: success", None])
def test_an_answer_that_was_cut_off_is_none(content: str | None) -> None:
    reply = {"choices": [{"message": {"content": content}, "finish_reason": "length"}]}
    with JudgeEndpoint([Reply(body=json.dumps(reply))]) as endpoint:
        verdict = make(endpoint, max_tokens=9, attempts=2).judge(*make_episode())
    assert not verdict.is_decided
    assert "cut off at judge.max_tokens=9" in verdict.reason
    assert verdict.calls == 2


def test_the_key_has_to_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTRL_JUDGE_KEY", raising=False)
    with pytest.raises(ConfigError, match="DISTRL_JUDGE_KEY"):
        VlmJudge(VlmConfig(model="m"))
    VlmJudge(VlmConfig(model="m", key_env="", url="http://127.0.0.1:1/v1"))


@pytest.mark.parametrize("text", ["examples: [", "examples: []", "examples: [{image: no.jpg}]", "[]"])
def test_wrong_examples_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "examples.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"examples\.yaml"):
        VlmJudge(VlmConfig(model="m", key_env="", examples=str(file)))


@pytest.mark.parametrize(
    ("said", "total", "decided", "success", "calls"),
    [
        ((True, True, False), 3, True, True, 2),
        ((True, False, True), 3, True, True, 3),
        ((False, True, False), 3, True, False, 3),
        ((True, False, True), 2, False, False, 2),
    ],
)
def test_more_than_half_of_the_votes_decide(
    said: tuple[bool, ...], total: int, decided: bool, success: bool, calls: int
) -> None:
    with JudgeEndpoint([status(one) for one in said]) as endpoint:
        verdict = make(endpoint, votes=total, temperature=0.7).judge(*make_episode())
        assert len(endpoint.requests) == calls
    assert (verdict.is_decided, verdict.success) == (decided, success)
    assert decided or "disagree" in verdict.reason


def test_a_spent_budget_is_undecided() -> None:
    with JudgeEndpoint([status(True)]) as endpoint:
        judge = make(endpoint, max_calls=1)
        assert judge.judge(*make_episode()).is_decided
        verdict = judge.judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert not verdict.is_decided
    assert "max_calls" in verdict.reason


def refusal(message: str, param: str, code: str) -> Reply:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return Reply(400, json.dumps({"error": error}, indent=2))


LENGTH = refusal(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
    "instead.",
    "max_tokens",
    "unsupported_parameter",
)
TEMPERATURE = refusal(
    "Unsupported value: 'temperature' does not support 0.0 with this model. Only the default (1) value is "
    "supported.",
    "temperature",
    "unsupported_value",
)
SETTINGS = ("max_tokens", "max_completion_tokens", "temperature")


def test_a_model_that_reasons_is_asked_as_it_accepts_it(caplog: pytest.LogCaptureFixture) -> None:
    with JudgeEndpoint([LENGTH, TEMPERATURE, status(True)]) as endpoint, caplog.at_level(logging.WARNING):
        judge = make(endpoint, attempts=1, max_tokens=7)
        verdict = judge.judge(*make_episode())
        assert verdict.is_decided
        assert verdict.spent.calls == 3, "what was refused was sent too"
        judge.judge(*make_episode())
        found = [{key: body[key] for key in SETTINGS if key in body} for _, _, body in endpoint.requests]
    assert found == [
        {"max_tokens": 7, "temperature": 0.0},
        {"max_completion_tokens": 7, "temperature": 0.0},
        {"max_completion_tokens": 7},
        {"max_completion_tokens": 7},
    ]
    assert caplog.text.count("does not accept temperature") == 1
    with JudgeEndpoint([LENGTH]) as endpoint:
        with pytest.raises(JudgeError, match="max_completion_tokens"):
            make(endpoint).judge(*make_episode())
        assert len(endpoint.requests) == 2, "one that refuses its own words is not asked for ever"


@pytest.mark.parametrize(
    ("text", "success"),
    [
        ("A: yes.\nStatus: success", True),
        ("Status: failure.", False),
        ("**Status:** Success", True),
        ("### **Final Status:** `success`\n", True),
        ("status = FAILURE", False),
        ("Status \uff1a unsuccessful.", False),
        ("**Status:** Success! ✔️", True),
        ("I expect the Wi-Fi status: on. It shows the status: off.\nStatus: failure", False),
        ("<think>Status: success or failure? Status: failure.</think>\nStatus: success", True),
        ('{"status": "success", "reason": "Status: failure was near"}', True),
        ('{"Status": "Failed", "reason": "no success"}', False),
        ('Here it is:\n```json\n{"status": "failure"}\n```', False),
    ],
)
def test_a_status_that_is_said_plainly(text: str, success: bool) -> None:
    assert read_status(text) is success


@pytest.mark.parametrize(
    "text",
    [
        "",
        "success",
        '{"status": true}',
        '{"status": ["success"]}',
        "Status: not successful",
        "Status: partial success",
        "Status: success/failure",
        "Status: success (the alarm is on)",
        "Status: failure. It isn't on.",
        "The status: success is what I hope for",
        "<think>Status: success",
        "<think>The alarm is on.</think>I cannot tell.",
        "Status: success\nStatus: failure",
        "Status: success\nFinal status: failed (no alarm)",
        "Status: success\nHowever, the alarm is off.",
        "Status: unknown\nStatus: success",
        '{"status": "success", "status": "failure"}',
        '{"status": "success", "final_status": "failed"}',
        *(part * (50_000 // len(part)) for part in ("Status: success, ", "\n", "[", "Status: ", "status:  ")),
    ],
)
def test_an_answer_without_a_status_or_against_it_says_nothing(text: str) -> None:
    assert read_status(text) is None
