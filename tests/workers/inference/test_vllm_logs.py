"""What vLLM's process says of weights that were not loaded."""

from __future__ import annotations

import logging

from distrl.workers.inference.vllm_logs import LAYER, LOGGERS, NAMES, Expected

VISION, LANGUAGE = "visual.blocks.0.attn.qkv.bias", "language_model.model.layers.0.mlp.down_proj.weight"


def is_said(is_vision_frozen: bool, text: str, *arguments: object) -> bool:
    record = logging.LogRecord(LOGGERS[0], logging.WARNING, "", 0, text, arguments, None)
    return bool(Expected(is_vision_frozen).filter(record))


def test_only_what_should_have_come_is_missed() -> None:
    assert not is_said(True, NAMES, {VISION})
    assert is_said(False, NAMES, {VISION}), "it is trained"
    assert is_said(True, NAMES, {VISION, LANGUAGE})
    assert not is_said(True, LAYER, "RMSNorm")
    assert is_said(True, "something else: %s", {VISION})
