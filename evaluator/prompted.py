"""A prompted model behind an OpenAI-compatible endpoint: the baseline `--agent prompted`.

As in AppAgent and M3A, the model sees the instructions, the goal, its earlier actions and the screenshot, and
answers in words with one action. It is not trained, and returns no tokens.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from distrl.configs.agents import PromptedConfig
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError, InferenceUnavailable
from distrl.core.http_post import GARBLED, PostFailed
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling, Spent, TextPart
from distrl.evaluator.judges.vlm.client import (
    MAX_PAUSE_S,
    Endpoint,
    call,
    image_part,
    pause_s,
    priced,
    text_part,
)

NAME = "prompted"
BACKOFF_S = 2.0  # the first pause between two tries, which doubles each time


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
        endpoint: Endpoint | None = None,
    ) -> None:
        self._config, self._wait = config, wait
        self._key = environ.get(config.key_env, "")
        self._endpoint = endpoint or _endpoint(config)
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
        config, endpoint = self._config, self._endpoint

        def body() -> dict[str, Any]:
            chat = [_message(message, images) for message in messages]
            settings = endpoint.sampling(sampling.temperature, sampling.max_new_tokens)
            return {"model": config.model, "messages": chat, **settings}

        failure = PostFailed(0, "it was not called.")
        for attempt in range(config.attempts):
            if attempt and self._wait(min(MAX_PAUSE_S, pause_s(attempt, BACKOFF_S, failure.retry_after_s))):
                break
            try:
                answer = call(
                    endpoint, body, self._key, config.timeout_s, lambda: self._spent.append(Spent(calls=1))
                )
                tokens = answer.input_tokens, answer.output_tokens
                self._spent[-1] = priced(*tokens, config.price_input, config.price_output)
                if answer.text is None:
                    raise PostFailed(GARBLED, "the reply contains no answer.")
                return Completion(text=answer.text, sampling=sampling)
            except PostFailed as error:
                if not error.may_pass:
                    raise ConfigError(
                        f"The prompted model's endpoint rejects the request: {error.detail}",
                        f"Check evaluate.prompted and the key in {config.key_env}.",
                    ) from error
                failure = error
        raise InferenceUnavailable(
            f"The prompted model did not answer in {config.attempts} tries: {failure.detail}"
        )

    def close(self) -> None:
        """Nothing to close."""


def prompted_policies(config: Config, stop: threading.Event) -> Callable[[int], PromptedPolicy]:
    """A factory of the slots' policies, which share the endpoint and what it accepts."""
    prompted, endpoint = config.evaluate.prompted, _endpoint(config.evaluate.prompted)
    return lambda slot: PromptedPolicy(prompted, stop.wait, endpoint=endpoint)


def _endpoint(config: PromptedConfig) -> Endpoint:
    return Endpoint(f"{config.url.rstrip('/')}/chat/completions")


def _message(message: ChatMessage, images: Mapping[str, bytes]) -> dict[str, Any]:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    if len(texts) == len(message.parts):  # some endpoints accept no list in the system message
        return {"role": message.role, "content": "".join(texts)}
    content = [
        text_part(part.text) if isinstance(part, TextPart) else image_part(images[part.digest])
        for part in message.parts
    ]
    return {"role": message.role, "content": content}
