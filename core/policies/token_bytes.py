"""The bytes of tokens of byte-level vocabularies (GPT-2's, Qwen's), whose texts may be parts of characters.

Such a vocabulary spells each byte as one printable character: those of Latin-1 that are printable as
themselves, the others in order from U+0100 on (Radford et al. 2019, `bytes_to_unicode` of GPT-2's encoder).
"""

from __future__ import annotations

from typing import Any

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(0x100) if byte not in _PRINTABLE]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + n): byte for n, byte in enumerate(_OTHERS)}


def vocabulary_bytes(tokenizer: Any, token_id: int) -> bytes | None:
    """The bytes of a token; None if the tokenizer's vocabulary is not spelt in bytes.

    Args:
        tokenizer: One of transformers.
        token_id: No special token.
    """
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is None or decoder.decode([chr(0x100 + _OTHERS.index(0x20))]) != " ":
        return None
    spelt = tokenizer.convert_ids_to_tokens(token_id)
    return bytes(_BYTES[sign] for sign in spelt) if set(spelt) <= _BYTES.keys() else None
