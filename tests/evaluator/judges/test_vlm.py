"""The judge `vlm` against an endpoint that fails in every way before it answers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
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
from distrl.evaluator.judges.vlm.client import Answer, Gemini
from distrl.evaluator.judges.vlm.judge import VlmJudge, decide, is_lost

GARBAGE = [
    says("I cannot help with that."),
    says("Status: success or failure?"),
    says("Status: success\nStatus: failure"),
    says('{"status": "perhaps"}'),
    says(""),
    Reply(body='{"choices": [{"message": {"cont'),
    Reply(body="<html>gateway</html>"),
    Reply(body='{"choices": []}'),
    Reply(body='{"choices": [{"message": {"content": null, "refusal": "No."}}]}'),
    Reply(body="[]"),
    Reply(body="[" * 100_000),
    says("[" * 100_000),
    says("x" * 100_000 + "\nStatus: success"),
]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISTRL_JUDGE_KEY", KEY)


@pytest.mark.parametrize("success", [True, False])
def test_a_verdict_holds_question_answer_model_and_cost(success: bool) -> None:
    with serve(status(success)) as endpoint:
        verdict = make(endpoint, price_input=2.0, price_output=10.0).judge(*make_episode())
    assert (verdict.success, verdict.is_decided, verdict.score) == (success, True, float(success))
    assert (verdict.judge, verdict.model) == ("vlm", "m")
    assert verdict.answers == (f"I see it.\nStatus: {'success' if success else 'failure'}",)
    assert "Task: Turn on switch 0" in verdict.prompt
    assert "expert in evaluating" in verdict.prompt
    assert verdict.cost == pytest.approx((1000 * 2.0 + 20 * 10.0) / 1e6)
    assert (verdict.input_tokens, verdict.output_tokens) == (1000, 20)
    assert KEY not in verdict.model_dump_json()


def test_the_question_has_examples_with_pictures_and_the_last_screens() -> None:
    with serve(status(True)) as endpoint:
        make(endpoint, screenshots=3).judge(*make_episode(num_steps=4))
        path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    parts = body["messages"][1]["content"]
    kinds = [part["type"] for part in parts]
    assert kinds.count("image_url") == 4 + 3
    texts = [part["text"] for part in parts if part["type"] == "text"]
    assert texts[0] == "=====Examples====="
    assert sum("Status: failure" in text for text in texts) == 2
    assert "Screenshot 3 of 3, the last:" in texts


def test_gemini_is_asked_in_its_own_words() -> None:
    reply = {
        "candidates": [{"content": {"parts": [{"text": "It is.\n"}, {"text": "Status: success"}]}}],
        "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3},
    }
    with serve(Reply(body=json.dumps(reply))) as endpoint:
        verdict = make(endpoint, api="gemini", examples=None).judge(*make_episode())
        path, headers, body = endpoint.requests[0]
    assert verdict.success
    assert (verdict.input_tokens, verdict.output_tokens) == (7, 3)
    assert path == "/v1/models/m:generateContent"
    assert KEY not in path
    assert {name.lower(): value for name, value in headers.items()}["x-goog-api-key"] == KEY
    assert "inlineData" in json.dumps(body["contents"])


@pytest.mark.parametrize("bad", [Reply(429), Reply(500, "oh"), Reply(503), *GARBAGE])
def test_what_fails_is_tried_again(bad: Reply) -> None:
    with serve(bad, bad, status(True)) as endpoint:
        verdict = make(endpoint).judge(*make_episode())
        assert len(endpoint.requests) == 3
    assert verdict.success
    assert verdict.is_decided


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


def test_pauses_stay_bounded_however_many_tries() -> None:
    slept = Slept()
    with serve(*[Reply(500)] * 40, status(True)) as endpoint:
        assert make(endpoint, slept, attempts=50).judge(*make_episode()).success
    assert max(slept) <= 75.0


def test_a_torn_reply_is_tried_again() -> None:
    torn = Reply(body=status(True).body, cut=True)
    with serve(torn, status(False)) as endpoint:
        verdict = make(endpoint, timeout_s=0.5).judge(*make_episode())
    assert verdict.is_decided
    assert not verdict.success


def test_an_endpoint_that_hangs_is_given_up() -> None:
    with serve(Reply(hangs=True)) as endpoint, pytest.raises(JudgeUnavailable, match="does not answer"):
        make(endpoint, timeout_s=0.05, attempts=2).judge(*make_episode())


@pytest.mark.parametrize("drips", ["headers", "body"])
@pytest.mark.parametrize("code", [200, 400])
def test_the_deadline_is_for_the_whole_reply_however_it_drips(drips: Any, code: int) -> None:
    """Each byte comes in time."""
    slow = Reply(code, body=" " * 60 + status(True).body, drips=drips)
    with serve(slow) as endpoint:
        judge = make(endpoint, timeout_s=0.3, attempts=1)
        if drips == "body" and code == 400:
            with pytest.raises(JudgeError, match="answers 400") as caught:
                judge.judge(*make_episode())
            assert "choices" not in caught.value.message, "what came after the deadline"
        else:
            with pytest.raises(JudgeUnavailable, match="does not answer"):
                judge.judge(*make_episode())


def test_nobody_at_the_address() -> None:
    with serve(status(True)) as endpoint:
        judge = make(endpoint, attempts=2)
    with pytest.raises(JudgeUnavailable, match="does not answer"):
        judge.judge(*make_episode())


def test_pauses_grow_and_the_endpoints_wish_counts() -> None:
    slept = Slept()
    replies = (Reply(500), Reply(500), Reply(429, headers={"Retry-After": "30"}), status(True))
    with serve(*replies) as endpoint:
        make(endpoint, slept).judge(*make_episode())
    assert [round(seconds) for seconds in slept][2] == 30
    assert 0.75 <= slept[0] <= 1.25
    assert 1.5 <= slept[1] <= 2.5


def test_who_is_to_wait_for_long_comes_back_later() -> None:
    slept = Slept()
    with serve(Reply(429, headers={"Retry-After": "3600"})) as endpoint:
        with pytest.raises(JudgeUnavailable) as caught:
            make(endpoint, slept).judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert caught.value.retry_after_s == 3600
    assert slept == []


@pytest.mark.parametrize("code", [401, 402, 403, 404])
def test_a_wrong_key_keeps_episodes_waiting_and_is_not_shown(code: int) -> None:
    with serve(Reply(code, f"bad key {KEY}")) as endpoint:
        with pytest.raises(JudgeUnavailable) as caught:
            make(endpoint).judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert KEY not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize("told", ["API key not valid. Please pass a valid API key.", "API key expired."])
def test_geminis_400_for_a_key_keeps_episodes_waiting(told: str) -> None:
    details = [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]
    body = {"error": {"code": 400, "message": told, "status": "INVALID_ARGUMENT", "details": details}}
    with serve(Reply(400, json.dumps(body, indent=2))) as endpoint:
        with pytest.raises(JudgeUnavailable) as caught:
            make(endpoint, api="gemini", examples=None).judge(*make_episode())
        assert len(endpoint.requests) == 1
    assert "the key" in caught.value.remedy


@pytest.mark.parametrize("last", [Reply(500), Reply(401), Reply(400)])
def test_without_a_verdict_question_model_and_answers_are_kept(last: Reply) -> None:
    with serve(status(True), last) as endpoint, pytest.raises(JudgeError) as caught:
        make(endpoint, votes=3, temperature=0.7, attempts=1).judge(*make_episode())
    asked = caught.value.asked
    assert asked is not None
    verdict = Verdict.none("vlm", "Nobody.", asked)
    assert (verdict.is_decided, verdict.reason, verdict.judge, verdict.model) == (
        False,
        "Nobody.",
        "vlm",
        "m",
    )
    assert "Task: Turn on switch 0" in verdict.prompt
    assert verdict.answers == ("I see it.\nStatus: success",)


def test_a_refused_question_has_no_verdict() -> None:
    with serve(Reply(400, "too many pictures")) as endpoint, pytest.raises(JudgeError) as caught:
        make(endpoint).judge(*make_episode())
    assert not isinstance(caught.value, JudgeUnavailable)
    assert "too many pictures" in str(caught.value)


def test_a_redirect_does_not_take_the_key_elsewhere() -> None:
    with serve(status(True)) as other:
        there = Reply(302, headers={"Location": f"{other.url}/chat/completions"})
        with serve(there) as endpoint, pytest.raises(JudgeError):
            make(endpoint).judge(*make_episode())
        assert other.requests == []


@pytest.mark.parametrize("bad", GARBAGE)
def test_nothing_but_garbage_is_undecided(bad: Reply) -> None:
    with serve(bad) as endpoint:
        verdict = make(endpoint, attempts=3).judge(*make_episode())
        assert len(endpoint.requests) == 3
    assert not verdict.is_decided
    assert not verdict.success


NO_ANSWER = Reply(body='{"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 20}}')
PRICES = {"price_input": 2.0, "price_output": 10.0}


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
    assert verdict.cost == pytest.approx(paid * (1000 * 2.0 + 20 * 10.0) / 1e6)


@pytest.mark.parametrize(("last", "kind"), [(Reply(503), JudgeUnavailable), (Reply(400), JudgeError)])
def test_what_led_to_no_verdict_is_counted(last: Reply, kind: type[JudgeError]) -> None:
    with serve(says("hm"), last) as endpoint, pytest.raises(kind) as caught:
        make(endpoint, attempts=2, **PRICES).judge(*make_episode())
    assert caught.value.spent is not None
    assert (caught.value.spent.calls, caught.value.spent.input_tokens) == (2, 1000)


def test_what_gemini_thought_is_counted() -> None:
    usage = {"promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 90}
    body = {"candidates": [{"content": {"parts": [{"text": "Status: failure"}]}}], "usageMetadata": usage}
    with serve(Reply(body=json.dumps(body))) as endpoint:
        verdict = make(endpoint, api="gemini", examples=None).judge(*make_episode())
    assert (verdict.input_tokens, verdict.output_tokens) == (7, 93)


@pytest.mark.parametrize("api", ["openai", "gemini"])
def test_an_answer_that_was_cut_off_is_none(api: str) -> None:
    text = "Status: success\nOr is it? The alarm"
    openai = {"choices": [{"message": {"content": text}, "finish_reason": "length"}]}
    gemini = {"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "MAX_TOKENS"}]}
    with serve(Reply(body=json.dumps(openai if api == "openai" else gemini))) as endpoint:
        verdict = make(endpoint, api=api, examples=None, max_tokens=9).judge(*make_episode())
    assert not verdict.is_decided
    assert "judge.max_tokens=9" in verdict.reason


@pytest.mark.parametrize("reason", ["SAFETY", "MAX_TOKENS"])
@pytest.mark.parametrize("content", [{}, {"content": {"role": "model"}}, {"content": {"parts": []}}])
def test_nothing_from_gemini_is_no_verdict(reason: str, content: dict[str, Any]) -> None:
    usage = {"promptTokenCount": 7, "thoughtsTokenCount": 9}
    body = {"candidates": [{**content, "finishReason": reason}], "usageMetadata": usage}
    assert Gemini("").read(body) == Answer("", 7, 9, is_cut=reason == "MAX_TOKENS")
    with serve(Reply(body=json.dumps(body))) as endpoint:
        verdict = make(endpoint, api="gemini", examples=None, attempts=2).judge(*make_episode())
    assert not verdict.is_decided
    assert (verdict.calls, verdict.input_tokens, verdict.output_tokens) == (2, 14, 18)
    assert ("contains no answer" in verdict.reason) is (reason == "SAFETY")
    assert ("was cut off" in verdict.reason) is (reason == "MAX_TOKENS")


def test_answers_that_contradict_themselves_are_asked_for_again_and_never_count() -> None:
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


def examples(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / "examples.yaml"
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize("text", ["examples: [", "examples: []", "examples: [{image: no.jpg}]", "other: 1"])
def test_wrong_examples_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"examples\.yaml"):
        VlmJudge(VlmConfig(model="m", examples=str(examples(text)(tmp_path))))


def test_what_is_wrong_with_all_of_an_examples_file_is_told_of_no_place_in_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"examples\.yaml: Input should be"):
        VlmJudge(VlmConfig(model="m", examples=str(examples("[]")(tmp_path))))


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
