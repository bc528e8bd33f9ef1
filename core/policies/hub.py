"""Policies from a model hub: any image-text-to-text model of transformers, by id or local directory.

The model's own chat template and image processor are used: a prompt may show any number of pictures, each as
many tokens long as the processor makes it (`hub_images`). The token ids of a prompt say where the pictures
stand; the ids and the bytes of the pictures give the same inputs in every process. `generate` is
transformers' own, caches and positions included; only the choice of each token is ours (`RowSampler`): every
row has its own sampling parameters, and `score` sees the same distribution.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from distrl.core import model_points
from distrl.core.errors import CheckpointError, ContextFull, PolicyError
from distrl.core.hub_files import located
from distrl.core.model_points import Resize
from distrl.core.policies import chat_template, number_format, weights_io
from distrl.core.policies.adapters import (
    ADAPTER_FILE,
    CONFIG_KEY,
    AdapterHandle,
    attach_adapter,
    checkpointed_layers,
    freeze_vision,
    recomputed,
)
from distrl.core.policies.base import (
    Generated,
    Pictures,
    Place,
    Policy,
    PretrainedOptions,
    PromptBatch,
    States,
    TokenScores,
)
from distrl.core.policies.chat_template import ControlTokens, vocabulary_bytes
from distrl.core.policies.hub_images import ImageReader, check, exchange, expand
from distrl.core.policies.sampling import OutputTokens, RowSampler, crop_output, kept_tokens, token_statistics
from distrl.core.types import ChatMessage, Sampling

_log = logging.getLogger(__name__)


class HubOptions(PretrainedOptions, Protocol):
    """Vision-language models of the hub."""

    @property
    def min_pixels(self) -> int | None: ...

    @property
    def max_pixels(self) -> int | None: ...

    @property
    def train_vision(self) -> bool: ...

    @property
    def attention(self) -> str: ...

    @property
    def max_context_tokens(self) -> int: ...

    @property
    def slim_vocabulary(self) -> list[str]: ...


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
                f"The model's chat template rejects the chat: {error}.",
                "Write the chat as the template expects.",
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


def load_model(config: HubOptions, has_weights: bool = True) -> LoadedModel:
    """Loads `config.model`, a hub id or a local directory.

    The image processor is the one on PIL, which gives the same pixels on every machine.

    Args:
        config: The model, how it computes, and bounds of pixels.
        has_weights: Without them the model has only the names, shapes and types of its tensors.

    Raises:
        PolicyError: It does not exist, cannot be reached, or is not a chat model for images and text.
    """
    from transformers import AutoImageProcessor, AutoTokenizer

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


def _model(name: str, config: HubOptions) -> Any:
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(
        name,
        dtype=number_format(config.dtype, config.device),
        attn_implementation=config.attention,
    )


def _without_weights(name: str, config: HubOptions) -> Any:
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


def set_aside_generation_settings(model: Any) -> Any:
    """Leaves a model no settings of its own that `generate` would mix in, and returns those it had.

    transformers takes from them whatever a caller does not say: Qwen2.5-VL's penalise repeated tokens, which
    changes the logits before `RowSampler` sees them, and `score` knows nothing of that.
    """
    settings = model.generation_config
    model.generation_config = type(settings)()
    return settings


def writable(loaded: LoadedModel, slim_vocabulary: Sequence[str]) -> tuple[Tensor, OutputTokens]:
    """Which columns of the logits may be sampled, and which tokens they are.

    All but special tokens that end no turn: sampled placeholders would break scoring. With a slim vocabulary
    the model's output layer is cropped to the tokens of those texts, and those that end a turn.

    Raises:
        PolicyError: None of them is the token of an action.
    """
    size = int(loaded.model.get_output_embeddings().weight.shape[0])
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[: min(size, len(loaded.tokenizer))] = True
    special = {*loaded.tokenizer.all_special_ids, loaded.image_token_id, loaded.pad_id}
    allowed[[index for index in special if 0 <= index < size]] = False
    allowed[list(loaded.end_ids)] = True
    if not slim_vocabulary:
        return allowed, OutputTokens(None, size)
    tokens = kept_tokens(loaded.tokenizer, slim_vocabulary, loaded.end_ids)
    kept = [token for token in tokens if bool(allowed[token])]
    if set(kept) <= set(loaded.end_ids):
        raise PolicyError(
            f"policy.slim_vocabulary {list(slim_vocabulary)} has no tokens of actions.",
            "Give the texts of the action tokens.",
        )
    crop_output(loaded.model, kept)
    return torch.ones(len(kept), dtype=torch.bool), OutputTokens(kept, size)


WEIGHTS_FILE = "weights.safetensors"


class HubPolicy(Policy):
    """A vision-language model of the hub, fully trained or by LoRA.

    Args:
        config: Model, bounds of pixels, prompt length, adapters.
        words: Not used; the model has its own tokenizer.
        seed: Seed of the adapters' initial weights.
        has_weights: Without them it only knows its tensors' names and shapes, prompts and texts, for those
            who run the model by other means.
    """

    name = "hub"
    reads_sequences = True

    def __init__(self, config: HubOptions, words: Sequence[str], seed: int, has_weights: bool = True) -> None:
        super().__init__()
        self.config = config
        loaded = load_model(config, has_weights)
        self.model: Any = loaded.model
        self._loaded = loaded
        self._own_settings = set_aside_generation_settings(loaded.model)
        allowed, self._tokens = writable(loaded, config.slim_vocabulary)
        self.register_buffer("_allowed", allowed, persistent=False)
        self._adapter: AdapterHandle | None = None
        if config.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._adapter = attach_adapter(self.model, config.lora)
        elif not config.train_vision:
            freeze_vision(self.model)
        self._checkpointed = checkpointed_layers(self.model) if config.gradient_checkpointing else []

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return self.model.device  # type: ignore[no-any-return]

    @property
    def num_tokens(self) -> int:
        """Size of the vocabulary, before any slimming."""
        return self._tokens.size

    @property
    def placeholder_ids(self) -> frozenset[int]:
        """Tokens that stand for parts of the image."""
        return frozenset([self._loaded.image_token_id])

    @property
    def max_prompt_tokens(self) -> int | None:
        """`policy.max_prompt_tokens`."""
        return self.config.max_prompt_tokens

    @property
    def max_context_tokens(self) -> int | None:
        """`policy.max_context_tokens`."""
        return self.config.max_context_tokens

    @property
    def longest_sequence(self) -> int | None:
        """How many tokens the model has positions for, None if it does not say."""
        found: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found

    @property
    def end_ids(self) -> list[int]:
        """The tokens that end a completion."""
        return self._loaded.end_ids

    @property
    def allowed_ids(self) -> list[int]:
        """Tokens that may be sampled."""
        columns = self._allowed.nonzero().squeeze(1)  # type: ignore[operator]
        ids: list[int] = self._tokens.ids(columns).tolist()
        return ids

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """The chat template's tokens, each picture's placeholder expanded.

        Raises:
            PolicyError: The chat is too long, or `images` are not all that it shows.
        """
        ids = self._expanded(self._loaded.chat_ids(messages), images)
        if len(ids) > self.config.max_prompt_tokens:
            num_shown = ids.count(self._loaded.image_token_id)
            raise ContextFull(
                f"The prompt has {len(ids)} tokens ({num_shown} of pictures), more than "
                f"policy.max_prompt_tokens {self.config.max_prompt_tokens}.",
                "Raise the limit, lower policy.max_pixels, or let the agent show less.",
            )
        return ids

    def _expanded(self, ids: Sequence[int], images: Sequence[Tensor]) -> list[int]:
        """Each picture's placeholder as many times as the picture has tokens."""
        counts = [self.image_tokens(image) for image in images]
        return expand(ids, self._loaded.image_token_id, counts)

    def continuation_ids(
        self, prefix: Sequence[int], messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()
    ) -> list[int]:
        """What the chat template writes between two answers, each picture's placeholder expanded."""
        loaded = self._loaded
        new = loaded.as_template(messages)
        ids = chat_template.continuation_ids(loaded.render, loaded.tokenise, prefix, new, loaded.end_ids)
        return self._expanded(ids, images)

    def with_images(
        self, prompt: Sequence[int], images: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[int]:
        """The prompt with as many placeholders as `others` ask for."""
        placeholder, num_tokens = self._loaded.image_token_id, self.image_tokens
        before, after = ([num_tokens(image) for image in shown] for shown in (images, others))
        return exchange(prompt, placeholder, before, after)

    def completion_ids(self, text: str) -> list[int]:
        """Tokens of the text and the end of the turn.

        Raises:
            PolicyError: The vocabulary is slim and lacks one.
        """
        ids = self._loaded.text_ids(text)
        tokens = torch.tensor(ids, dtype=torch.int64, device=self.device)
        self._tokens.columns(tokens, torch.ones_like(tokens, dtype=torch.bool))
        return [*ids, self._loaded.end_ids[0]]

    def text(self, token_ids: Sequence[int]) -> str:
        """The decoded text without special tokens."""
        decoded: str = self._loaded.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded

    def token_bytes(self, token_id: int) -> bytes | None:
        """As in `Policy`; a vocabulary of bytes has those of parts of characters, too."""
        known = super().token_bytes(token_id)
        return vocabulary_bytes(self._loaded.tokenizer, token_id) if known is None else known

    def verify(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        """As in `Policy`."""
        super().verify(ids, images)
        self._check_placeholders(ids, images)

    def check_points(self, coordinates: str, resize: Resize) -> None:
        """As in `Policy`: pictures are resized as the model's own processor does."""
        self._loaded.check_points(coordinates, resize)

    def _check_placeholders(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        check(ids, self._loaded.image_token_id, [self.image_tokens(image) for image in images])

    def image_tokens(self, image: Tensor) -> int:
        """How many tokens of a prompt stand for the picture."""
        return self._loaded.images.num_tokens(image)

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8 at the size at which the model reads it; the rest is done to whole batches."""
        return self._loaded.images.read(data)

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts or sequences on the left, as decoders need.

        Raises:
            PolicyError: The placeholders in one are not those that its pictures ask for.
        """
        width = max(len(ids) for ids in prompts)
        input_ids = torch.full((len(prompts), width), self._loaded.pad_id, dtype=torch.int64)
        mask = torch.zeros_like(input_ids)
        for row, (ids, pictures) in enumerate(zip(prompts, images, strict=True)):
            self._check_placeholders(ids, pictures)
            input_ids[row, width - len(ids) :] = torch.tensor(list(ids))
            mask[row, width - len(ids) :] = 1
        batch = PromptBatch(input_ids, mask, Pictures([list(row) for row in images]))
        if places is not None:
            length = max(len(step) for step in places)
            padded = torch.tensor([[*step, *[step[0]] * (length - len(step))] for step in places])
            batch.token_rows = padded[..., 0]
            starts = width - torch.tensor([len(ids) for ids in prompts])
            batch.token_places = padded[..., 1] + starts[batch.token_rows]
        return batch.to(self.device)

    def _vision(self, batch: PromptBatch) -> dict[str, Tensor]:
        """The model's image inputs for prompts or sequences; {} without pictures."""
        assert isinstance(batch.images, Pictures)
        inputs = self._loaded.images.inputs(batch.images.on(self.device))
        if inputs and self._loaded.takes_token_types:
            inputs["mm_token_type_ids"] = (batch.input_ids == self._loaded.image_token_id).to(torch.int64)
        dtype = self.model.dtype
        return {k: v.to(self.device, dtype if v.is_floating_point() else None) for k, v in inputs.items()}

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples until every row has ended or has its own `max_new_tokens`."""
        from transformers import GenerationConfig

        batch = self._prompts_of(batch)
        sampler = RowSampler(self._allowed, self._tokens, sampling, generator)  # type: ignore[arg-type]
        self.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            **self._vision(batch),
            logits_processor=[sampler],
            stopping_criteria=[sampler.is_at_limit],
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=max(s.max_new_tokens for s in sampling),
                eos_token_id=self._loaded.end_ids,
                pad_token_id=self._loaded.pad_id,
            ),
        )
        return sampler.results(self._loaded.end_ids)

    def _prompts_of(self, batch: PromptBatch) -> PromptBatch:
        """Each step's prompt on its own, cut out of the sequences."""
        if batch.rows is None or batch.starts is None:
            return batch
        assert isinstance(batch.images, Pictures)
        prompts, images = [], []
        for row, end in zip(batch.rows.tolist(), batch.starts.tolist(), strict=True):
            ids = batch.input_ids[row, :end][batch.attention_mask[row, :end] > 0].tolist()
            left, shown = ids.count(self._loaded.image_token_id), []
            for picture in batch.images.rows[row]:
                if left > 0:
                    shown.append(picture)
                    left -= self.image_tokens(picture)
            prompts.append(ids)
            images.append(shown)
        return self.collate(prompts, images)

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass over prompts and completions together; the same tokens are masked as in sampling.

        Logits are computed at the answers' real tokens only: a vocabulary is large and prompts are long.
        """
        whole = batch if batch.rows is not None else self._answered(batch, completions, mask)
        assert whole.token_rows is not None
        assert whole.token_places is not None
        hidden = self._hidden(whole)
        steps, tokens = mask.nonzero(as_tuple=True)
        chosen, entropy = token_statistics(
            self.model.get_output_embeddings(),
            hidden[whole.token_rows[steps, tokens], whole.token_places[steps, tokens] - 1],
            self._tokens.columns(completions, mask)[steps, tokens],
            self._allowed,  # type: ignore[arg-type]
            torch.where(temperature > 0, temperature, torch.ones_like(temperature))[steps],
        )
        zero = chosen.new_zeros(mask.shape)
        return TokenScores(
            zero.index_put((steps, tokens), chosen),
            zero.index_put((steps, tokens), entropy),
            _states(batch, hidden),
        )

    def _answered(self, batch: PromptBatch, completions: Tensor, mask: Tensor) -> PromptBatch:
        """Prompts with their answers as sequences of one answer each."""
        size, prompt = batch.input_ids.shape
        length = int(mask.sum(dim=1).max()) if mask.numel() else 0
        places = torch.arange(mask.shape[1], device=self.device).clamp(max=max(0, length - 1)) + prompt
        filled = torch.where(mask, completions, self._loaded.pad_id)[:, :length]
        return PromptBatch(
            torch.cat([batch.input_ids, filled], dim=1),
            torch.cat([batch.attention_mask, mask[:, :length].to(batch.attention_mask.dtype)], dim=1),
            batch.images,
            torch.arange(size, device=self.device)[:, None].expand(size, mask.shape[1]),
            places.expand(size, mask.shape[1]),
        )

    def _hidden(self, batch: PromptBatch) -> Tensor:
        """[R, S, d], the last layer's states of prompts or sequences, from which the output layer reads."""
        options: dict[str, object] = dict(self._vision(batch))
        if "mm_token_type_ids" not in options:  # models with 3-D positions derive them from the token types
            options["position_ids"] = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
        with recomputed(self._checkpointed):
            out = self.model.base_model(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, **options
            )
        hidden: Tensor = out.last_hidden_state
        return hidden

    @property
    def state_size(self) -> int:
        """Width of the language model."""
        return int(self.model.config.get_text_config().hidden_size)

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The last layer's states; causal, so they are those that `score` sees."""
        return _states(batch, self._hidden(batch))

    def published_kind(self) -> str:
        """ "adapter" with LoRA, else "full"."""
        return "full" if self._adapter is None else "adapter"

    def published_state(self) -> dict[str, Tensor]:
        """The adapter's tensors, or all weights but frozen ones, which every receiver has."""
        return weights_io.trained_state(self) if self._adapter is None else self._adapter.state()

    def published_metadata(self) -> dict[str, str]:
        """The adapter's configuration, if there is one."""
        return {} if self._adapter is None else {CONFIG_KEY: self._adapter.config_json()}

    def load_published(self, state: dict[str, Tensor]) -> None:
        """Copies tensors in place. Nothing changes unless all of them fit."""
        weights_io.copy_into(self.published_state(), state)

    def save(self, directory: Path) -> None:
        """A PEFT adapter directory, or all weights in one file; and the tokenizer."""
        directory.mkdir(parents=True, exist_ok=True)
        self._loaded.tokenizer.save_pretrained(str(directory))
        if self._adapter is not None:
            self._adapter.save(directory)
        else:
            weights_io.write(directory / WEIGHTS_FILE, self.published_state())

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote."""
        weights_io.load_into(self.published_state(), self.weights_file(directory))

    def weights_file(self, directory: Path) -> Path:
        """The file in which `save` put the weights.

        Raises:
            CheckpointError: There is none.
        """
        file = WEIGHTS_FILE if self._adapter is None else ADAPTER_FILE
        if not (directory / file).is_file():
            raise CheckpointError(
                f"{directory} has no {file}.", "Use the policy configuration that it was made with."
            )
        return directory / file

    def export(self, directory: Path) -> None:
        """The model with its tokenizer and image processor, as on the hub; an adapter is merged, for good.

        Raises:
            PolicyError: The output layer is cropped, which no such model has.
        """
        if self._tokens.is_slim:
            raise PolicyError(
                "policy.slim_vocabulary has cropped the output layer, so this is not a whole model.",
                "Export the adapter and merge it into the model with PEFT.",
            )
        model = self.model if self._adapter is None else self._adapter.merge()
        model.generation_config = self._own_settings
        loaded = self._loaded
        for part in (model, loaded.images, loaded.tokenizer, loaded.templating):
            part.save_pretrained(str(directory))


def _states(batch: PromptBatch, hidden: Tensor) -> States:
    """The prompts' part of the states of prompts with their answers, or of sequences."""
    if batch.rows is None or batch.starts is None:
        return States(hidden[:, : batch.input_ids.shape[1]].detach(), batch.attention_mask)
    return States(hidden.detach(), batch.attention_mask, batch.rows, batch.starts)
