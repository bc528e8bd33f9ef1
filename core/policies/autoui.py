"""AutoUI's policy: a T5 that reads the goal, the actions so far and the features of screenshots.

The architecture of Auto-UI (Zhan & Zhang 2023), which DigiRL and DistRL train: `autoui_model` has the network
and how published checkpoints are loaded; `FrozenEyes` or `LearningEyes` look at screenshots. The prompt's
tokens are text only; its pictures, oldest first and the present screen last, are beside it. Attention reads
the newest `policy.attended_images` of them, a missing one as features of 0, as in Auto-UI; the critic reads
all.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.hub_files import located
from distrl.core.policies import loading, number_format, resolve_device, weights_io
from distrl.core.policies.adapters import ADAPTER_FILE, attach_adapter, checkpointed_layers, recomputed
from distrl.core.policies.autoui_model import T5_REMEDY, load_model, read_config, read_tensors, write_model
from distrl.core.policies.base import (
    Generated,
    Pictures,
    Place,
    Policy,
    PretrainedOptions,
    PromptBatch,
    States,
    TokenScores,
    check_length,
    pad_right,
)
from distrl.core.policies.chat_template import ControlTokens
from distrl.core.policies.hub_images import ImageReader
from distrl.core.policies.images import ConvStem, Recent, decode_image, pixel_key
from distrl.core.policies.sampling import (
    decode,
    sampling_temperature,
    score_tokens,
    token_log_probs,
    writable_tokens,
)
from distrl.core.policies.t5_decoding import T5Decoding
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

KEY = "policy.image_features"
REMEDY = (
    "Name a whole BLIP-2 that this machine can reach, such as Salesforce/blip2-opt-2.7b, or its directory; "
    "or leave the key out for a small encoder that is trained."
)
VISION_PREFIX = "vision_model."
BATCH = 16
"""Pictures that go through BLIP-2 at once."""
MAX_CACHED_BYTES = 256 * 2**20
"""Of features: some 45,000 screenshots of 1408 float32 numbers."""
STEM_CHANNELS, STEM_STRIDES = (32, 64, 128), (4, 2, 2)


class AutoUIOptions(PretrainedOptions, Protocol):
    """A T5 with AutoUI's fusion of image features."""

    image_features: str | None
    attended_images: int
    image_size: tuple[int, int]


