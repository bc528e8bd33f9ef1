"""A byte-level BPE tokenizer with Qwen's special tokens and chat templates; a few merges, no download."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

END, START, IMAGE = "<|im_end|>", "<|im_start|>", "<|image_pad|>"
SPECIAL = ("<|endoftext|>", START, END, "<|vision_start|>", "<|vision_end|>", IMAGE)
MERGES = (("t", "a"), ("ta", "p"), ("a", "b"))

QWEN = (
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in content %}{{ content['text'] }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Qwen2.5-VL's, without videos and numbered pictures."""

_PARTS = (
    "{% macro show(content) %}{% for part in content %}{% if part.type == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endmacro %}"
)
THINKING = (
    _PARTS + "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}"
    "{% set said = show(m.content) %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' and loop.index0 < ns.last %}"
    "{{ said.split('</think>')[-1].lstrip('\n') }}{% else %}{{ said }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
"""As the thinking models' templates: the thinking of earlier answers is left out."""


def chatml_tokenizer(template: str = QWEN) -> PreTrainedTokenizerFast:
    """The tokenizer; "tap" and "ab" are single tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    symbols = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES)]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(MERGES)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token="<|endoftext|>",
        additional_special_tokens=[START, *SPECIAL[3:]],
        chat_template=template,
    )
