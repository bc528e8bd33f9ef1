"""The prompted baseline against an endpoint on the loopback interface that also fails in the usual ways."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from counting_phone import CountingEnv, counting_config, write_suite

from distrl.configs.agents import PromptedConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, InferenceUnavailable
from distrl.core.store import TrajectoryStore
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart
from distrl.evaluator.measure import Measured, measure
from distrl.evaluator.prompted import PromptedPolicy, as_prompted
from distrl.evaluator.report.run import write_report
from distrl.evaluator.report.text import number_lines

Answer = tuple[int, dict[str, str], bytes]
PICTURE = b"\x89PNG and more"
ASKED = (
    ChatMessage(role="system", parts=(TextPart(text="Act."),)),
    ChatMessage(role="user", parts=(TextPart(text="Goal: tap"), ImagePart(digest="d"))),
)


def said(text: str | None) -> Answer:
    return 200, {}, json.dumps({"choices": [{"message": {"content": text}}]}).encode()


def replied(choice: dict[str, Any]) -> Answer:
    return 200, {}, json.dumps({"choices": [choice]}).encode()


class Endpoint:
    """Gives its answers in turn, the last one again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append((self.path, dict(self.headers), json.loads(data)))
                answers = endpoint.answers
                status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    yield made
    made.close()


def policy(endpoint: Endpoint, waits: list[float] | None = None, **options: Any) -> PromptedPolicy:
    def wait(seconds: float) -> bool:
        (waits if waits is not None else []).append(seconds)
        return False

    config = PromptedConfig(url=endpoint.url, model="m", **options)
    return PromptedPolicy(config, wait, {"OPENAI_API_KEY": "secret-key"})


def test_what_is_asked_and_answered(endpoint: Endpoint) -> None:
    endpoint.answers = [said("Action: …")]
    completion = policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling(temperature=0.0, max_new_tokens=9))
    assert (completion.text, completion.token_ids) == ("Action: …", ())
    path, headers, body = endpoint.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == "Bearer secret-key"
    address = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert body == {
        "model": "m",
        "temperature": 0.0,
        "max_tokens": 9,
        "messages": [
            {"role": "system", "content": "Act."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Goal: tap"},
                    {"type": "image_url", "image_url": {"url": address}},
                ],
            },
        ],
    }


def test_what_may_pass_is_tried_again(endpoint: Endpoint) -> None:
    endpoint.answers = [
        (429, {"Retry-After": "7"}, b"busy"),
        (500, {}, b""),
        (200, {}, b"<html>"),
        (200, {}, b'{"choices": []}'),
        said("at last"),
    ]
    waits: list[float] = []
    asked = policy(endpoint, waits)
    assert asked.act(ASKED, {"d": PICTURE}, Sampling()).text == "at last"
    assert waits[0] == 7.0
    assert [round(pause / 2**place) for place, pause in enumerate(waits) if place] == [2, 2, 2]
    endpoint.answers = [(503, {}, b"no room")]
    with pytest.raises(InferenceUnavailable, match=r"in 2 tries: .* answers 503: no room"):
        policy(endpoint, attempts=2).act(ASKED, {"d": PICTURE}, Sampling())


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": None, "reasoning_content": "Hmm …"}, "finish_reason": "length"},
        {"message": {"content": None, "refusal": "I cannot help."}, "finish_reason": "stop"},
        {"message": {"content": ""}, "finish_reason": "content_filter"},
        {"message": {"content": []}, "finish_reason": "stop"},
        {"message": {"role": "assistant", "reasoning": "Hmm …"}, "finish_reason": "length"},
    ],
)
def test_a_model_that_answers_nothing_has_answered(endpoint: Endpoint, choice: dict[str, Any]) -> None:
    endpoint.answers = [replied(choice)]
    assert policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling()).text == ""
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("choice", [{}, {"message": None}, {"message": "tap"}, {"message": {"content": 7}}])
def test_a_reply_without_a_message_is_no_answer(endpoint: Endpoint, choice: dict[str, Any]) -> None:
    endpoint.answers = [replied(choice)]
    with pytest.raises(InferenceUnavailable, match="the reply contains no answer"):
        policy(endpoint, attempts=2).act(ASKED, {"d": PICTURE}, Sampling())
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize("status", [301, 400, 401, 404])
def test_a_refusal_ends_it_and_shows_no_key(endpoint: Endpoint, status: int) -> None:
    endpoint.answers = [(status, {"Location": "http://127.0.0.1:1/"}, b"wrong key secret-key")]
    with pytest.raises(ConfigError) as caught:
        policy(endpoint).act(ASKED, {"d": PICTURE}, Sampling())
    assert f"answers {status}: wrong key ***" in str(caught.value)
    assert "secret-key" not in str(caught.value)
    assert len(endpoint.requests) == 1


def prompted(endpoint: Endpoint, folder: Path, tasks: list[dict[str, object]], **options: Any) -> Config:
    CountingEnv.resets.clear()
    config = counting_config(write_suite(folder, tasks)).model_dump()
    config["evaluate"]["prompted"] = {"url": endpoint.url, "model": "m", **options}
    return Config.model_validate(config)


