"""The prompted baseline against an endpoint on the loopback interface that also fails in the usual ways."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from counting_phone import CountingEnv, counting_config, write_suite
from judge_endpoint import JudgeEndpoint, Reply

from distrl.configs.agents import PromptedConfig
from distrl.configs.load import load_config
from distrl.configs.schema import Config, EvaluateConfig
from distrl.core.errors import ConfigError, InferenceUnavailable
from distrl.core.store import TrajectoryStore
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart, Trajectory
from distrl.evaluator.judges.vlm import client
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.prompted import PromptedPolicy, as_prompted, prompted_policies
from distrl.evaluator.report.run import write_report
from distrl.evaluator.report.text import number_lines
from distrl.evaluator.suites import load_suite
from distrl.workers.episode import BLANK

PICTURE = b"\x89PNG and more"
ASKED = (
    ChatMessage(role="system", parts=(TextPart(text="Act."),)),
    ChatMessage(role="user", parts=(TextPart(text="Goal: tap"), ImagePart(digest="d"))),
)
USAGE = {"prompt_tokens": 1000, "completion_tokens": 20}


def replied(*choices: dict[str, Any], **fields: Any) -> Reply:
    return Reply(body=json.dumps({"choices": choices, **fields}))


def said(text: str | None, **fields: Any) -> Reply:
    return replied({"message": {"content": text}}, **fields)


TAP = said('Reason: it says so.\nAction: {"action_type": "click", "x": 500, "y": 500}')
DONE = said('Action: {"action_type": "status", "goal_status": "complete"}', usage=USAGE)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeEndpoint]:
    monkeypatch.setattr(client, "BACKOFF_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")
    with JudgeEndpoint([]) as made:
        yield made


def policy(endpoint: JudgeEndpoint, **options: Any) -> PromptedPolicy:
    asked = PromptedConfig(url=endpoint.url, model="m", **options)
    return prompted_policies(Config(evaluate=EvaluateConfig(prompted=asked)), threading.Event())(0)


def test_what_is_asked_and_answered(endpoint: JudgeEndpoint) -> None:
    endpoint.replies = [said("Action: …")]
    completion = policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling(temperature=0.0, max_new_tokens=9))
    assert (completion.text, completion.token_ids) == ("Action: …", ())
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret-key"
    address = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    picture = {"type": "image_url", "image_url": {"url": address}}
    assert body == {
        "model": "m",
        "temperature": 0.0,
        "max_tokens": 9,
        "messages": [
            {"role": "system", "content": "Act."},
            {"role": "user", "content": [{"type": "text", "text": "Goal: tap"}, picture]},
        ],
    }


def test_what_may_pass_is_tried_again_and_no_answer_is_an_answer(endpoint: JudgeEndpoint) -> None:
    endpoint.replies = [Reply(429), Reply(body="<html>"), replied({"message": {"content": 7}}), said(None)]
    assert policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling()).text == ""
    assert len(endpoint.requests) == 4
    endpoint.replies = [Reply(503, "no room")]
    with pytest.raises(InferenceUnavailable, match=r"in 2 tries: .* answers 503: no room"):
        policy(endpoint, attempts=2).act(ASKED, {"d": PICTURE}, Sampling())


@pytest.mark.parametrize("status", [301, 400, 401])
def test_a_refusal_ends_it_and_shows_no_key(endpoint: JudgeEndpoint, status: int) -> None:
    endpoint.replies = [Reply(status, "wrong key secret-key", {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(ConfigError) as caught:
        policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling())
    assert f"answers {status}: wrong key ***" in str(caught.value)
    assert "secret-key" not in str(caught.value)
    assert len(endpoint.requests) == 1


def prompted(endpoint: JudgeEndpoint, folder: Path, num: int = 1, **options: Any) -> Config:
    CountingEnv.resets.clear()
    config = counting_config(write_suite(folder, [{"taps": 2}] * num)).model_dump()
    config["evaluate"]["prompted"] = {"url": endpoint.url, "model": "m", **options}
    config["evaluate"]["slots"] = 1
    return Config.model_validate(config)


def stored(directory: Path) -> Trajectory:
    store = TrajectoryStore(next(directory.rglob("*.sqlite3")))
    try:
        (episode,) = store.iterate()
        return episode
    finally:
        store.close()


def test_a_prompted_model_is_measured(endpoint: JudgeEndpoint, tmp_path: Path) -> None:
    endpoint.replies = [said("I do not know."), TAP, TAP, DONE]
    evaluation = measure(prompted(endpoint, tmp_path), Measured(agent="prompted"), tmp_path / "out", ["test"])
    assert (evaluation.spec.subject.kind, evaluation.spec.subject.name) == ("prompted", "m")
    assert evaluation.splits["test"].overall.successes == 1
    episode = stored(tmp_path / "out")
    assert [step.action.kind for step in episode.steps] == ["invalid", "tap", "tap", "complete"]
    assert episode.steps[0].action.text == "I do not know."
    assert "secret" not in (tmp_path / "out" / "evaluation.json").read_text()


@pytest.mark.needs("jinja2")
@pytest.mark.parametrize("prices", [{}, {"price_input": 2.0, "price_output": 10.0}])
def test_the_cost_of_a_prompted_model_is_reported(
    endpoint: JudgeEndpoint, tmp_path: Path, prices: dict[str, float]
) -> None:
    """One answer after an error and a reply without one, then a try that faults, and one that ends well."""
    away, nothing = Reply(503), replied(usage=USAGE)
    endpoint.replies = [away, nothing, DONE, away, away, away, DONE]
    config = prompted(endpoint, tmp_path, 2, attempts=3, **prices)
    output = tmp_path / "out"
    evaluation = measure(config, Measured(agent="prompted"), output, ["test"])
    result = evaluation.splits["test"]
    cost = 3 * (1000 * 2.0 + 20 * 10.0) / 1e6 if prices else 0.0
    assert (result.num_retries, result.overall.episodes) == (1, 2)
    assert (result.spent.calls, result.spent.input_tokens, result.spent.output_tokens) == (7, 3000, 60)
    assert result.spent.cost == pytest.approx(cost)
    assert result.overall.mean_tokens_in == 1500.0
    assert result.overall.mean_cost == pytest.approx(cost / 2)
    shown = "7 calls, 3,000 + 60 tokens" + (", cost 0.0066" if prices else "")
    assert f"  cost of the model: {shown}, faulted tries included" in number_lines(evaluation)
    page = write_report(output, "prompted", {"prompted": output})
    assert f"{shown}, faulted tries included" in page.read_text()
    assert ('<th class="n">Cost</th>' in page.read_text()) is bool(prices)
    data = json.loads((output / "report.json").read_text())
    assert data["evaluations"]["prompted"]["splits"]["test"]["spent"]["calls"] == 7


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": ""}, "evaluate.prompted.model is empty"),
        ({"url": "api.example"}, "is not a valid URL"),
        ({"agent": {"kind": "androidworld", "options": {"mode": "incremental"}}}, "needs whole prompts"),
    ],
)
def test_what_cannot_be_prompted_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        as_prompted(Config.model_validate({"evaluate": {"prompted": {"model": "m", **change}}}))


def test_an_action_may_take_all_tries() -> None:
    prompted = {"model": "m", "timeout_s": 100.0, "attempts": 3}
    config = as_prompted(Config.model_validate({"evaluate": {"prompted": prompted}}))
    assert config.worker.act_timeout_s == 3 * (100.0 + client.MAX_PAUSE_S)


NUMBERED = re.compile(r"^UI element (\d+): (.*)$", re.MULTILINE)


def turns_wifi_on(body: dict[str, Any]) -> Reply:
    """The answer of a model that reads the list, and in the earlier steps that it has been there."""
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    labels: dict[str, int] = {}
    for number, fields in NUMBERED.findall(text):
        known = json.loads(fields)
        labels.setdefault(known.get("content_description", known.get("text")), int(number))
    if 'on ViewGroup ("Wi-Fi")' in text.partition("The screen now:")[0]:
        return DONE
    wanted = next(name for name in ("Wi-Fi", "Network & internet", "Settings") if name in labels)
    return said("Action: " + json.dumps({"action_type": "click", "index": labels[wanted]}))


@pytest.mark.parametrize(("observe", "pictures"), [("elements", 0), ("both", 1), ("marks", 1)])
def test_a_prompted_model_solves_a_task_by_numbers(
    endpoint: JudgeEndpoint, tmp_path: Path, observe: str, pictures: int
) -> None:
    endpoint.answer = turns_wifi_on
    is_asked = {"setting": "wifi", "on": True}.items()
    task = next(task for task in load_suite("quickstart", "train") if is_asked <= task.params.items())
    suite = tmp_path / "wifi.jsonl"
    suite.write_text(task.model_copy(update={"split": "test"}).model_dump_json())
    agent = {"options": {"observe": observe}}
    prompted = {"url": endpoint.url, "model": "m", "agent": agent}
    evaluate = {"slots": 1, "prompted": prompted}
    config = load_config("quickstart", [f"tasks.suite={suite}"])  # which draws no screens
    config = config.model_copy(update={"evaluate": EvaluateConfig.model_validate(evaluate)})
    evaluation = measure(config, Measured(agent="prompted"), tmp_path / "out", ["test"])
    assert evaluation.splits["test"].overall.successes == 1
    contents = [str(body["messages"][-1]["content"]) for _, _, body in endpoint.requests]
    assert [text.count("'image_url':") for text in contents] == [pictures] * 4
    episode = stored(tmp_path / "out")
    assert [step.action.kind for step in episode.steps] == ["tap", "tap", "tap", "complete"]
    shown = {digest for step in episode.steps for chat in step.chats for digest in chat.images}
    marked = {step.observation.marked for step in episode.steps} - {""}
    assert shown == {"elements": set(), "marks": marked}.get(
        observe, {step.observation.image for step in episode.steps}
    )
    assert bool(marked) is (observe == "marks")
    assert all(step.observation.width > BLANK[0] for step in episode.steps)
