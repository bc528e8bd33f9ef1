"""Steps that an agent took, and what its prompts show."""

from __future__ import annotations

from distrl.core.actions import Action
from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    ImagePart,
    Observation,
    TextPart,
    TimeStep,
)
from distrl.workers.agents.base import Agent

SCREEN = Observation(image="f00d", width=1080, height=2400)


def screen(image: str) -> Observation:
    return SCREEN.model_copy(update={"image": image})


def step(agent: Agent, answer: str | Action, image: str = "a") -> TimeStep:
    """A step that `agent` answered so."""
    action = answer if isinstance(answer, Action) else agent.parse(answer, SCREEN)
    text = answer if isinstance(answer, str) else ""
    message = ChatMessage(role="user", parts=(TextPart(text="?"),))
    return TimeStep(
        observation=screen(image),
        chats=(Chat(messages=(message,), completion=Completion(text=text)),),
        action=ActionRecord(**action.model_dump(mode="json")),
    )


def asked(message: ChatMessage) -> tuple[str, list[str]]:
    """The text of a message, and its images."""
    (text,) = [part.text for part in message.parts if isinstance(part, TextPart)]
    return text, [part.digest for part in message.parts if isinstance(part, ImagePart)]
