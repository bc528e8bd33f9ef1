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
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn.functional import pad

from distrl.core import model_points
from distrl.core.errors import CheckpointError, ContextFull, MissingDependency, PolicyError
from distrl.core.hub_files import located
from distrl.core.model_points import Resize
from distrl.core.policies import chat_template, loading, number_format, resolve_device, weights_io
from distrl.core.policies.adapters import (
    ADAPTER_FILE,
    attach_adapter,
    checkpointed_layers,
    freeze_vision,
    language_prefix,
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
from distrl.core.policies.chat_template import ControlTokens
from distrl.core.policies.hub_images import ImageReader, attend_in_one_call, check, exchange, expand
from distrl.core.policies.hub_vision import FeatureCache
from distrl.core.policies.sampling import RowSampler, score_tokens, writable_tokens
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

WEIGHTS_FILE = "weights.safetensors"
_log = logging.getLogger(__name__)


class HubOptions(PretrainedOptions, Protocol):
    """Vision-language models of the hub."""

    min_pixels: int | None
    max_pixels: int | None
    train_vision: bool
    vision_cache_gb: float | None
    attention: Any  # a name of an implementation in transformers
    max_context_tokens: int
    slim_vocabulary: list[str]
    own_tokens: list[str] | None
    action_bins: int | None
    quantization: Any  # "none" or "nf4"
    template: dict[str, Any]


def load_model(name: str, config: HubOptions, has_weights: bool) -> tuple[Any, Any, Any, Any]:
    """The model in eval mode, its tokenizer, its image processor, and which of these has the chat template.

    The image processor is the one on PIL, which gives the same pixels on every machine.

    Raises:
        PolicyError: It does not exist, cannot be reached, or is not a chat model for images and text.
    """
    from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

    remedy = "Name an image-text-to-text model of the hub that this machine can reach, or its directory."
    with loading("policy.model", name, remedy):
        model = _model(name, config, has_weights).eval()
        tokenizer = AutoTokenizer.from_pretrained(name)
        image_processor = AutoImageProcessor.from_pretrained(name, backend="pil")
        # Some processors cannot be made without torchvision, so they are the second choice.
        templating = tokenizer if tokenizer.chat_template else AutoProcessor.from_pretrained(name)
    if not getattr(templating, "chat_template", None):
        raise PolicyError(f"policy.model {name!r} has no chat template.", "Choose a model made for chats.")
    # Scoring takes logits from the output layer itself; some families change them afterwards.
    text_config = model.config.get_text_config()
    for key in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(text_config, key, None) not in (None, 1, 1.0):
            raise PolicyError(
                f"policy.model {name!r} changes its logits after the output layer ({key}).",
                "This is not supported: choose another model.",
            )
    return model, tokenizer, image_processor, templating


def _model(name: str, config: HubOptions, has_weights: bool) -> Any:
    from transformers import AutoConfig, AutoModelForImageTextToText, GenerationConfig

    dtype = number_format(config.dtype, config.device)
    if has_weights:
        options = _four_bits(dtype) if config.quantization == "nf4" else {}
        return AutoModelForImageTextToText.from_pretrained(
            name, dtype=dtype, attn_implementation=config.attention, **options
        )
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(name), dtype=dtype)
    with contextlib.suppress(OSError):  # it need not have settings of its own
        model.generation_config = GenerationConfig.from_pretrained(name)
    return model


def _four_bits(dtype: torch.dtype) -> dict[str, Any]:
    """Options that load the language model's layers in NF4 (Dettmers et al. 2023, "QLoRA", §3)."""
    if find_spec("bitsandbytes") is None:
        raise MissingDependency(
            "policy.quantization nf4 needs bitsandbytes, which is not installed.",
            "Install the extra 'distrl[nf4]'.",
        )
    from transformers import BitsAndBytesConfig

    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
        llm_int8_skip_modules=[r"(?!.*\blanguage_model\.)"],  # all that is not in the language model
    )
    return {"quantization_config": settings}


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """The tokens that end a turn: the tokenizer's, then those of the generation settings."""
    configured = getattr(model.generation_config, "eos_token_id", None)
    more = configured if isinstance(configured, list) else [configured]
    ends = [end for end in (tokenizer.eos_token_id, *more) if end is not None and end < len(tokenizer)]
    return list(dict.fromkeys(int(end) for end in ends))


