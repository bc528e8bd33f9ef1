"""What saves memory in training a large model: layers that are computed twice, eyes that stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from distrl.core.errors import PolicyError
from distrl.core.policies.adapters import language_prefix


def checkpointed_layers(model: Any) -> list[nn.Module]:
    """Readies a model's layers to keep their inputs only and to be computed again in the backward pass.

    Other modules that have such a switch are left out: T5's attentions too ask whether they train, and would
    compute something else again.

    Raises:
        PolicyError: The model's layers cannot.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    try:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    except ValueError as error:
        raise PolicyError(
            f"policy.gradient_checkpointing: {error}", "Set it to false for this model."
        ) from error
    layers: list[nn.Module] = [
        module
        for module in model.modules()
        if isinstance(module, GradientCheckpointingLayer) and module.gradient_checkpointing
    ]
    if not layers:
        raise PolicyError(
            f"policy.gradient_checkpointing: {type(model).__name__} has no layers to compute again.",
            "Set it to false for this model.",
        )
    return layers


@contextmanager
def recomputed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """Lets layers be computed again for this forward pass, if it has gradients.

    transformers does so in training mode only, in which dropout would falsify the importance ratios: so the
    layers alone say that they train, and what is in them does not.
    """
    chosen = layers if torch.is_grad_enabled() else []
    before = [layer.training for layer in chosen]
    for layer in chosen:
        layer.training = True
    try:
        yield
    finally:
        for layer, was_training in zip(chosen, before, strict=True):
            layer.training = was_training


def freeze_vision(model: Any) -> None:
    """Freezes what reads pictures: all but the language model and its output layer."""
    trained = [model.get_submodule(language_prefix(model)), model.get_output_embeddings()]
    model.requires_grad_(False)
    for module in trained:
        module.requires_grad_(True)
