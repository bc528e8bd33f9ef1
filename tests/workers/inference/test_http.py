"""The HTTP endpoint: asked by urllib and by OpenAI's own client, in front of a real server."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("uvicorn", reason="needs uvicorn: not installed")

from chatml import START
from policy_fakes import chat, png
from sequence_policy import SequencePolicy
from waiting import until

from distrl.configs.schema import Config, InferenceConfig
from distrl.core.errors import ConfigError, NetworkError
from distrl.core.http_address import keyed_address
from distrl.core.sockets import Wire
from distrl.core.types import Sampling, image_digest
from distrl.workers.inference import http_server
from distrl.workers.inference.engine import HFEngine
from distrl.workers.inference.http_server import HttpEndpoint
from distrl.workers.inference.openai_api import MAX_COMMAS
from distrl.workers.inference.serve import build_engine
from distrl.workers.inference.server import InferenceServer

WAIT_S = 30.0
CHAT = "/v1/chat/completions"
PICTURE = png(0)
URL = "data:image/png;base64," + base64.b64encode(PICTURE).decode()
MakeEndpoint = Callable[..., HttpEndpoint]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire() as made:
        yield made


@pytest.fixture(scope="module")
def make_endpoint(wire: Wire, words: list[str], make_config: Callable[..., Config]) -> Iterator[MakeEndpoint]:
    with ExitStack() as stack:

        def make(
            *answers: Sequence[int],
            policy: SequencePolicy | None = None,
            version: int = 17,
            key: str | None = None,
            address: str = "0",
            checkpoint: str | None = None,
        ) -> HttpEndpoint:
            """In front of the embedded policy, or of one that gives these answers."""
            if policy is None:
                engine = build_engine(make_config(), words, "a")
            else:
                policy.answers = iter(answers)
                engine = HFEngine(policy, 0)  # type: ignore[arg-type]
            engine.version = version
            server = InferenceServer(wire, "tcp://127.0.0.1:*", engine, InferenceConfig(), "a")
            stack.callback(server.close)
            server.start()
            endpoint = HttpEndpoint(server, address, "tiny", 6, key, checkpoint)
            stack.callback(endpoint.close)
            return endpoint

        yield make


@pytest.fixture(scope="module")
def endpoint(make_endpoint: MakeEndpoint) -> HttpEndpoint:
    return make_endpoint()


@pytest.fixture(scope="module")
def locked(make_endpoint: MakeEndpoint) -> HttpEndpoint:
    """Needs a key, and serves a checkpoint."""
    return make_endpoint(key="secret", checkpoint="runs/mine/checkpoints/step_40")


def question(**changes: object) -> dict[str, Any]:
    content = [{"type": "image_url", "image_url": {"url": URL}}, {"type": "text", "text": "red shoes"}]
    messages = [{"role": "user", "content": content}]
    return {"model": "tiny", "messages": messages, "temperature": 0.0, **changes}


def ask(endpoint: HttpEndpoint, path: str, body: object = None, **headers: str) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **headers}
    request = urllib.request.Request(endpoint.url.removesuffix("/v1") + path, data, sent)
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def complete(endpoint: HttpEndpoint, **changes: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer to the question, and its one choice."""
    status, answer = ask(endpoint, CHAT, question(**changes))
    assert status == 200
    (choice,) = answer["choices"]
    return answer, choice


def complain(endpoint: HttpEndpoint, body: object, **headers: str) -> tuple[int, str]:
    status, answer = ask(endpoint, CHAT, body, **headers)
    return status, answer["error"]["message"]


