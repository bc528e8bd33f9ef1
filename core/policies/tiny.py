"""The embedded policy: a small vision-language T5 that is trained from scratch on a laptop.

The encoder reads [image features; prompt tokens], the decoder writes one action. All classes but the
convolutional stem are transformers' and PEFT's own; only writing token by token goes past their wrappers
(`t5_decoding`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.adapters import ADAPTER_FILE, attach_adapter
from distrl.core.policies.base import (
    Generated,
    Pictures,
    Place,
    Policy,
    PolicyOptions,
    PromptBatch,
    States,
    TokenScores,
    check_heads,
    check_length,
    pad_right,
)
from distrl.core.policies.images import ConvStem, decode_image
from distrl.core.policies.sampling import decode, sampling_temperature, token_log_probs
from distrl.core.policies.t5_decoding import T5Decoding
from distrl.core.policies.tokenizer import ActionTokenizer
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

PAD_ID = 0
WEIGHTS_FILE = "model.safetensors"
# 72x160 pixels become 5x10 image tokens, few enough for 2 CPU cores; where in its 16-pixel cell something
# lies is in the features.
STEM_STRIDES = (4, 2, 2)


class TinyOptions(PolicyOptions, Protocol):
    """The embedded policy."""

    image_size: tuple[int, int]
    grid: tuple[int, int]
    d_model: int
    num_layers: int
    num_decoder_layers: int | None
    num_heads: int
    d_ff: int


class TinyPolicy(Policy):
    """A T5 of about half a million parameters with a convolutional stem and an action tokenizer.

    Args:
        config: Sizes, tap grid, prompt length, adapters.
        words: Words of the suite's goals; each gets a token of its own.
        seed: Seed of the initial weights. Equal arguments give equal policies in every process.
    """

    name = "tiny"

    def __init__(self, config: TinyOptions, words: Sequence[str], seed: int) -> None:
        super().__init__()
        check_heads(config.d_model, config.num_heads)
        self.config = config
        self.tokenizer = ActionTokenizer(words, config.grid)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            d = config.d_model
            self.stem = ConvStem(config.image_size, (d // 3, 2 * d // 3, d), STEM_STRIDES)
            self.t5: Any = _build_t5(config, len(self.tokenizer.tokens))
            self.copy_query = nn.Linear(d, d, bias=False)
            self.copy_key = nn.Linear(d, d, bias=False)
            nn.init.zeros_(self.copy_query.weight)
            if config.lora is not None:
                for module in (self.stem, self.copy_query, self.copy_key):
                    module.requires_grad_(False)
                self.adapter = attach_adapter(self.t5, config.lora)
        self.num_tokens, self.state_size = len(self.tokenizer.tokens), config.d_model
        self.max_prompt_tokens = config.max_prompt_tokens
        self.end_ids = self.tokenizer.end_ids
        self.register_buffer("_allowed", self.tokenizer.grammar(), persistent=False)

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """Tokens of all text parts in order; images are not among them."""
        parts = [part for message in messages for part in message.parts]
        num_images = sum(isinstance(part, ImagePart) for part in parts)
        if num_images != 1:
            raise PolicyError(
                f"The embedded policy reads exactly one image per prompt, not {num_images}.",
                "Use an agent that shows the present screen only.",
            )
        ids = self.tokenizer.encode_prompt("\n".join(p.text for p in parts if isinstance(p, TextPart)))
        remedy = "Raise the limit: words that are not in the suite's goals are spelled."
        check_length(ids, self.config.max_prompt_tokens, "tokens", remedy)
        return ids

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        """Tokens of an action text; a press or a tap ends with its own last token, a text with `<end>`."""
        return self.tokenizer.encode_action(text)

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        return self.tokenizer.decode(token_ids)

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8 at the configured image size."""
        return decode_image(data, self.config.image_size)

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts on the right; one image per prompt, and no sequences."""
        assert places is None, "the embedded policy reads one prompt at a time"
        input_ids, mask = pad_right(prompts, PAD_ID)
        for tensors in images:
            if len(tensors) != 1:
                raise PolicyError(
                    f"The embedded policy reads one image per prompt, not {len(tensors)}.", "Send one."
                )
        return PromptBatch(input_ids, mask, Pictures([list(tensors) for tensors in images])).to(self.device)

    def _encode(self, batch: PromptBatch) -> tuple[Tensor, Tensor]:
        """Encoder states [B, I + P, d] and their mask, image tokens first."""
        assert isinstance(batch.images, Pictures)
        pictures, index = batch.images.distinct_on(self.device)
        pixels = self.stem(torch.stack(pictures)).flatten(2).transpose(1, 2).index_select(0, index)
        words = self.t5.shared(batch.input_ids)
        mask = torch.cat(
            [batch.attention_mask.new_ones(pixels.shape[0], pixels.shape[1]), batch.attention_mask], dim=1
        )
        states = self.t5.encoder(inputs_embeds=torch.cat([pixels, words], dim=1), attention_mask=mask)
        return states.last_hidden_state, mask

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples with a key-value cache until every row has ended or has its `max_new_tokens`."""
        states, mask = self._encode(batch)
        temperature = sampling_temperature(sampling, self.device)
        decoding = T5Decoding(self.t5.decoder, states, mask, max(s.max_new_tokens for s in sampling))
        pointers = self._pointers(states, batch)

        def next_log_probs(last: Tensor) -> Tensor:
            logits = self._logits(decoding(last)[:, None], pointers, batch).squeeze(1)
            return token_log_probs(logits, self._allowed_after(last), temperature)

        first = torch.zeros(len(sampling), dtype=torch.int64, device=self.device)
        return decode(next_log_probs, first, frozenset(self.end_ids), sampling, generator)

    def _logits(self, states: Tensor, pointers: Tensor, batch: PromptBatch) -> Tensor:
        """[B, L, V] from decoder states [B, L, d] and the `_pointers` of the prompts.

        The output layer is the input embedding, scaled as in T5. Added to it is what a pointer over the
        prompt gives to the tokens it points at (See et al. 2017, in logits): to type a word of the goal that
        was never typed before needs no weight of its own.
        """
        logits: Tensor = self.t5.lm_head(states * self.config.d_model**-0.5)
        points = self.copy_query(states) @ pointers
        targets = batch.input_ids[:, None, :].expand(-1, states.shape[1], -1)
        return logits.scatter_add(2, targets, points)

    def _pointers(self, encoded: Tensor, batch: PromptBatch) -> Tensor:
        """[B, d, P] scaled keys of the prompt's tokens, of encoder states [B, I + P, d]; 0 at padding."""
        keys: Tensor = self.copy_key(encoded[:, -batch.input_ids.shape[1] :]) * self.config.d_model**-0.5
        return (keys * batch.attention_mask[:, :, None]).transpose(1, 2)

    def _allowed_after(self, previous: Tensor) -> Tensor:
        allowed: Tensor = self._allowed[previous]  # type: ignore[index]
        return allowed

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One encoder and one decoder pass over given tokens, masked as in sampling."""
        states, encoder_mask = self._encode(batch)
        previous = torch.cat([torch.zeros_like(completions[:, :1]), completions[:, :-1]], dim=1)
        out = self.t5.decoder(
            input_ids=previous,
            encoder_hidden_states=states,
            encoder_attention_mask=encoder_mask,
            use_cache=False,
        )
        logits = self._logits(out.last_hidden_state, self._pointers(states, batch), batch)
        log_probs = token_log_probs(logits, self._allowed_after(previous), temperature)
        chosen = log_probs.gather(2, completions[..., None]).squeeze(2)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        zero = torch.zeros_like(chosen)
        return TokenScores(
            torch.where(mask, chosen, zero),
            torch.where(mask, entropy, zero),
            States(states.detach(), encoder_mask),
        )

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The encoder's states: of the image cells, then of the prompt tokens."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return States(*self._encode(batch))

    def save(self, directory: Path) -> None:
        """Writes tokenizer.json and model.safetensors or, with LoRA, the PEFT adapter files."""
        directory.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save(directory)
        if self.adapter is not None:
            self.adapter.save(directory)
        else:
            weights_io.write(directory / WEIGHTS_FILE, self.published_state())

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote; the tokenizer there must be this policy's own."""
        saved = ActionTokenizer.load(directory)
        if saved is None or saved.tokens != self.tokenizer.tokens:
            raise CheckpointError(
                f"The checkpoint {directory} does not have this policy's vocabulary.",
                "Use the tasks and policy configuration that it was made with.",
            )
        file = WEIGHTS_FILE if self.adapter is None else ADAPTER_FILE
        weights_io.load_into(self.published_state(), directory / file)


def _build_t5(config: TinyOptions, vocabulary_size: int) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=vocabulary_size,
            d_model=config.d_model,
            d_kv=config.d_model // config.num_heads,
            d_ff=config.d_ff,
            num_layers=config.num_layers,
            num_decoder_layers=config.num_decoder_layers or config.num_layers,
            num_heads=config.num_heads,
            dropout_rate=0.0,
            pad_token_id=PAD_ID,
            eos_token_id=1,
            decoder_start_token_id=PAD_ID,
            tie_word_embeddings=True,
        )
    )
