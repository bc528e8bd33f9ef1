"""Text that spells control tokens stays text, for every family of policies; other text is not touched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from autoui_models import save_t5
from chatml import END, chatml_tokenizer
from policy_fakes import chat, png
from tiny_qwen import SPECIAL
from tokenizers import AddedToken, Tokenizer, models, normalizers
from transformers import PreTrainedTokenizerFast

from distrl.configs.policy import policy_config
from distrl.core.policies import build_policy
from distrl.core.policies.base import Policy
from distrl.core.policies.chat_template import ControlTokens
from distrl.core.policies.hub import HubPolicy
from distrl.core.types import ChatMessage, ImagePart, TextPart


@pytest.fixture(scope="module")
def policy(model_dir: Path) -> HubPolicy:
    config = policy_config(kind="hub", model=str(model_dir), device="cpu", max_prompt_tokens=400)
    made = build_policy(config, [], 0)
    assert isinstance(made, HubPolicy)
    return made


def controls(policy: HubPolicy, ids: Sequence[int]) -> list[int]:
    """The control tokens among them; all stand at the beginning of these vocabularies."""
    return [token for token in ids if token < len(SPECIAL)]


def says(role: str, *parts: str) -> ChatMessage:
    return ChatMessage.model_validate({"role": role, "parts": [TextPart(text=part) for part in parts]})


def test_no_text_spells_a_control_token(policy: HubPolicy) -> None:
    """Goals, earlier answers, what follows them, demonstrations, and tokens across several texts."""
    images = [policy.image(png(0))]
    picture = ImagePart(digest="0" * 32)

    def ids(word: str, *texts: str) -> list[list[int]]:
        text = f"tap {word}{word} now"
        chats = [says("system", text), says("user", text), says("assistant", text), says("user", text)]
        parts = (picture, *(TextPart(text=one) for one in texts))
        return [
            policy.prompt_ids(chats),
            policy.prompt_ids([ChatMessage(role="user", parts=parts)], images),
            policy.continuation_ids([*policy.completion_ids("tap")], [says("tool", text)]),
            policy.completion_ids(text),
        ]

    plain = [controls(policy, one) for one in ids("it", "a", "b", "c")]
    assert plain[1].count(policy.image_token) == policy.image_tokens(images[0]) > 0
    assert plain[-1] == [policy.end_ids[0]]
    for token in SPECIAL:
        found = ids(token, f"a {token[:1]}", token[1:3], f"{token[3:]} b")
        assert [controls(policy, one) for one in found] == plain
        broken = f"{token[0]} {token[1:]}"
        assert f"tap {broken}{broken} now" in policy.tokenizer.decode(found[0])


PROMPTS = [
    "Goal: turn on Wi-Fi & set 7:20, then type 'a < b'",
    'For each call return <tool_call>{"name": "mobile_use"}</tool_call>, after <thinking></thinking>.',
    "a <| b |> <im_end> < |im_end|> image_pad </ s> <s",
]


@pytest.mark.parametrize("text", PROMPTS)
def test_other_prompts_have_the_very_tokens_that_the_template_gives(policy: HubPolicy, text: str) -> None:
    tokenizer = policy.tokenizer
    content = [{"type": "image"}, {"type": "text", "text": text}]
    asked = [{"role": "user", "content": content}]
    rendered = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    expected = tokenizer(rendered, add_special_tokens=False)["input_ids"]
    image = policy.image_token
    images = [policy.image(png(0))]
    found = policy.prompt_ids(chat(text), images)
    assert [token for token in found if token != image] == [token for token in expected if token != image]
    spoken = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert policy.completion_ids(text) == [*spoken, policy.end_ids[0]]


def test_added_tokens_that_are_not_special_stay_single_tokens() -> None:
    tokenizer = chatml_tokenizer()
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("<end>", special=False)])
    call, end = tokenizer.convert_tokens_to_ids(["<tool_call>", "<end>"])
    (text,) = ControlTokens(tokenizer, {end}).apart([f"<tool_call>tap<end>{END}"])
    assert text == "<tool_call>tap< end>< |im_end|>"
    assert tokenizer(text)["input_ids"][0] == call


def test_tokens_that_overlap_are_all_broken() -> None:
    tokenizer = chatml_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<a><b>", "<b><c>"]})
    (text,) = ControlTokens(tokenizer).apart(["<a><b><c> <|im_start|im_end|>"])
    assert text == "< a>< b><c> <|im_start|im_end|>"
    assert not set(tokenizer(text)["input_ids"]) & set(tokenizer.all_special_ids)


def test_what_only_normalisation_makes_a_control_token_is_none_either() -> None:
    """T5 keeps its end token among its ordinary pieces, and normalises before it looks for these."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((letter, -3.0) for letter in "abg </s>o")]
    backend = Tokenizer(models.Unigram(pieces, unk_id=2))
    backend.normalizer = normalizers.NFKC()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    wide = "go \uff1c/s\uff1e"
    assert 1 in tokenizer(wide)["input_ids"]
    (text,) = ControlTokens(tokenizer).apart([wide])
    assert text == "go < /s>"
    assert 1 not in tokenizer(text)["input_ids"]
    untouched = "\uff47\uff4f < b"
    assert ControlTokens(tokenizer).apart([untouched, wide[:5]]) == [untouched, wide[:5]]


@pytest.fixture(scope="module")
def autoui(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    directory = tmp_path_factory.mktemp("t5")
    save_t5(directory)
    config = policy_config(kind="autoui", model=str(directory), device="cpu", image_size=(40, 56))
    return build_policy(config, [], 0)


@pytest.mark.parametrize("token", ["</s>", "<extra_id_0>", "<pad>", "<unk>"])
def test_autoui_reads_and_writes_control_tokens_as_text(autoui: Policy, token: str) -> None:
    (end,) = autoui.end_ids
    for text in (f"Goal: find {token} now", f"{token}{token}now"):
        prompt, answer = autoui.prompt_ids(chat(text)), autoui.completion_ids(text)
        for ids in (prompt, answer):
            assert [one for one in ids if one < 4] == [end]
            assert ids[-1] == end
            assert autoui.text(ids) == text.replace(token, f"{token[0]} {token[1:]}")


def test_autoui_keeps_the_end_that_digirl_s_prompts_have(autoui: Policy) -> None:
    (end,) = autoui.end_ids
    plain = autoui.prompt_ids(chat("Goal: red"))
    assert autoui.prompt_ids(chat("Goal: red</s>")) == [*plain, end]
    assert [one for one in autoui.prompt_ids(chat("Goal: red</s></s>")) if one == end] == [end, end]
