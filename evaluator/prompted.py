"""A prompted model behind an OpenAI-compatible endpoint: the baseline `--agent prompted`.

As in AppAgent and M3A, the model sees the instructions, the goal, its earlier actions and the screenshot, and
answers in words with one action. It is not trained, and returns no tokens.
"""

from __future__ import annotations

import base64
import contextlib
import os
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distrl.configs.agents import PromptedConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, InferenceUnavailable
from distrl.core.http_post import GARBLED, PostFailed
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, ImagePart, Prefix, Sampling, Spent, TextPart
from distrl.evaluator.judges.vlm.client import Adapted, OpenAI, post, priced

NAME = "prompted"
BACKOFF_S = 2.0  # the first pause between two tries, which doubles each time
MAX_PAUSE_S = 60.0
MAX_DOUBLINGS = 30  # of a pause


def as_prompted(config: Config) -> Config:
    """`config` with the prompted model's agent and token limit.

    Raises:
        ConfigError: No model is named, its URL is not valid, or the agent's prompts continue token sequences.
    """
    prompted = config.evaluate.prompted
    if not prompted.model:
        raise ConfigError("evaluate.prompted.model is empty.", "Set it to the model to prompt.")
    if not prompted.url.startswith(("http://", "https://")):
        raise ConfigError(
            f"evaluate.prompted.url {prompted.url!r} is not a valid URL.", "Start it with https://."
        )
    if prompted.agent.options.get("mode") == "incremental":
        raise ConfigError(
            "A prompted model needs whole prompts; mode incremental continues its token sequence.",
            "Set evaluate.prompted.agent.options={mode: history}.",
        )
    learner = config.learner.model_copy(update={"max_new_tokens": prompted.max_new_tokens})
    return config.model_copy(update={"agent": prompted.agent, "learner": learner})


class PromptedPolicy:
    """Completes chats by calling the endpoint. Used by one slot.

    Args:
        config: The model, its endpoint and the number of tries.
        wait: Waits for a number of seconds; True if the evaluation is over.
        environ: The environment with the key, which is never logged or stored.
        endpoint: The request format, shared by all slots because it adapts; by default a new one.
    """

    def __init__(
        self,
        config: PromptedConfig,
        wait: Callable[[float], bool],
        environ: Mapping[str, str] = os.environ,
        endpoint: OpenAI | None = None,
    ) -> None:
        self._config, self._wait = config, wait
        self._key = environ.get(config.key_env, "")
        self._format = endpoint or _endpoint(config)
        self._rng = random.Random()
        self._spent: list[Spent] = []

    def take_spent(self) -> Spent:
        """The spending since the last call of this method, failed tries included."""
        spent, self._spent = Spent.total(self._spent), []
        return spent

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """The model's answer. An empty answer is not a fault.

        Raises:
            InferenceUnavailable: There was no answer in `attempts` tries.
            ConfigError: The endpoint rejects the key, the model or the request.
        """
        failure = PostFailed(0, "it was not called.")
        for attempt in range(self._config.attempts):
            if attempt and self._wait(self._pause_s(attempt, failure)):
                break
            try:
                text = self._ask(lambda: self._body(messages, images, sampling))
                return Completion(text=text, sampling=sampling)
            except PostFailed as error:
                if not error.may_pass:
                    raise ConfigError(
                        f"The prompted model's endpoint rejects the request: {error.detail}",
                        f"Check evaluate.prompted and the key in {self._config.key_env}.",
                    ) from error
                failure = error
        raise InferenceUnavailable(
            f"The prompted model did not answer in {self._config.attempts} tries: {failure.detail}"
        )

    def close(self) -> None:
        """Nothing to close."""

    def _ask(self, make_body: Callable[[], dict[str, Any]]) -> str:
        while True:
            self._spent.append(Spent(calls=1))
            with contextlib.suppress(Adapted):
                reply = post(self._format, make_body(), self._key, self._config.timeout_s)
                break
        prices = self._config.price_input, self._config.price_output
        self._spent[-1] = priced(*self._format.tokens(reply), *prices)
        answer = self._format.answer(reply)
        if answer is None:
            raise PostFailed(GARBLED, "the reply contains no answer.")
        return answer.text

    def _body(
        self, messages: Sequence[ChatMessage], images: Mapping[str, bytes], sampling: Sampling
    ) -> dict[str, Any]:
        return {
            "model": self._config.model,
            "messages": [_message(message, images) for message in messages],
            **self._format.sampling(sampling.temperature, sampling.max_new_tokens),
        }

    def _pause_s(self, attempt: int, failure: PostFailed) -> float:
        backoff_s = BACKOFF_S * 2.0 ** min(attempt - 1, MAX_DOUBLINGS) * self._rng.uniform(0.75, 1.25)
        return min(MAX_PAUSE_S, max(failure.retry_after_s or 0.0, backoff_s))


def prompted_policies(config: Config, stop: threading.Event) -> Callable[[int], PromptedPolicy]:
    """A factory of the slots' policies, which share the endpoint and what it accepts."""
    prompted, endpoint = config.evaluate.prompted, _endpoint(config.evaluate.prompted)
    return lambda slot: PromptedPolicy(prompted, stop.wait, endpoint=endpoint)


def _endpoint(config: PromptedConfig) -> OpenAI:
    return OpenAI(f"{config.url.rstrip('/')}/chat/completions")


def _message(message: ChatMessage, images: Mapping[str, bytes]) -> dict[str, Any]:
    content = [_part(part, images) for part in message.parts]
    if all(part["type"] == "text" for part in content):  # some endpoints accept no list in the system message
        return {"role": message.role, "content": "".join(part["text"] for part in content)}
    return {"role": message.role, "content": content}


def _part(part: TextPart | ImagePart, images: Mapping[str, bytes]) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = images[part.digest]
    kind = "png" if data.startswith(b"\x89PNG") else "webp" if data[8:12] == b"WEBP" else "jpeg"
    address = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": address}}
