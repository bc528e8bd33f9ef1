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
from distrl.core.http_post import PostFailed
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling, Spent, TextPart
from distrl.evaluator.judges.vlm.client import MAX_PAUSE_S, Endpoint, image_part, text_part

NAME = "prompted"


def as_prompted(config: Config) -> Config:
    """`config` with the prompted model's agent, token limit, and longest time for an action.

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
    act_timeout_s = prompted.attempts * (prompted.timeout_s + MAX_PAUSE_S)
    worker = config.worker.model_copy(update={"act_timeout_s": act_timeout_s})
    return config.model_copy(update={"agent": prompted.agent, "learner": learner, "worker": worker})


class PromptedPolicy:
    """Completes chats by calling the endpoint. Used by one slot.

    Args:
        endpoint: Shared by all slots, because it adapts to what the model accepts.
    """

    def __init__(self, config: PromptedConfig, endpoint: Endpoint) -> None:
        self._config, self._endpoint = config, endpoint
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
        chat = [_message(message, images) for message in messages]
        settings = sampling.temperature, sampling.max_new_tokens
        try:
            text = self._endpoint.ask(chat, *settings, self._spent, lambda answer: answer.text)
        except PostFailed as error:
            if error.may_pass:
                raise InferenceUnavailable(
                    f"The prompted model did not answer in {self._config.attempts} tries: {error.detail}"
                ) from error
            raise ConfigError(
                f"The prompted model's endpoint rejects the request: {error.detail}",
                f"Check evaluate.prompted and the key in {self._config.key_env}.",
            ) from error
        return Completion(text=text, sampling=sampling)

    def close(self) -> None:
        """Nothing to close."""


def prompted_policies(config: Config, stop: threading.Event) -> Callable[[int], PromptedPolicy]:
    """A factory of the slots' policies; the key is in the environment, and never logged or stored."""
    asked = config.evaluate.prompted
    key, prices = os.environ.get(asked.key_env, "").strip(), (asked.price_input, asked.price_output)
    endpoint = Endpoint(asked.url, asked.model, key, asked.timeout_s, asked.attempts, prices)
    endpoint.wait = stop.wait
    return lambda slot: PromptedPolicy(asked, endpoint)


def _message(message: ChatMessage, images: Mapping[str, bytes]) -> dict[str, Any]:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    if len(texts) == len(message.parts):  # some endpoints accept no list in the system message
        return {"role": message.role, "content": "".join(texts)}
    content = [
        text_part(part.text) if isinstance(part, TextPart) else image_part(images[part.digest])
        for part in message.parts
    ]
    return {"role": message.role, "content": content}