def test_a_chat_is_completed_as_workers_would_have_it(endpoint: HttpEndpoint) -> None:
    answer, choice = complete(endpoint, logprobs=True)
    digest = image_digest(PICTURE)
    greedy = Sampling(temperature=0.0, max_new_tokens=6)
    expected = endpoint.server.complete(chat("red shoes", digest), {digest: PICTURE}, greedy, WAIT_S)
    assert choice["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert [one["logprob"] for one in choice["logprobs"]["content"]] == list(expected.logprobs)
    assert choice["logprobs"]["content"][0]["token"].strip() in expected.text
    assert choice["finish_reason"] == "stop", "this action is whole: its last token ends it, and has a text"
    assert answer["usage"] == {
        "prompt_tokens": len(expected.prompt_token_ids),
        "completion_tokens": len(expected.token_ids),
        "total_tokens": len(expected.prompt_token_ids) + len(expected.token_ids),
    }
    assert (answer["weight_version"], answer["system_fingerprint"]) == (17, "weights-17")


def test_an_answer_has_stopped_if_its_last_token_ends_completions(make_endpoint: MakeEndpoint) -> None:
    """The text of the last token does not tell: there are tokens without any that end nothing."""
    policy = SequencePolicy()
    silent = policy.tokenizer.convert_tokens_to_ids(START)
    assert policy.text([silent]) == ""
    word = policy.tokenise("tap")
    answers = [*word, silent, *word], [*word, policy.end], [*word, *word], []
    endpoint = make_endpoint(*answers, policy=policy)
    found = [complete(endpoint, max_completion_tokens=2) for _ in range(4)]
    reasons = [(choice["finish_reason"], answer["usage"]["completion_tokens"]) for answer, choice in found]
    assert reasons == [("length", 2), ("stop", 2), ("length", 2), ("length", 0)]


def test_tokens_have_their_bytes_but_parts_of_characters_have_none(make_endpoint: MakeEndpoint) -> None:
    policy = SequencePolicy()
    endpoint = make_endpoint([*policy.tokenise("tap 设置"), policy.end], policy=policy)
    content = complete(endpoint, logprobs=True, max_tokens=20)[1]["logprobs"]["content"]
    assert {one["token"] for one in content if one["bytes"] is None} == {"\ufffd"}
    assert all(bytes(one["bytes"]).decode() == one["token"] for one in content if one["bytes"] is not None)


def test_models_and_health_show_the_version(locked: HttpEndpoint) -> None:
    key = {"Authorization": "Bearer secret"}
    _, models = ask(locked, "/v1/models", **key)
    (model,) = models["data"]
    assert (model["id"], model["weight_version"]) == ("tiny", 17)
    assert model["checkpoint"] == "runs/mine/checkpoints/step_40"
    assert ask(locked, "/v1/models/tiny", **key) == (200, model)
    assert ask(locked, "/v1/models/other/one", **key)[0] == 404
    assert ask(locked, "/health") == (200, {"status": "ok", "weight_version": 17}), "no key needed"


def test_an_answer_ends_before_its_stop_text(make_endpoint: MakeEndpoint) -> None:
    policy = SequencePolicy()
    endpoint = make_endpoint(*[policy.tokenise("tap here now then")] * 2, policy=policy)
    for stop in (" now", ["then", " now"]):
        answer, choice = complete(endpoint, stop=stop, logprobs=True, max_tokens=20)
        assert (choice["message"]["content"], choice["finish_reason"]) == ("tap here", "stop")
        assert answer["usage"]["completion_tokens"] == len(choice["logprobs"]["content"])
        assert len(choice["logprobs"]["content"]) < len(policy.tokenise("tap here now then"))


def test_the_most_probable_tokens_begin_with_what_greedy_sampling_takes(endpoint: HttpEndpoint) -> None:
    _, choice = complete(endpoint, logprobs=True, top_logprobs=3, max_tokens=2)
    for token in choice["logprobs"]["content"]:
        found = [one["logprob"] for one in token["top_logprobs"]]
        assert token["top_logprobs"][0]["token"] == token["token"]
        assert found == sorted(found, reverse=True)
        assert len(found) == 3


def test_without_weights_it_says_so(make_endpoint: MakeEndpoint) -> None:
    endpoint = make_endpoint(version=-1)
    assert ask(endpoint, "/health")[0] == 503
    assert complain(endpoint, question()) == (503, "no weights have arrived yet")


IMAGE = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
BROKEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
FOREIGN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbÖ8="}}


@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"functions": []}, 400, "`functions` is not supported"),
        ({"tools": [{"type": "function"}]}, 400, "`tools` is not supported"),
        ({"n": 2}, 400, "n: "),
        ({"presence_penalty": 0.5}, 400, "presence_penalty: "),
        ({"response_format": {"type": "json_object"}}, 400, "response_format"),
        ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
        ({"top_logprobs": 5}, 400, "needs `logprobs: true`"),
        ({"temperature": -1}, 400, "temperature"),
        ({"max_tokens": 10**6}, 400, "max_tokens"),
        ({"messages": []}, 400, "messages"),
        ({"model": "gpt"}, 404, "ask for 'tiny'"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, 400, "data: URLs"),
        ({"messages": [{"role": "user", "content": [BROKEN]}]}, 400, "readable image. Send"),
        ({"messages": [{"role": "user", "content": [FOREIGN]}]}, 400, "not valid base64"),
        ({"messages": [{"role": "user", "content": "no picture"}]}, 400, "image"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(
    endpoint: HttpEndpoint, changes: dict[str, object], status: int, reason: str
) -> None:
    found, message = complain(endpoint, question(**changes))
    assert found == status
    assert reason in message


def test_what_is_no_request_is_refused_and_service_goes_on(endpoint: HttpEndpoint) -> None:
    assert complain(endpoint, b"{")[0] == 400
    assert complain(endpoint, b"\xff\xfe")[0] == 400
    assert complain(endpoint, json.dumps(question()).encode(), **{"Content-Type": "text/plain"})[0] == 415
    assert complain(endpoint, question(), **{"Content-Length": str(2**40)})[0] == 413
    status, message = complain(endpoint, question(messages=[0] * (MAX_COMMAS + 1)))
    assert (status, message.partition(";")[0]) == (413, "The body has 32,770 commas")
    assert ask(endpoint, "/v1/completions", {})[0] == 404
    assert ask(endpoint, CHAT)[0] == 404
    assert ask(endpoint, CHAT, question())[0] == 200


def talk(endpoint: HttpEndpoint, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """All that comes back for bytes that are sent piece by piece, until the server closes."""
    port = int(endpoint.url.split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        with contextlib.suppress(OSError):  # closed meanwhile
            for piece in pieces:
                connection.sendall(piece)
                time.sleep(pause_s)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while found := connection.recv(65536):
                answer += found
        return answer


def head(*lines: str, host: str = "127.0.0.1") -> bytes:
    first = ("POST /v1/chat/completions HTTP/1.1", f"Host: {host}", "Content-Type: application/json")
    return "\r\n".join((*first, *lines, "", "")).encode()


@pytest.mark.parametrize(
    "pieces",
    [[b"GET /health HTTP/1.1\r\n", *[b"X: y\r\n"] * 90], [head("Content-Length: 500"), *[b" "] * 400]],
)
def test_a_slow_request_ends_at_its_deadline(
    endpoint: HttpEndpoint, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    """However regularly bytes come: 0.05 s apart they would take longer than the server waits."""
    monkeypatch.setattr(http_server, "HEAD_S", 0.5)
    monkeypatch.setattr(http_server, "BODY_S", 0.5)
    assert talk(endpoint, *pieces, pause_s=0.05) == b""


def test_one_address_does_not_take_all_connections(
    make_endpoint: MakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "MAX_PER_ADDRESS", 2)
    endpoint = make_endpoint()
    port = int(endpoint.url.split(":")[2].split("/")[0])
    with ExitStack() as stack:
        first, *_ = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)]
        assert talk(endpoint) == b"", "closed by the server"
        elsewhere = stack.enter_context(
            socket.create_connection(("127.0.0.1", port), WAIT_S, ("127.0.0.2", 0))
        )
        elsewhere.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert elsewhere.recv(12) == b"HTTP/1.1 200"
        first.close()
        until(lambda: b" 200 " in talk(endpoint, b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"))


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (head("Content-Length: 5", host="attacker.example:8000"), 403),
        (head("Content-Length: 5", "Host: attacker.example"), 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: attacker.example\r\n\r\n", 403),
        (head("Content-Length: 5", host=""), 403),
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
        (head("Content-Length: 5", "Transfer-Encoding: chunked"), "4[01][01]"),
        (head("Transfer-Encoding: chunked"), "4[01][01]"),
        (head("Content-Length: 5", "Transfer-Encoding : chunked") + b"01234", 400),
        (head("Content-Length: 5", "no header", "Transfer-Encoding: chunked") + b"01234", 400),
        (head("Content-Length: 5", "Content-Length: 6"), 400),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", 400),
        (head(), 413),
        (head("Content-Length: 5").replace(b"application/json", b"text/plain"), 415),
        (head("Content-Length: 5").replace(b"chat/completions", b"other"), 404),
    ],
)
def test_a_head_is_refused_without_its_body(
    endpoint: HttpEndpoint, request_head: bytes, status: int | str
) -> None:
    """One answer, and the connection ends: what follows is never taken for another request.

    A chunked body is 411; if what follows arrives with it, it is not valid chunks, and the answer is 400.
    """
    hidden = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = talk(endpoint, request_head, hidden)
    assert re.match(f"HTTP/1.1 {status} ".encode(), answer)
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_wrong_key_is_refused_before_the_body_is_requested(locked: HttpEndpoint) -> None:
    lines = ("Content-Length: 1000", "Expect: 100-continue")
    assert talk(locked, head(*lines)).startswith(b"HTTP/1.1 401 ")
    body = json.dumps(question()).encode()
    right = head(
        f"Content-Length: {len(body)}", lines[1], "Authorization: Bearer secret", "Connection: close"
    )
    assert talk(locked, right, body).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 ")


def test_addresses() -> None:
    assert keyed_address("--http", "8000", None) == ("127.0.0.1", 8000)
    assert keyed_address("--http", "localhost:1", None) == ("localhost", 1)
    assert keyed_address("--http", "0.0.0.0:1", "secret") == ("0.0.0.0", 1)
    for bad in ("", "x", ":1", "127.0.0.1:", "70000", "[::1]:8000", "::1:8000"):
        with pytest.raises(ConfigError, match=r"not a valid address.*IPv4"):
            keyed_address("--http", bad, None)
    with pytest.raises(ConfigError, match="DISTRL_API_KEY"):
        keyed_address("--http", "0.0.0.0:8000", None)


def test_an_address_in_use_is_named(make_endpoint: MakeEndpoint) -> None:
    taken = make_endpoint().url.removesuffix("/v1").removeprefix("http://")
    with pytest.raises(NetworkError, match="cannot be used"):
        make_endpoint(address=taken)


@pytest.mark.needs("openai")
def test_openai_s_own_client_is_content(locked: HttpEndpoint) -> None:
    import openai

    client = openai.OpenAI(base_url=locked.url, api_key="secret", timeout=WAIT_S, max_retries=0)
    assert [model.id for model in client.models.list()] == ["tiny"]
    messages = question()["messages"]
    answer = client.chat.completions.create(
        model="tiny", messages=messages, temperature=0.7, top_p=0.9, max_tokens=4, logprobs=True
    )
    assert answer.usage is not None
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    assert len(answer.choices[0].logprobs.content) == answer.usage.completion_tokens <= 4
    assert answer.system_fingerprint == "weights-17"
    greedy = {"model": "tiny", "messages": messages, "temperature": 0.0}
    stream = client.chat.completions.create(**greedy, stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    no_ops = {"tools": [], "n": 1, "presence_penalty": 0, "frequency_penalty": 0.0, "seed": 3}
    no_ops |= {"response_format": {"type": "text"}, "logit_bias": {}}
    whole = client.chat.completions.create(**greedy, **no_ops)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == whole.choices[0].message.content
    )
    assert (chunks[-1].choices[0].finish_reason, last.usage) == (whole.choices[0].finish_reason, whole.usage)
    with pytest.raises(openai.NotFoundError, match="ask for 'tiny'"):
        client.chat.completions.create(model="other", messages=messages)
