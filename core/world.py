"""The chats with a learned model of the world: what an agent would read next, after an answer.

A model is asked with the agent's own prompt, a line `Answer: …` after it, and answers with

    the text of the agent's next prompt
    Success                              the episode ends, and its task is solved
    Unsure, then the next prompt         the parts of the model disagree: an imagined episode ends there

So a model of the world is a policy in one more kind of chat: it has the same servers, versions and training
by cloning. Prompts must be single and without pictures.
"""

from __future__ import annotations

from collections.abc import Sequence

from distrl.core.types import ChatMessage, TextPart, Trajectory

SUCCESS, UNSURE, ANSWER = "Success", "Unsure\n", "\nAnswer: "


def question(prompt: Sequence[ChatMessage], answer: str) -> tuple[ChatMessage, ...]:
    """The chat that asks what follows `answer`."""
    return said(f"{text_of(prompt)}{ANSWER}{answer}")


def said(text: str) -> tuple[ChatMessage, ...]:
    """A prompt of this text."""
    return (ChatMessage(role="user", parts=(TextPart(text=text),)),)


def text_of(prompt: Sequence[ChatMessage]) -> str:
    return "\n".join(part.text for one in prompt for part in one.parts if isinstance(part, TextPart))


def lessons(trajectory: Trajectory) -> list[tuple[tuple[ChatMessage, ...], str]]:
    """The questions that an episode answers, with the answers: one a step, but not for a last failure.

    Nor for a step of a demonstration whose executed action is not the expert's answer.
    """
    found = []
    chats = [step.chats[-1] for step in trajectory.steps]
    for chat, after in zip(chats, [*chats[1:], None], strict=True):
        if chat.executed and (after is not None or trajectory.success == 1.0):
            answer = SUCCESS if after is None else text_of(after.messages)
            found.append((question(chat.messages, chat.completion.text), answer))
    return found
