"""Policies from a model hub: any image-text-to-text model of transformers, by id or local directory.

The model's own chat template and image processor are used: a prompt may show any number of pictures, each as
many tokens long as the processor makes it (`hub_images`). The token ids of a prompt say where the pictures
stand; whoever has them and the bytes of the pictures builds the same inputs. `generate` is transformers' own,
caches and positions included; only the choice of each token is ours (`_RowSampler`): every row has its own
sampling parameters, and `score` sees the same distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.adapter_directory import ADAPTER_FILE, CONFIG_KEY
from distrl.core.policies.adapters import AdapterHandle, attach_adapter
from distrl.core.policies.base import Generated, Pictures, Policy, PromptBatch, States, TokenScores
from distrl.core.policies.hub_images import check, expand
from distrl.core.policies.hub_loading import LoadedModel, load_model
from distrl.core.policies.options import PolicyOptions
from distrl.core.policies.sampling import choose, sampling_temperature, token_log_probs
from distrl.core.policies.slimming import OutputTokens, crop_output, kept_tokens
from distrl.core.types import ChatMessage, ImagePart, Sampling

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

    def __init__(
        self, config: PolicyOptions, words: Sequence[str], seed: int, has_weights: bool = True
    ) -> None:
        super().__init__()
        assert config.model is not None
        self.config = config
        loaded = load_model(config.model, config.min_pixels, config.max_pixels, has_weights)
        self.model: Any = loaded.model
        self._loaded = loaded
        allowed, self._tokens = _allowed_tokens(loaded), OutputTokens(None, _num_outputs(loaded))
        if config.slim_vocabulary:
            self._tokens = _slim(loaded, config.slim_vocabulary, allowed)
            allowed = torch.ones(self._tokens.num_columns, dtype=torch.bool)
        self.register_buffer("_allowed", allowed, persistent=False)
        self._adapter: AdapterHandle | None = None
        if config.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self._adapter = attach_adapter(self.model, config.lora)

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
    def end_ids(self) -> list[int]:
        """Tokens that end a completion."""
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
        ids = self._expanded(self._loaded.chat_ids([_template_message(m) for m in messages]), images)
        if len(ids) > self.config.max_prompt_tokens:
            num_shown = ids.count(self._loaded.image_token_id)
            raise PolicyError(
                f"The prompt has {len(ids)} tokens ({num_shown} of pictures), more than "
                f"policy.max_prompt_tokens {self.config.max_prompt_tokens}.",
                "Raise the limit, lower policy.max_pixels, or let the agent show less.",
            )
        return ids

    def _expanded(self, ids: Sequence[int], images: Sequence[Tensor]) -> list[int]:
        """Each picture's placeholder as many times as the picture has tokens."""
        counts = [self._loaded.images.num_tokens(image) for image in images]
        return expand(ids, self._loaded.image_token_id, counts)

    def with_images(
        self, prompt: Sequence[int], images: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[int]:
        """The prompt with as many placeholders as `others` ask for."""
        placeholder, num_tokens = self._loaded.image_token_id, self._loaded.images.num_tokens
        check(prompt, placeholder, [num_tokens(image) for image in images])
        left = [num_tokens(image) for image in images]
        ids: list[int] = []
        for token in prompt:
            if token != placeholder:
                ids.append(token)
            elif left[0] == 1:
                ids += [placeholder] * num_tokens(others[len(images) - len(left)])
                del left[0]
            else:
                left[0] -= 1
        return ids

    def completion_ids(self, text: str) -> list[int]:
        """Tokens of the text and the end of the turn.

        Raises:
            PolicyError: The vocabulary is slim and lacks one.
        """
        ids: list[int] = self._loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens = torch.tensor(ids, dtype=torch.int64, device=self.device)
        self._tokens.columns(tokens, torch.ones_like(tokens, dtype=torch.bool))
        return [*ids, self._loaded.end_ids[0]]

    def text(self, token_ids: Sequence[int]) -> str:
        """The decoded text without special tokens."""
        decoded: str = self._loaded.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return decoded

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8 at the size at which the model reads it; the rest is done to whole batches."""
        return self._loaded.images.read(data)

    def collate(self, prompts: Sequence[Sequence[int]], images: Sequence[Sequence[Tensor]]) -> PromptBatch:
        """Pads prompts on the left, as decoders need.

        Raises:
            PolicyError: A prompt's placeholders are not those that its pictures ask for.
        """
        width = max(len(ids) for ids in prompts)
        input_ids = torch.full((len(prompts), width), self._loaded.pad_id, dtype=torch.int64)
        mask = torch.zeros_like(input_ids)
        for row, (ids, pictures) in enumerate(zip(prompts, images, strict=True)):
            counts = [self._loaded.images.num_tokens(picture) for picture in pictures]
            check(ids, self._loaded.image_token_id, counts)
            input_ids[row, width - len(ids) :] = torch.tensor(list(ids))
            mask[row, width - len(ids) :] = 1
        return PromptBatch(input_ids, mask, Pictures([list(row) for row in images])).to(self.device)

    def _vision(self, batch: PromptBatch, length: int) -> dict[str, Tensor]:
        """The model's image inputs for sequences that go on to `length` tokens; {} without pictures."""
        assert isinstance(batch.images, Pictures)
        inputs = self._loaded.images.inputs(batch.images.flat)
        if inputs and self._loaded.takes_token_types:
            types = torch.zeros(len(batch), length, dtype=torch.int64)
            types[:, : batch.input_ids.shape[1]] = batch.input_ids.cpu() == self._loaded.image_token_id
            inputs["mm_token_type_ids"] = types
        dtype = self.model.dtype
        return {k: v.to(self.device, dtype if v.is_floating_point() else None) for k, v in inputs.items()}

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples until every row has ended or the longest `max_new_tokens` is reached."""
        from transformers import GenerationConfig

        sampler = _RowSampler(self._allowed, self._tokens, sampling, generator)
        self.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            **self._vision(batch, batch.input_ids.shape[1]),
            logits_processor=[sampler],
            generation_config=GenerationConfig(
                do_sample=False,
                max_new_tokens=max(s.max_new_tokens for s in sampling),
                eos_token_id=self._loaded.end_ids,
                pad_token_id=self._loaded.pad_id,
            ),
        )
        return [
            _cut(tokens, logprobs, self._loaded.end_ids, s.max_new_tokens)
            for tokens, logprobs, s in zip(*sampler.results(), sampling, strict=True)
        ]

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass over prompts and completions together; the same tokens are masked as in sampling."""
        length = completions.shape[1]
        logits, states = self._forward(batch, completions, mask)
        effective = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
        log_probs = token_log_probs(logits[:, -length - 1 : -1], self._allowed, effective)  # type: ignore[arg-type]
        chosen = log_probs.gather(2, self._tokens.columns(completions, mask)[..., None]).squeeze(2)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        zero = torch.zeros_like(chosen)
        return TokenScores(torch.where(mask, chosen, zero), torch.where(mask, entropy, zero), states)

    def _forward(self, batch: PromptBatch, completions: Tensor, mask: Tensor) -> tuple[Tensor, States]:
        """Logits, [B, ≥ L+1, V] from the prompt's last position on at least, and the prompts' states.

        A vocabulary is large and prompts are long: their logits would take most of the memory.
        """
        prompt, length = batch.input_ids.shape[1], completions.shape[1]
        filled = torch.where(mask, completions, torch.full_like(completions, self._loaded.pad_id))
        attention = torch.cat([batch.attention_mask, mask.to(batch.attention_mask.dtype)], dim=1)
        options: dict[str, object] = {"logits_to_keep": length + 1} if self._loaded.keeps_logits else {}
        vision = self._vision(batch, prompt + length)
        if "mm_token_type_ids" not in vision:  # models with 3-D positions derive them from the token types
            options["position_ids"] = (attention.cumsum(1) - 1).clamp(min=0)
        out = self.model(
            input_ids=torch.cat([batch.input_ids, filled], dim=1),
            attention_mask=attention,
            **vision,
            **options,
            output_hidden_states=True,
        )
        return out.logits, States(out.hidden_states[-1][:, :prompt].detach(), batch.attention_mask)

    @property
    def state_size(self) -> int:
        """Width of the language model."""
        return int(self.model.config.get_text_config().hidden_size)

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The last layer's states; causal, so they are those that `score` sees."""
        none = batch.input_ids[:, :0]
        return self._forward(batch, none, none.bool())[1]

    def published_kind(self) -> str:
        """ "adapter" with LoRA, else "full"."""
        return "full" if self._adapter is None else "adapter"

    def published_state(self) -> dict[str, Tensor]:
        """The adapter's tensors, or all weights but frozen ones, which whoever receives them has."""
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


class _RowSampler:
    """A logits processor that draws each row's next token itself and leaves only that one."""

    def __init__(
        self,
        allowed: Any,
        output: OutputTokens,
        sampling: Sequence[Sampling],
        generator: torch.Generator | None,
    ) -> None:
        self._allowed, self._output, self._sampling, self._generator = allowed, output, sampling, generator
        self._tokens: list[Tensor] = []
        self._logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        temperature = sampling_temperature(self._sampling, scores.device)
        log_probs = token_log_probs(scores, self._allowed, temperature)
        columns, logprobs = choose(log_probs, self._sampling, self._generator)
        tokens = self._output.ids(columns)
        self._tokens.append(tokens)
        self._logprobs.append(logprobs)
        # As wide as the full vocabulary: what generation takes the largest of is a token's id.
        only = scores.new_full((len(scores), self._output.size), float("-inf"))
        return only.scatter(1, tokens[:, None], 0.0)

    def results(self) -> tuple[list[list[int]], list[list[float]]]:
        """What was drawn in each row, also after its end."""
        tokens: list[list[int]] = torch.stack(self._tokens, dim=1).tolist()
        logprobs: list[list[float]] = torch.stack(self._logprobs, dim=1).tolist()
        return tokens, logprobs


def _cut(tokens: list[int], logprobs: list[float], end_ids: Sequence[int], limit: int) -> Generated:
    ends = [index + 1 for index, token in enumerate(tokens) if token in end_ids]
    length = min([limit, len(tokens), *ends])
    return Generated(tokens[:length], logprobs[:length])


def _template_message(message: ChatMessage) -> dict[str, object]:
    content = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in message.parts
    ]
    return {"role": message.role, "content": content}


def _allowed_tokens(loaded: LoadedModel) -> Tensor:
    """[V] bool: what may be sampled: ends, and no other special token (placeholders would break scoring)."""
    size = _num_outputs(loaded)
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[: min(size, len(loaded.tokenizer))] = True
    special = {*loaded.tokenizer.all_special_ids, loaded.image_token_id, loaded.pad_id}
    allowed[[index for index in special if 0 <= index < size]] = False
    allowed[list(loaded.end_ids)] = True
    return allowed


def _num_outputs(loaded: LoadedModel) -> int:
    return int(loaded.model.get_output_embeddings().weight.shape[0])


def _slim(loaded: LoadedModel, texts: Sequence[str], allowed: Tensor) -> OutputTokens:
    """Leaves only the allowed tokens of `texts`, and those that end a turn, to be written."""
    size = _num_outputs(loaded)
    kept = [token for token in kept_tokens(loaded.tokenizer, texts, loaded.end_ids) if bool(allowed[token])]
    if set(kept) <= set(loaded.end_ids):
        raise PolicyError(
            f"policy.slim_vocabulary {list(texts)} has no tokens of actions.",
            "Give the texts of the action tokens.",
        )
    crop_output(loaded.model, kept)
    return OutputTokens(kept, size)
