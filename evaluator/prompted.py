"""A model that is only prompted, behind an OpenAI-compatible endpoint: the baseline `--agent prompted`.

In the manner of AppAgent and M3A: the model sees the instructions, the goal, what it has done so far and the
screenshot, and answers in words with one action. It is not trained, and no tokens come back.
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
MAX_PAUSE_S = 60.0
MAX_DOUBLINGS = 30  # of a pause


def as_prompted(config: Config) -> Config:
    """`config` with the agent that words the prompts, and as many tokens as its answers may have.

    Raises:
        ConfigError: No model is named, its address is none, or the agent's prompts go on from tokens.
    """
    prompted = config.evaluate.prompted
    if not prompted.model:
        raise ConfigError("evaluate.prompted.model is empty.", "Name the model that is prompted.")
    if not prompted.url.startswith(("http://", "https://")):
        raise ConfigError(f"evaluate.prompted.url {prompted.url!r} is no address.", "Begin it with https://.")
    if prompted.agent.options.get("mode") == "incremental":
        raise ConfigError(
            "A prompted model is sent each prompt whole; mode incremental goes on from its tokens.",
            "Set evaluate.prompted.agent.options={mode: history}.",
        )
    learner = config.learner.model_copy(update={"max_new_tokens": prompted.max_new_tokens})
    return config.model_copy(update={"agent": prompted.agent, "learner": learner})


class PromptedPolicy:
    """Completes chats by asking the endpoint. Used by one slot.

    Args:
        config: Where it is, and how often it is tried.
        wait: Waits for so many seconds; True if the evaluation is over.
        environ: Where the key is; it is written nowhere.
        endpoint: How it is asked, which all slots learn together; by default one of its own.
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
        """What was spent since this was last asked, on failed tries too."""
        spent, self._spent = Spent.total(self._spent), []
        return spent

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """What the model answers; nothing, if it answers nothing: that is its own doing, and no fault.

        Raises:
            InferenceUnavailable: It could not be had in `attempts` tries.
            ConfigError: The endpoint refuses the key, the model or the request.
        """
        failure = PostFailed(0, "it was not asked.")
        for attempt in range(self._config.attempts):
            if attempt and self._wait(self._pause_s(attempt, failure)):
                break
            try:
                text = self._ask(lambda: self._body(messages, images, sampling))
                return Completion(text=text, sampling=sampling)
            except PostFailed as error:
                if not error.may_pass:
                    raise ConfigError(
                        f"The prompted model refuses: {error.detail}",
                        f"Check evaluate.prompted and the key in {self._config.key_env}.",
                    ) from error
                failure = error
        raise InferenceUnavailable(
            f"The prompted model did not answer in {self._config.attempts} tries: {failure.detail}"
        )

    def close(self) -> None:
        """Nothing is open between two requests."""

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
            raise PostFailed(GARBLED, "the reply holds no answer.")
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
        backoff_s = (
            self._config.backoff_s * 2.0 ** min(attempt - 1, MAX_DOUBLINGS) * self._rng.uniform(0.75, 1.25)
        )
        return min(MAX_PAUSE_S, max(failure.retry_after_s or 0.0, backoff_s))


def prompted_policies(config: Config, stop: threading.Event) -> Callable[[int], PromptedPolicy]:
    """What makes the policy of a slot. What the endpoint refuses is found out, and told, once for all."""
    prompted, endpoint = config.evaluate.prompted, _endpoint(config.evaluate.prompted)
    return lambda slot: PromptedPolicy(prompted, stop.wait, endpoint=endpoint)


def _endpoint(config: PromptedConfig) -> OpenAI:
    return OpenAI(f"{config.url.rstrip('/')}/chat/completions")


def _message(message: ChatMessage, images: Mapping[str, bytes]) -> dict[str, Any]:
    content = [_part(part, images) for part in message.parts]
    if all(part["type"] == "text" for part in content):  # not every endpoint takes a list from the system
        return {"role": message.role, "content": "".join(part["text"] for part in content)}
    return {"role": message.role, "content": content}


def _part(part: TextPart | ImagePart, images: Mapping[str, bytes]) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = images[part.digest]
    kind = "png" if data.startswith(b"\x89PNG") else "webp" if data[8:12] == b"WEBP" else "jpeg"
    address = f"data:image/{kind};base64,{base64.b64encode(data).decode('ascii')}"
    return {"type": "image_url", "image_url": {"url": address}}