class FrozenEyes:
    """The vision tower of BLIP-2: the pooled state of each picture, as in AutoUI and DigiRL.

    It is not part of the policy's weights: it is never trained, published or saved.

    Args:
        model: A directory or hub id of a BLIP-2, of which the vision tower is loaded, in float32.

    Attributes:
        num_features: F.
    """

    def __init__(self, model: str, device: str, max_cached_bytes: int = MAX_CACHED_BYTES) -> None:
        self._reader, self._tower = _load_tower(model)
        self._tower.requires_grad_(False).eval()
        self._device = device
        self.num_features = int(self._tower.config.hidden_size)
        self.kept: Recent[Tensor] = Recent(max_cached_bytes, lambda features: features.nbytes)
        self._lock = threading.Lock()

    def read(self, data: bytes) -> Tensor:
        """As BLIP-2's own processor resizes it."""
        return self._reader.read(data)

    def look(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """[F] float32 each, on the CPU. What is not kept is computed, each picture once."""
        keys = [pixel_key(picture) for picture in pictures]
        with self._lock:
            found = self.kept.get(keys)
            missing = {key: one for key, one in zip(keys, pictures, strict=True) if key not in found}
            found |= dict(zip(missing, self._computed(list(missing.values())), strict=True))
            for key in missing:
                self.kept.keep(key, found[key])
        return [found[key] for key in keys]

    @torch.no_grad()
    def _computed(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        rows: list[Tensor] = []
        self._tower.to(self._device)  # not before: ranks that are sent batches never look at a picture
        for start in range(0, len(pictures), BATCH):
            inputs = self._reader.inputs(pictures[start : start + BATCH])["pixel_values"]
            pooled = self._tower(pixel_values=inputs.to(self._device)).pooler_output
            rows += [row.clone() for row in pooled.float().cpu()]
        return rows

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """[pictures, 1, F]: a picture is one cell."""
        return torch.stack(list(seen))[:, None]


class LearningEyes(nn.Module):
    """A few convolutions that are trained with the policy; a picture is a grid of cells.

    Args:
        image_size: (width, height) of what it reads, in pixels.
    """

    def __init__(self, image_size: tuple[int, int], seed: int) -> None:
        super().__init__()
        self._image_size = image_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.stem = ConvStem(image_size, STEM_CHANNELS, STEM_STRIDES)
        self.num_features = STEM_CHANNELS[-1]

    def read(self, data: bytes) -> Tensor:
        """At the configured size."""
        return decode_image(data, self._image_size)

    def look(self, pictures: Sequence[Tensor]) -> list[Tensor]:
        """The pixels themselves."""
        return list(pictures)

    def features(self, seen: Sequence[Tensor]) -> Tensor:
        """[pictures, rows · columns, F]."""
        grid: Tensor = self.stem(torch.stack(list(seen)))
        return grid.flatten(2).transpose(1, 2)


def empty_tower(model: str) -> Any:
    """The vision tower of a BLIP-2 by the sizes in its config.json, on the meta device; or PolicyError."""
    from transformers import Blip2VisionModel

    with torch.device("meta"):
        return Blip2VisionModel(read_config(KEY, model, "blip-2", REMEDY).vision_config)


def _load_tower(model: str) -> tuple[ImageReader, Any]:
    """The image processor and the vision tower of a BLIP-2; its language model is not read."""
    from transformers import AutoImageProcessor

    tower = empty_tower(model)
    with loading(KEY, model, REMEDY):
        processor = AutoImageProcessor.from_pretrained(model, backend="pil")
    tensors = {name: x.float() for name, x in read_tensors(KEY, model, REMEDY, VISION_PREFIX).items()}
    if problem := weights_io.mismatch(tower.state_dict(), tensors):
        raise PolicyError(f"{KEY} {model!r} does not fit: {problem}.", REMEDY)
    tower.load_state_dict(tensors, assign=True)
    return ImageReader(processor), tower


WEIGHTS_FILE = "weights.safetensors"
ADDED_FILE = "fusion.safetensors"
"""What is trained beside an adapter."""


class AutoUIPolicy(Policy):
    """T5 with AutoUI's fusion of image features, fully trained or by LoRA.

    With LoRA the T5 gets adapters, and the fusion is trained as it is: it is small, and new to a plain T5.

    Args:
        seed: Seed of what is not loaded: adapters, a new fusion, the small encoder of pictures.
    """

    name = "autoui"

    def __init__(self, config: AutoUIOptions, words: Sequence[str], seed: int) -> None:
        from transformers import AutoTokenizer

        super().__init__()
        self.config = config
        source = located("policy.model", config.model)
        with loading("policy.model", source, T5_REMEDY):
            self.tokenizer: Any = AutoTokenizer.from_pretrained(source)
        self._control_tokens = ControlTokens(self.tokenizer)
        self.eyes: FrozenEyes | LearningEyes
        if config.image_features is None:
            self.eyes = LearningEyes(config.image_size, seed)
        else:
            self.eyes = FrozenEyes(located(KEY, config.image_features), resolve_device(config.device))
        dtype = number_format(config.dtype, config.device)
        self.model = load_model(source, self.eyes.num_features, dtype, seed)
        if config.lora is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.adapter = attach_adapter(self.model.t5, config.lora)
        self._checkpointed = checkpointed_layers(self.model.t5) if config.gradient_checkpointing else []
        self._start_id = int(self.model.t5.config.decoder_start_token_id or 0)
        self.end_ids = [int(self.tokenizer.eos_token_id)]
        self.num_tokens = int(self.model.t5.config.vocab_size)  # T5's spare rows included
        self.state_size = int(self.model.t5.config.d_model)
        self.max_prompt_tokens = config.max_prompt_tokens
        allowed = writable_tokens(self.tokenizer, self.num_tokens, self.end_ids)
        self.register_buffer("_allowed", allowed, persistent=False)

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """Tokens of all text parts in order, then the end token; pictures are not among them.

        An end token that the text itself ends with is kept, as DigiRL's prompts have it.
        """
        parts = [part for message in messages for part in message.parts]
        if not any(isinstance(part, ImagePart) for part in parts):
            raise PolicyError("The chat shows no picture.", "Use an agent that shows the screen.")
        text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
        end = self.tokenizer.eos_token if text.endswith(self.tokenizer.eos_token) else ""
        (apart,) = self._control_tokens.apart([text.removesuffix(end)])
        ids: list[int] = self.tokenizer(apart + end)["input_ids"]
        remedy = "Raise the limit, or let the agent show fewer actions (agent.options.history)."
        check_length(ids, self.config.max_prompt_tokens, "tokens", remedy)
        return ids

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        """Tokens of the text and the end token."""
        (apart,) = self._control_tokens.apart([text])
        ids: list[int] = self.tokenizer(apart, add_special_tokens=False)["input_ids"]
        if not bool(self._allowed[ids].all()):  # type: ignore[index]
            raise PolicyError(
                f"{text!r:.200} cannot be written with the tokens of policy.model.",
                "Use a notation without characters that T5 cannot write (agent.options.notation: autoui).",
            )
        return [*ids, *self.end_ids]

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        decoded: str = self.tokenizer.decode(
            list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return decoded

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8, at the size of BLIP-2 or of the small encoder."""
        return self.eyes.read(data)

    def verify(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        """As in `Policy`; a prompt has a picture at least."""
        super().verify(ids, images)
        if not images:
            raise PolicyError("The prompt shows no picture.", "Use an agent that shows the screen.")

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts on the right and looks at the pictures; no sequences."""
        assert places is None, "AutoUI reads one prompt at a time"
        input_ids, mask = pad_right(prompts, self.tokenizer.pad_token_id)
        seen = iter(self.eyes.look([picture for pictures in images for picture in pictures]))
        beside = Pictures([[next(seen) for _ in pictures] for pictures in images])
        return PromptBatch(input_ids, mask, beside).to(self.device)

    def _encode(self, batch: PromptBatch) -> tuple[Tensor, States]:
        """What the decoder reads, [N, P, d], and what the critic reads: the pictures' cells before it."""
        assert isinstance(batch.images, Pictures)
        seen, index = batch.images.distinct_on(self.device)
        features = self.eyes.features(seen).to(self.model.gate_dense.weight.dtype)
        num_cells, counts = features.shape[1], [len(row) for row in batch.images.rows]
        width = max(self.config.attended_images, *counts)
        cells = features.new_zeros(len(counts), width, *features.shape[1:])
        real = torch.zeros(len(counts), width, dtype=torch.int64)
        for row, count in enumerate(counts):
            real[row, width - count :] = 1
        rows, columns = real.nonzero(as_tuple=True)
        cells[rows.to(self.device), columns.to(self.device)] = features.index_select(0, index)
        images = self.model.image_dense(cells.flatten(1, 2))
        with recomputed(self._checkpointed):
            text = self.model.encode(
                batch.input_ids, batch.attention_mask, images[:, -self.config.attended_images * num_cells :]
            )
        shown = real.repeat_interleave(num_cells, dim=1).to(self.device)
        states = torch.cat([images, text], dim=1)
        return text, States(states, torch.cat([shown, batch.attention_mask], dim=1))

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples with a key-value cache until every row has ended or has its `max_new_tokens`."""
        states, _ = self._encode(batch)
        temperature = sampling_temperature(sampling, self.device)
        num_tokens = max(s.max_new_tokens for s in sampling)
        decoding = T5Decoding(self.model.t5.decoder, states, batch.attention_mask, num_tokens)

        def next_log_probs(last: Tensor) -> Tensor:
            logits = self.model.logits(decoding(last))
            return token_log_probs(logits, self._allowed, temperature)  # type: ignore[arg-type]

        first = torch.full((len(sampling),), self._start_id, dtype=torch.int64, device=self.device)
        return decode(next_log_probs, first, self.end_ids, sampling, generator)

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass of encoder and decoder; logits are computed at real tokens only."""
        states, seen = self._encode(batch)
        start = torch.full_like(completions[:, :1], self._start_id)
        with recomputed(self._checkpointed):
            out = self.model.decode(
                torch.cat([start, completions[:, :-1]], dim=1), states, batch.attention_mask
            )
        logprobs, entropy = score_tokens(
            self.model.t5.lm_head,
            out.last_hidden_state[mask] * self.model.scale,
            completions,
            mask,
            self._allowed,  # type: ignore[arg-type]
            temperature,
        )
        return TokenScores(logprobs, entropy, States(seen.hidden.detach(), seen.mask))

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The pictures' projected features, then the encoder's states as the decoder reads them."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return self._encode(batch)[1]

    def published_state(self) -> dict[str, Tensor]:
        """All weights that are trained: T5's or its adapter's, the fusion's, the small encoder's."""
        return {**super().published_state(), **({} if self.adapter is None else self._added_state())}

    def _added_state(self) -> dict[str, Tensor]:
        """What is trained beside an adapter."""
        trained = weights_io.trained_state(self)
        return {name: tensor for name, tensor in trained.items() if not name.startswith("model.t5.")}

    def save(self, directory: Path) -> None:
        """All that is trained: in one file, or a PEFT adapter directory with the rest in a file beside it."""
        directory.mkdir(parents=True, exist_ok=True)
        self.tokenizer.save_pretrained(str(directory))
        if self.adapter is None:
            weights_io.write(directory / WEIGHTS_FILE, self.published_state())
        else:
            self.adapter.save(directory)
            weights_io.write(directory / ADDED_FILE, self._added_state())

    def load(self, directory: Path) -> None:
        files = [WEIGHTS_FILE] if self.adapter is None else [ADAPTER_FILE, ADDED_FILE]
        weights_io.load_into(self.published_state(), *(directory / file for file in files))

    def export(self, directory: Path) -> None:
        """Writes AutoUI's layout, which its code and DigiRL's read; PolicyError with the small encoder."""
        if isinstance(self.eyes, LearningEyes):
            raise PolicyError(
                "A policy with the small image encoder cannot be exported as an AutoUI model.",
                "Use its checkpoint as it is, or train with policy.image_features.",
            )
        t5 = self.model.t5 if self.adapter is None else self.adapter.merge()
        write_model(self.model, t5, directory)
        self.tokenizer.save_pretrained(str(directory))
