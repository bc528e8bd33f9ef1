"""The bytes of tokens: exact in vocabularies of bytes, also of parts of characters; unknown in others."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")
pytest.importorskip("transformers", reason="needs transformers: not installed")

from chatml import END, chatml_tokenizer
from hub_models import save_qwen
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from distrl.configs.schema import PolicyConfig
from distrl.core.policies import build_policy
from distrl.core.policies.hub import HubPolicy
from distrl.core.policies.token_bytes import vocabulary_bytes

TEXT = "tap 设置 é 😀\n\x00\u00ad\u00a0"


def test_every_byte_is_known_and_texts_are_the_bytes_of_their_tokens() -> None:
    tokenizer = chatml_tokenizer()
    signs = [tokenizer.convert_tokens_to_ids(sign) for sign in pre_tokenizers.ByteLevel.alphabet()]
    assert {vocabulary_bytes(tokenizer, token) for token in signs} == {bytes([n]) for n in range(256)}
    found = [vocabulary_bytes(tokenizer, token) for token in tokenizer(TEXT)["input_ids"]]
    assert b"".join(one or b"?" for one in found) == TEXT.encode()


def test_a_hub_policy_tells_the_bytes_of_parts_of_characters_where_it_can(tmp_path: Path) -> None:
    save_qwen(tmp_path)
    policy = build_policy(PolicyConfig(kind="hub", model=str(tmp_path), device="cpu"), [], 0)
    assert isinstance(policy, HubPolicy)
    (letter,) = policy.completion_ids("t")[:-1]
    assert policy.token_bytes(letter) == b"t"
    tokenizer = chatml_tokenizer()
    policy._loaded = replace(policy._loaded, tokenizer=tokenizer)
    ids = [*tokenizer("设")["input_ids"], tokenizer.convert_tokens_to_ids(END)]
    assert [policy.token_bytes(token) for token in ids] == [b"\xe8", b"\xae", b"\xbe", b""]
    fallback = Tokenizer(models.BPE({"<0xE8>": 0, "<0xAE>": 1, "<0xBE>": 2}, [], byte_fallback=True))
    fallback.decoder = decoders.ByteFallback()
    policy._loaded = replace(policy._loaded, tokenizer=PreTrainedTokenizerFast(tokenizer_object=fallback))
    assert policy.text([0]) == "\ufffd"
    assert policy.token_bytes(0) is None