def test_a_prompted_model_is_measured(endpoint: Endpoint, tmp_path: Path) -> None:
    tap = said('Reason: it says so.\nAction: {"action_type": "click", "x": 500, "y": 500}')
    done = said('Action: {"action_type": "status", "goal_status": "complete"}')
    endpoint.answers = [said("I do not know."), tap, tap, done]
    config = prompted(endpoint, tmp_path, [{"taps": 2}])
    evaluation = measure(config, Measured(agent="prompted"), tmp_path / "out", ["test"])
    assert (evaluation.spec.subject.kind, evaluation.spec.subject.name) == ("prompted", "m")
    assert evaluation.splits["test"].overall.successes == 1
    store = TrajectoryStore(tmp_path / "out" / "store.sqlite3")
    (episode,) = store.iterate()
    store.close()
    assert [step.action.kind for step in episode.steps] == ["invalid", "tap", "tap", "complete"]
    assert episode.steps[0].action.text == "I do not know."
    assert "secret" not in (tmp_path / "out" / "evaluation.json").read_text()


def test_a_model_that_never_answers_has_failed_and_is_not_left_out(
    endpoint: Endpoint, tmp_path: Path
) -> None:
    endpoint.answers = [said(None)]
    evaluation = measure(
        prompted(endpoint, tmp_path, [{"taps": 2}]),
        Measured(agent="prompted"),
        tmp_path / "out",
        ["test"],
    )
    result = evaluation.splits["test"]
    assert (result.overall.episodes, result.overall.successes, result.faulted) == (1, 0, ())
    store = TrajectoryStore(tmp_path / "out" / "store.sqlite3")
    (episode,) = store.iterate()
    store.close()
    assert {step.action.kind for step in episode.steps} == {"invalid"}
    assert len(endpoint.requests) == len(episode.steps)


@pytest.mark.needs("jinja2")
@pytest.mark.parametrize("prices", [{}, {"price_input": 2.0, "price_output": 10.0}])
def test_what_a_prompted_model_took_is_told(
    endpoint: Endpoint, tmp_path: Path, prices: dict[str, float]
) -> None:
    """One answer after an error and a reply without one, then a try that faults, and one that ends well."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 20}
    action = 'Action: {"action_type": "status", "goal_status": "complete"}'
    done = json.dumps({"choices": [{"message": {"content": action}}], "usage": usage}).encode()
    nothing = json.dumps({"choices": [], "usage": usage}).encode()
    away = (503, {}, b"")
    endpoint.answers = [away, (200, {}, nothing), (200, {}, done), away, away, away, (200, {}, done)]
    config = prompted(endpoint, tmp_path, [{"taps": 0}, {"taps": 0}], attempts=3, **prices)
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"slots": 1})})
    output = tmp_path / "out"
    evaluation = measure(config, Measured(agent="prompted"), output, ["test"])
    result = evaluation.splits["test"]
    cost = 3 * (1000 * 2.0 + 20 * 10.0) / 1e6 if prices else 0.0
    assert (result.num_retries, result.overall.episodes) == (1, 2)
    assert (result.spent.calls, result.spent.input_tokens, result.spent.output_tokens) == (7, 3000, 60)
    assert result.spent.cost == pytest.approx(cost)
    assert result.overall.mean_tokens_in == 1500.0
    assert result.overall.mean_cost == pytest.approx(cost / 2)
    told = "7 calls, 3,000 + 60 tokens" + (", cost 0.0066" if prices else "")
    assert f"  cost of the model: {told}, faulted tries included" in number_lines(evaluation)
    page = write_report(output, "prompted", {"prompted": output})
    assert f"{told}, faulted tries included" in page.read_text()
    assert ('<th class="n">Cost</th>' in page.read_text()) is bool(prices)
    data = json.loads((output / "report.json").read_text())
    assert data["evaluations"]["prompted"]["splits"]["test"]["spent"]["calls"] == 7
    assert data["facts"]["model_cost"] == pytest.approx(cost)


def test_a_refused_key_ends_the_evaluation(endpoint: Endpoint, tmp_path: Path) -> None:
    endpoint.answers = [(401, {}, b"no such key")]
    config = prompted(endpoint, tmp_path, [{"taps": 2}])
    with pytest.raises(ConfigError, match="no such key"):
        measure(config, Measured(agent="prompted"), tmp_path / "out", ["test"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model": ""}, "evaluate.prompted.model is empty"),
        ({"url": "api.example"}, "is not a valid URL"),
        ({"agent": {"kind": "androidworld", "options": {"mode": "incremental"}}}, "needs whole prompts"),
    ],
)
def test_what_cannot_be_prompted_is_told(change: dict[str, Any], told: str) -> None:
    section = {"model": "m", **change}
    with pytest.raises(ConfigError, match=told):
        as_prompted(Config.model_validate({"evaluate": {"prompted": section}}))
