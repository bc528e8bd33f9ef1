"""The policy client of a slot that always knows the right answer in a counting environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from counting_env import COMPLETE, TAP

from distrl.core.types import ChatMessage, Completion, Prefix, Sampling
from distrl.workers.agents.autoui import AutoUIAgent

ANSWERS = {
    f"step {n}": AutoUIAgent().format(action) for n, action in enumerate([TAP, TAP, TAP, COMPLETE, COMPLETE])
}


class CountingPolicy:
    """Answers rightly, by the step that the prompt names."""

    def __init__(self, slot: int) -> None:
        pass

    def act(
        self, messages: Sequence[ChatMessage], images: Mapping[str, bytes], sampling: Sampling, prefix: Prefix
    ) -> Completion:
        text = messages[0].parts[1].model_dump()["text"]
        return Completion(text=ANSWERS[" ".join(text.split()[:2])])

    def close(self) -> None:
        pass
