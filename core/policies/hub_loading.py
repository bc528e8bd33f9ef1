"""Loading a hub model with its tokenizer, chat template and image processor."""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from distrl.core import model_points
from distrl.core.errors import PolicyError
from distrl.core.image_sizes import Resize
from distrl.core.policies import chat_template, resolve_device
from distrl.core.policies.control_tokens import ControlTokens
from distrl.core.policies.hub_files import located
from distrl.core.policies.hub_images import ImageReader
from distrl.core.policies.options import PolicyOptions
from distrl.core.types import ChatMessage

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedModel:
    """A model and what turns chats and pictures into its inputs.

    Attributes:
        model: An image-text-to-text model in eval mode.
        tokenizer: As transformers gives it.
        images: The model's image processor.
        templating: What has the chat template: the processor, or the tokenizer.
        image_token_id: The placeholder that stands for (a part of) an image.
        end_ids: Tokens that end a turn, the tokenizer's own first.
        pad_id: Padding.
        control_tokens: What no text of a chat may spell.
    """

    model: Any
    tokenizer: Any
    images: ImageReader
    templating: Any
    image_token_id: int
    end_ids: list[int]
    pad_id: int
    control_tokens: ControlTokens

    @property
    def takes_token_types(self) -> bool:
        """Whether positions are three-dimensional and derived from the kinds of tokens (Qwen-VL)."""
        return "mm_token_type_ids" in inspect.signature(type(self.model).forward).parameters

    def chat_ids(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The chat's tokens with one placeholder per image, up to where the answer starts."""
        return self.tokenise(self.render(self.as_template(messages)))

    def as_template(self, messages: Sequence[ChatMessage]) -> list[chat_template.Message]:
        """The chat as its template takes it; whatever its texts spell, they are text."""
        return [chat_template.as_template(message, self.control_tokens.apart) for message in messages]

    def text_ids(self, text: str) -> list[int]:
        """The tokens of what is text, whatever it spells."""
        return self.tokenise(*self.control_tokens.apart([text]))

    def render(self, messages: Sequence[dict[str, object]]) -> str:
        """The chat's text up to where the answer starts.

        Raises:
            PolicyError: The template refuses it: two messages of one role, a role that it does not know.
        """
        from jinja2 import TemplateError

        try:
            text: str = self.templating.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise PolicyError(
                f"The model's chat template refuses the chat: {error}.", "Write the chat as it asks for."
            ) from error
        return text

    def tokenise(self, text: str) -> list[int]:
        """The text's tokens, nothing added."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def check_points(self, coordinates: str, resize: Resize) -> None:
        """As `Policy.check_points`."""
        if self.images.has_grid:
            warning = model_points.doubt(self.model.config.model_type, coordinates, self.images.resize)
            if warning is not None:
                _log.warning("%s", warning)
        if coordinates == "absolute":
            self.images.check_points(resize)


def load_model(config: PolicyOptions, has_weights: bool = True) -> LoadedModel:
    """Loads `config.model`, a hub id or a local directory.

    The image processor is the one on PIL, which gives the same pixels on every machine.

    Args:
        config: The model, how it computes, and bounds of pixels.
        has_weights: Without them the model has only the names, shapes and types of its tensors.

    Raises:
        PolicyError: It does not exist, cannot be reached, or is no chat model for images and text.
    """
    from transformers import AutoImageProcessor, AutoTokenizer

    assert config.model is not None
    name = located("policy.model", config.model)
    try:
        model = _model(name, config) if has_weights else _without_weights(name, config)
        tokenizer = AutoTokenizer.from_pretrained(name)
        image_processor = AutoImageProcessor.from_pretrained(name, backend="pil")
        templating = _templating(name, tokenizer)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        raise PolicyError(
            f"policy.model {name!r} cannot be loaded: {str(error).strip().splitlines()[0]}",
            "Name an image-text-to-text model of the hub that this machine can reach, or its directory.",
        ) from error
    if templating is None:
        raise PolicyError(f"policy.model {name!r} has no chat template.", "Choose a model made for chats.")
    _refuse_scaled_logits(name, model)
    image_token_id = getattr(model.config, "image_token_id", None)
    if image_token_id is None:
        image_token_id = getattr(model.config, "image_token_index", None)
    end_ids = _end_ids(model, tokenizer)
    if image_token_id is None or not end_ids:
        raise PolicyError(
            f"policy.model {name!r} names no image token or no end token.", "Choose another model."
        )
    images = ImageReader(image_processor, config.min_pixels, config.max_pixels)
    images.measure(model.eval())
    pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end_ids[0]
    control_tokens = ControlTokens(tokenizer, {image_token_id, *end_ids})
    return LoadedModel(
        model.eval(), tokenizer, images, templating, int(image_token_id), end_ids, int(pad_id), control_tokens
    )


def number_format(name: str, device: str) -> torch.dtype:
    """The type of weights and activations: "auto" is bfloat16 on a GPU, float32 elsewhere.

    Args:
        name: `policy.dtype`.
        device: `policy.device`.
    """
    if name == "auto":
        name = "bfloat16" if resolve_device(device).startswith("cuda") else "float32"
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def _model(name: str, config: PolicyOptions) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(
        name,
        dtype=number_format(config.dtype, config.device),
        attn_implementation=config.attention,
    )


def _without_weights(name: str, config: PolicyOptions) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(
            AutoConfig.from_pretrained(name), dtype=number_format(config.dtype, config.device)
        )
    with contextlib.suppress(OSError):  # it need not have settings of its own
        model.generation_config = GenerationConfig.from_pretrained(name)
    return model


def _templating(name: str, tokenizer: Any) -> Any:
    """Whoever has the chat template; some processors cannot be made without torchvision."""
    if tokenizer.chat_template:
        return tokenizer
    from transformers import AutoProcessor

    processor = AutoProcessor.from_pretrained(name)
    return processor if getattr(processor, "chat_template", None) else None


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a turn: the tokenizer's, then those of the generation settings that it knows."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list) else [configured]
    ends = [end for end in (tokenizer.eos_token_id, *more) if end is not None and end < len(tokenizer)]
    return list(dict.fromkeys(int(end) for end in ends))


def _refuse_scaled_logits(name: str, model: Any) -> None:
    """Scoring takes logits from the output layer itself; some families do more to them."""
    config = model.config.get_text_config()
    for key in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(config, key, None) not in (None, 1, 1.0):
            raise PolicyError(
                f"policy.model {name!r} changes its logits after the output layer ({key}).",
                "This is not supported: choose another model.",
            )