class HubPolicy(Policy):
    """A vision-language model of the hub, fully trained or by LoRA.

    Args:
        has_weights: Without them it has only its tensors' names and shapes, prompts and texts, for engines
            that run the model by other means.
    """

    name = "hub"
    reads_sequences = True

    def __init__(self, config: HubOptions, words: Sequence[str], seed: int, has_weights: bool = True) -> None:
        super().__init__()
        self.config = config
        name = located("policy.model", config.model)
        self.model, self.tokenizer, processor, self._templating = load_model(name, config, has_weights)
        model, tokenizer = self.model, self.tokenizer
        image_token = getattr(model.config, "image_token_id", None)
        if image_token is None:
            image_token = getattr(model.config, "image_token_index", None)
        self.end_ids = _end_ids(model, tokenizer)
        if image_token is None or not self.end_ids:
            raise PolicyError(
                f"policy.model {name!r} does not define an image token or an end token.",
                "Choose another model.",
            )
        self.image_token = int(image_token)
        self.images = ImageReader(processor, config.min_pixels, config.max_pixels)
        self.images.measure(model)
        is_half = model.dtype == torch.bfloat16 and resolve_device(config.device).startswith("cuda")
        is_half = is_half and torch.cuda.is_bf16_supported(including_emulation=False)
        if self.images.has_grid and config.attention == "sdpa" and is_half:
            attend_in_one_call(model)
        self._pad_id = int(self.end_ids[0] if tokenizer.pad_token_id is None else tokenizer.pad_token_id)
        kept = self._own_tokens(config.own_tokens or [])
        self._control_tokens = ControlTokens(tokenizer, {self.image_token, *self.end_ids}, kept)
        special = {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._silent = (special | set(tokenizer.all_special_ids)) - kept
        # Kept for `export`, but not used: transformers takes from them whatever a caller of `generate` leaves
        # out. Qwen2.5-VL's penalise repeated tokens, which `score` would not see.
        self._own_settings, model.generation_config = model.generation_config, type(model.generation_config)()
        self.num_tokens = int(model.get_output_embeddings().weight.shape[0])
        self.state_size = int(model.config.get_text_config().hidden_size)
        self.max_prompt_tokens = config.max_prompt_tokens
        self.max_context_tokens = config.max_context_tokens
        # Placeholders must not be sampled: they would break scoring.
        allowed = writable_tokens(tokenizer, self.num_tokens, self.end_ids, [self.image_token, self._pad_id])
        allowed[list(kept)] = True
        self._bins = self._least_used(config.action_bins or 0)
        self._numbers = {token: str(number) for number, token in enumerate(self._bins)}
        if config.slim_vocabulary:
            allowed &= self._slim(config.slim_vocabulary)
        self.register_buffer("_allowed", allowed, persistent=False)
        # Positions are three-dimensional and derived from the kinds of tokens (Qwen-VL).
        self._takes_token_types = "mm_token_type_ids" in inspect.signature(type(model).forward).parameters
        if config.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.adapter = attach_adapter(model, config.lora)
        elif not config.train_vision:
            freeze_vision(model)
        self._checkpointed = checkpointed_layers(model) if config.gradient_checkpointing else []
        self._features = FeatureCache.of(model, self.images, config.vision_cache_gb)

    def _own_tokens(self, texts: Sequence[str]) -> set[int]:
        """The special tokens of these texts, which stay as they are in prompts and answers."""
        added = {token.content: index for index, token in self.tokenizer.added_tokens_decoder.items()}
        others = {self.image_token, self._pad_id, *self.end_ids}
        if unknown := [text for text in texts if added.get(text, self.image_token) in others]:
            raise PolicyError(
                f"policy.own_tokens {unknown}: the model has no such special tokens, or not for answers.",
                "List special tokens that its actions are written with, or remove policy.own_tokens.",
            )
        return {added[text] for text in texts}

    def _slim(self, texts: Sequence[str]) -> Tensor:
        """[V] bool: the tokens of the texts and the ends (vocabulary slimming, AcceRL §5.1)."""
        kept = torch.zeros(self.num_tokens, dtype=torch.bool)
        kept[[token for text in texts for token in self._written(text)]] = True
        if not kept.any():
            raise PolicyError("policy.slim_vocabulary has no tokens.", "List the words of actions there.")
        kept[self.end_ids] = True
        return kept

    def _least_used(self, count: int) -> list[int]:
        """The tokens that the tokenizer learnt last, so the least frequent (OpenVLA, Kim et al. 2024, §3)."""
        added = {*self.tokenizer.added_tokens_decoder, *self.tokenizer.all_special_ids}
        learnt = [token for token in range(min(len(self.tokenizer), self.num_tokens)) if token not in added]
        if count > len(learnt):
            raise PolicyError(
                f"policy.action_bins {count} is more than the model's {len(learnt)} tokens.",
                "Choose fewer bins.",
            )
        return learnt[len(learnt) - count :]

    def compile_layers(self, backend: str = "inductor") -> None:
        """Lets torch.compile compile the language model's layers at their first use, for any length."""
        language = self.model.get_submodule(language_prefix(self.model))
        blocks = {
            name for one in self.model.modules() for name in getattr(one, "_no_split_modules", None) or ()
        }
        for layer in language.modules():
            if type(layer).__name__ in blocks:
                layer.compile(backend=backend, dynamic=True)

    @property
    def longest_sequence(self) -> int | None:
        """How many tokens the model has positions for, None if it does not say."""
        found: int | None = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return found

    @property
    def allowed_ids(self) -> list[int]:
        """Tokens that may be sampled."""
        ids: list[int] = self._allowed.nonzero().squeeze(1).tolist()  # type: ignore[operator]
        return ids

    def render(self, messages: Sequence[chat_template.Message]) -> str:
        """The chat's text up to where the answer starts; PolicyError if the template rejects the chat."""
        from jinja2 import TemplateError

        try:
            text: str = self._templating.apply_chat_template(
                list(messages), **{**self.config.template, "tokenize": False, "add_generation_prompt": True}
            )
        except TemplateError as error:
            raise PolicyError(
                f"The model's chat template rejects the chat: {error}.",
                "Write the chat as the template expects.",
            ) from error
        return text

    def _tokenise(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _written(self, text: str) -> list[int]:
        """The tokens of an answer; with `policy.action_bins`, one for each number."""
        if not self._bins:
            return self._tokenise(*self._control_tokens.apart([text]))
        words = text.replace(";", " ").split()
        if not all(word.isdecimal() and int(word) < len(self._bins) for word in words):
            raise PolicyError(
                f"{text!r:.200} must contain only whole numbers below policy.action_bins "
                f"({len(self._bins)}).",
                "Set policy.action_bins to agent.options.bins, or remove it.",
            )
        return [self._bins[int(word)] for word in words]

    def _as_template(self, messages: Sequence[ChatMessage]) -> list[chat_template.Message]:
        return [chat_template.as_template(message, self._control_tokens.apart) for message in messages]

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """The chat template's tokens, each picture's placeholder expanded."""
        ids = self._expanded(self._tokenise(self.render(self._as_template(messages))), images)
        if len(ids) > self.config.max_prompt_tokens:
            num_shown = ids.count(self.image_token)
            raise ContextFull(
                f"The prompt has {len(ids)} tokens ({num_shown} of pictures), more than "
                f"policy.max_prompt_tokens {self.config.max_prompt_tokens}.",
                "Raise the limit, lower policy.max_pixels, or let the agent show less.",
            )
        return ids

    def _expanded(self, ids: Sequence[int], images: Sequence[Tensor]) -> list[int]:
        """Each picture's placeholder as many times as the picture has tokens."""
        counts = [self.image_tokens(image) for image in images]
        return expand(ids, self.image_token, counts)

    def continuation_ids(
        self, prefix: Sequence[int], messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()
    ) -> list[int]:
        """What the chat template writes between two answers, each picture's placeholder expanded."""
        new = self._as_template(messages)
        ids = chat_template.continuation_ids(self.render, self._tokenise, prefix, new, self.end_ids)
        return self._expanded(ids, images)

    def with_images(
        self, prompt: Sequence[int], images: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[int]:
        """The prompt with as many placeholders as `others` ask for."""
        before, after = ([self.image_tokens(image) for image in shown] for shown in (images, others))
        return exchange(prompt, self.image_token, before, after)

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        ids = self._written(text)
        if self.config.slim_vocabulary and not bool(self._allowed[ids].all()):  # type: ignore[index]
            raise PolicyError(
                f"{text!r:.200} has tokens that policy.slim_vocabulary does not list.",
                "Add its words there, or remove policy.slim_vocabulary.",
            )
        return [*ids, self.end_ids[0]]

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        loud = [token for token in token_ids if token not in self._silent]
        if self._bins:
            return " ".join(self._numbers.get(token) or self.tokenizer.decode([token]) for token in loud)
        decoded: str = self.tokenizer.decode(loud)
        return decoded

    def verify(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        super().verify(ids, images)
        self._check_placeholders(ids, images)

    def check_points(self, coordinates: str, resize: Resize) -> None:
        """As in `Policy`: pictures are resized as the model's own processor does."""
        if self.images.has_grid:
            warning = model_points.doubt(
                self.config.model, self.model.config.model_type, coordinates, self.images.resize
            )
            if warning is not None:
                _log.warning("%s", warning)
        if coordinates == "absolute":
            self.images.check_points(resize)

    def _check_placeholders(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        check(ids, self.image_token, [self.image_tokens(image) for image in images])

    def image_tokens(self, image: Tensor) -> int:
        """How many tokens of a prompt stand for the picture."""
        return self.images.num_tokens(image)

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8 at the size at which the model reads it; the rest is done to whole batches."""
        return self.images.read(data)

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts or sequences on the left, as decoders need."""
        width = max(len(ids) for ids in prompts)
        input_ids = torch.full((len(prompts), width), self._pad_id, dtype=torch.int64)
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
        if self._features is not None:
            inputs = self._features.inputs(batch.images, self.device)
        else:
            inputs = self.images.inputs(batch.images.on(self.device))
        if inputs and self._takes_token_types:
            inputs["mm_token_type_ids"] = (batch.input_ids == self.image_token).to(torch.int64)
        dtype = self.model.dtype
        return {k: v.to(self.device, dtype if v.is_floating_point() else None) for k, v in inputs.items()}

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples until every row has ended or has its own `max_new_tokens`."""
        from transformers import GenerationConfig

        batch = self._prompts_of(batch)
        sampler = RowSampler(self._allowed, sampling, generator)  # type: ignore[arg-type]
        self.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            **self._vision(batch),
            logits_processor=[sampler],
            stopping_criteria=[sampler.is_at_limit],
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=max(s.max_new_tokens for s in sampling),
                eos_token_id=self.end_ids,
                pad_token_id=self._pad_id,
            ),
        )
        return sampler.results(self.end_ids)

    def _prompts_of(self, batch: PromptBatch) -> PromptBatch:
        """Each step's prompt on its own, cut out of the sequences."""
        if batch.rows is None or batch.starts is None:
            return batch
        assert isinstance(batch.images, Pictures)
        prompts, images = [], []
        for row, end in zip(batch.rows.tolist(), batch.starts.tolist(), strict=True):
            ids = batch.input_ids[row, :end][batch.attention_mask[row, :end] > 0].tolist()
            left, shown = ids.count(self.image_token), []
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
        states = hidden[whole.token_rows[steps, tokens], whole.token_places[steps, tokens] - 1]
        logprobs, entropy = score_tokens(
            self.model.get_output_embeddings(),
            states,
            completions,
            mask,
            self._allowed,  # type: ignore[arg-type]
            temperature,
        )
        return TokenScores(logprobs, entropy, _states(batch, hidden.detach()))

    def _answered(self, batch: PromptBatch, completions: Tensor, mask: Tensor) -> PromptBatch:
        """Prompts with their answers as sequences of one answer each."""
        size, prompt = batch.input_ids.shape
        length = int(mask.sum(dim=1).max()) if mask.numel() else 0
        places = torch.arange(mask.shape[1], device=self.device).clamp(max=max(0, length - 1)) + prompt
        filled = torch.where(mask, completions, self._pad_id)[:, :length]
        return PromptBatch(
            torch.cat([batch.input_ids, filled], dim=1),
            torch.cat([batch.attention_mask, mask[:, :length].to(batch.attention_mask.dtype)], dim=1),
            batch.images,
            torch.arange(size, device=self.device)[:, None].expand(size, mask.shape[1]),
            places.expand(size, mask.shape[1]),
        )

    def _hidden(self, batch: PromptBatch) -> Tensor:
        """[R, S, d], the last layer's states of prompts or sequences, from which the output layer reads."""
        if self.is_joint and not cast(Pictures, batch.images).flat:
            # Ranks that have pictures call the vision tower, so this one has to call it too.
            return self._hidden(self._with_a_picture(batch))[:-1, -batch.input_ids.shape[1] :]
        options: dict[str, object] = dict(self._vision(batch))
        if "mm_token_type_ids" not in options:  # models with 3-D positions derive them from the token types
            options["position_ids"] = (batch.attention_mask.cumsum(1) - 1).clamp(min=0)
        with recomputed(self._checkpointed):
            out = self.model.base_model(
                input_ids=batch.input_ids, attention_mask=batch.attention_mask, use_cache=False, **options
            )
        hidden: Tensor = out.last_hidden_state
        return hidden

    def _with_a_picture(self, batch: PromptBatch) -> PromptBatch:
        """Prompts or sequences, and a prompt that shows a picture, as the last row."""
        picture = self.images.blank()
        parts = (ImagePart(digest="0" * 32), TextPart(text="a"))
        shown = self.collate(
            [self.prompt_ids([ChatMessage(role="user", parts=parts)], [picture])], [[picture]]
        )
        width = max(batch.input_ids.shape[1], shown.input_ids.shape[1])
        ids, masks = (
            torch.cat([pad(x, (width - x.shape[1], 0), value=value) for x in both])
            for value, both in (
                (self._pad_id, (batch.input_ids, shown.input_ids)),
                (0, (batch.attention_mask, shown.attention_mask)),
            )
        )
        rows: list[list[Tensor]] = [[] for _ in range(len(ids) - 1)]
        return PromptBatch(ids, masks, Pictures([*rows, [picture]]))

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The last layer's states; causal, so they are those that `score` sees."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return _states(batch, self._hidden(batch))

    def save(self, directory: Path) -> None:
        """A PEFT adapter directory, or all weights in one file; and the tokenizer."""
        directory.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(str(directory))
        if self.adapter is not None:
            self.adapter.save(directory)
        else:
            weights_io.write(directory / WEIGHTS_FILE, self.published_state())

    def load(self, directory: Path) -> None:
        weights_io.load_into(self.published_state(), self.weights_file(directory))

    def weights_file(self, directory: Path) -> Path:
        """The file in which `save` put the weights; CheckpointError if there is none."""
        file = WEIGHTS_FILE if self.adapter is None else ADAPTER_FILE
        if not (directory / file).is_file():
            raise CheckpointError(
                f"{directory} has no {file}.", "Use the policy configuration that it was made with."
            )
        return directory / file

    def export(self, directory: Path) -> None:
        """The model with its tokenizer and image processor, as on the hub; an adapter is merged, for good."""
        model = self.model if self.adapter is None else self.adapter.merge()
        model.generation_config = self._own_settings
        for part in (model, self.images, self.tokenizer, self._templating):
            part.save_pretrained(str(directory))


def _states(batch: PromptBatch, hidden: Tensor) -> States:
    """The prompts' part of the states of prompts with their answers, or of sequences."""
    if batch.rows is None or batch.starts is None:
        return States(hidden[:, : batch.input_ids.shape[1]], batch.attention_mask)
    return States(hidden, batch.attention_mask, batch.rows, batch.starts)
