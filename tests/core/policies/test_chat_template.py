"""What a chat goes on with: only new tokens, by the templates of Qwen's models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from chatml import END, IMAGE, QWEN, START, THINKING, chatml_tokenizer

from distrl.core.errors import PolicyError
from distrl.core.policies.chat_template import continuation_ids

Message = dict[str, Any]
TEMPLATES = {"qwen": QWEN, "thinking": THINKING}
OPENING = {"qwen": "assistant\n", "thinking": "assistant\n<think>\n"}


def says(role: str, text: str, images: int = 0) -> Message:
    pictures = [{"type": "image"}] * images
    return {"role": role, "content": [{"type": "text", "text": text}, *pictures]}


class Chat:
    """A tokenizer with its template, as a policy uses them."""

    def __init__(self, template: str) -> None:
        self.tokenizer = chatml_tokenizer(template)
        self.end: int = self.tokenizer.convert_tokens_to_ids(END)
        self.other_end: int = self.tokenizer.convert_tokens_to_ids("<|endoftext|>")

    def render(self, messages: Sequence[Message]) -> str:
        text: str = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return text

    def tokenise(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def go_on(self, prefix: Sequence[int], *messages: Message) -> list[int]:
        ends = [self.end, self.other_end]
        return continuation_ids(self.render, self.tokenise, prefix, messages, ends)

    def shown(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids)))


@pytest.fixture(params=TEMPLATES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def chat(kind: str) -> Chat:
    return Chat(TEMPLATES[kind])


def test_a_sequence_that_goes_on_is_the_rendered_chat_when_nothing_was_sampled_oddly(chat: Chat) -> None:
    """Answers that are what the tokenizer itself would make of their text: both ways give the same ids."""
    asked = [says("system", "Be brief."), says("user", "What?", images=1)]
    ids = chat.tokenise(chat.render(asked))
    for number in range(3):
        answer = f"tap {number}"
        ids += [*chat.tokenise(answer), chat.end]
        new = says("user", f"Step {number}", images=number)
        ids += chat.go_on(ids, new)
        asked += [says("assistant", answer), new]
        if chat.tokenizer.chat_template == QWEN:
            assert ids == chat.tokenise(chat.render(asked))
    assert chat.shown(ids).count(IMAGE) == 1 + 0 + 1 + 2


@pytest.mark.parametrize("is_sampled", [True, False])
def test_the_end_of_the_turn_comes_exactly_once(chat: Chat, kind: str, is_sampled: bool) -> None:
    prefix = [*chat.tokenise("tap it"), *([chat.end] if is_sampled else [])]
    new = chat.go_on(prefix, says("user", "And now?", images=2))
    whole = chat.shown([*prefix, *new])
    pictures = "<|vision_start|><|image_pad|><|vision_end|>" * 2
    assert whole == f"tap it{END}\n{START}user\nAnd now?{pictures}{END}\n{START}{OPENING[kind]}"


def test_another_token_that_ended_the_answer_stays_and_the_turn_is_ended(chat: Chat) -> None:
    prefix = [*chat.tokenise("tap"), chat.other_end]
    whole = chat.shown([*prefix, *chat.go_on(prefix, says("user", "?"))])
    assert whole.startswith(f"tap<|endoftext|>{END}\n{START}user\n?{END}\n")


def test_tokens_that_the_tokenizer_would_not_make_stay_as_they_were_sampled(chat: Chat) -> None:
    letters = [chat.tokenizer.convert_tokens_to_ids(letter) for letter in "tap"]
    (word,) = chat.tokenise("tap")
    assert chat.shown(letters) == chat.shown([word]) == "tap"
    assert chat.tokenise(chat.shown(letters)) != letters, "this prompt is retokenised to other ids"
    assert chat.go_on([*letters, chat.end], says("user", "?")) == chat.go_on(
        [word, chat.end], says("user", "?")
    )


def test_thinking_that_a_template_leaves_out_of_earlier_answers_stays_in_the_sequence() -> None:
    chat = Chat(THINKING)
    question, answer, new = (
        says("user", "a"),
        says("assistant", "<think>\nhm</think>\n\ntap"),
        says("user", "b"),
    )
    assert "hm" not in chat.render([question, answer, new])
    prefix = chat.tokenise(chat.render([question]))
    prefix += [*chat.tokenise("hm</think>\n\ntap"), chat.end]
    ids = [*prefix, *chat.go_on(prefix, new)]
    assert ids[: len(prefix)] == prefix
    assert chat.shown(ids[len(prefix) :]) == f"\n{START}user\nb{END}\n{START}assistant\n<think>\n"


def test_several_messages_may_come_between_two_answers_also_with_the_stand_in_s_word(chat: Chat) -> None:
    text = chat.shown(chat.go_on([], says("tool", "answer0 answer1"), says("user", "Next?")))
    assert text.startswith(f"{END}\n{START}tool\nanswer0 answer1{END}\n{START}user\nNext?{END}\n")


@pytest.mark.parametrize("template", ["{{ messages[-1].content[0].text }}", "{{ messages }}{{ messages }}"])
def test_a_template_that_does_not_show_answers_once_is_refused(template: str) -> None:
    with pytest.raises(PolicyError, match=r"agent\.options\.mode to history"):
        Chat(template).go_on([], says("user", "?"))
