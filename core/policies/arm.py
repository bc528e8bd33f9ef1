"""The embedded policy of robot arms: a small convolutional network that writes a whole chunk in one pass.

    picture ─► convolutions, scaled by the sentence ─► cells, keypoints ┐
    sentence ─► mean of its words' vectors ─────────────────────────────┼─► layers ─► chunk × axes softmaxes
    state ─► a layer ───────────────────────────────────────────────────┘

It reads prompts of the agent `arm` as text: a prompt's tokens are the bytes of its UTF-8. All numbers of a
chunk are drawn at once, each from a softmax over its bins (parallel decoding, OpenVLA-OFT, Kim et al. 2025),
so that log π of a chunk is the sum of theirs. Keypoints are the expected places of softmaxes over the picture
(Levine et al. 2016). The camera does not move, so each cell of the picture has weights of its own, too.
Without pictures there are only the sentence and the state, and with `world` the policy also answers what a
motion does (`distrl.core.world`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.core import world
from distrl.core.errors import PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.arm_world import DOUBT, ArmWorld, Outlook
from distrl.core.policies.base import (
    Generated,
    Pictures,
    Place,
    Policy,
    PromptBatch,
    States,
    TokenScores,
    check_length,
    pad_right,
)
from distrl.core.policies.images import decode_image
from distrl.core.policies.sampling import decode, sampling_temperature, token_log_probs
from distrl.core.policies.tokenizer import check_words, save_words
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

MAX_WORDS, MAX_STATE = 32, 32
"""What is read of a prompt."""
WEIGHTS_FILE = "model.safetensors"
_UNKNOWN = 1  # the vector of words that are not in the vocabulary; 0 is padding
_DISGUISED = 0.1  # share of the words that cloning reads as unknown
_GROUPS = 4  # of channels that are normalised together
_UNITS = 5.0  # in what measurements are read: metres of an arm are small numbers
_PROMPT = re.compile(r"Task: ([^\n]*)(?:\nState: ([-0-9. ]*))?(?:\nAnswer: ([0-9; ]*))?")
_GOES_ON, _SUCCESS, _UNSURE = range(3)  # the first token of what follows a motion; two for each number follow
_FAR = 100.0  # what is further away reads so: losses stay finite
_RANGE = 2.0  # of these numbers, in 16 bits: to 0.06 millimetres


class ArmOptions(Protocol):
    """The policy of robot arms; see `distrl.configs.policy.ArmConfig`."""

    image_size: tuple[int, int]
    max_prompt_tokens: int
    channels: int
    d_model: int
    chunk: int
    axes: int
    bins: int
    picture: bool
    world: int


class ArmPolicy(Policy):
    """About half a million parameters.

    Tokens of an answer are numbers of bins; those of its last number come `bins` later and so end it.

    Args:
        config: Sizes.
        words: The words of the training goals; all others share one vector.
        seed: Seed of the initial weights. Equal arguments give equal policies in every process.
    """

    name = "arm"

    def __init__(self, config: ArmOptions, words: Sequence[str], seed: int) -> None:
        super().__init__()
        self.config = config
        self.words = sorted({word.lower() for word in words})
        self._word_ids = {word: place for place, word in enumerate(self.words, _UNKNOWN + 1)}
        self._is_augmented = False
        self._length = config.chunk * config.axes
        c, d = config.channels, config.d_model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.table = nn.Embedding(_UNKNOWN + 1 + len(self.words), c, padding_idx=0)
            if config.picture:
                self.look = nn.Sequential(
                    nn.Conv2d(3, c // 2, 5, stride=2, padding=2), nn.ReLU(),
                    nn.Conv2d(c // 2, c, 3, stride=2, padding=1), nn.ReLU(),
                )  # fmt: skip
                self.even = nn.GroupNorm(_GROUPS, c)
                self.search = nn.ModuleList(nn.Conv2d(c, c, 3, padding=1) for _ in range(2))
                self.scale = nn.Linear(c, 4 * c)
                nn.init.zeros_(self.scale.weight)
                nn.init.zeros_(self.scale.bias)
                self.points = nn.Conv2d(c, c, 1)
                self.shrink = nn.Conv2d(c, c, 3, stride=2, padding=1)
                width, height = (-(-side // 8) for side in config.image_size)
                self.read_cells = nn.Linear(c * width * height, d)
            self.read_state = nn.Linear(MAX_STATE, c)
            self.join = nn.Linear((5 if config.picture else 2) * c, d)
            self.layers = nn.ModuleList(
                nn.Sequential(nn.LayerNorm(d), nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)) for _ in range(2)
            )
            self.norm = nn.LayerNorm(d)
            self.head = nn.Linear(d, self._length * config.bins)
            nn.init.zeros_(self.head.weight)
            if config.world:
                size = (len(self.words) + 2, MAX_STATE, self._length)
                self.foresight = ArmWorld(config.world, d, *size)
        self.num_tokens, self.state_size = max(256, 2 * config.bins), d
        self.max_prompt_tokens = config.max_prompt_tokens
        self.end_ids = range(config.bins, 2 * config.bins)

    # ---- texts and tokens ----

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """The bytes of the text."""
        parts = [part for message in messages for part in message.parts]
        text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
        num_shown = sum(isinstance(part, ImagePart) for part in parts)
        found = _PROMPT.fullmatch(text)
        if num_shown != self.config.picture or not found or (found[3] is not None and not self.config.world):
            raise PolicyError(
                "The policy 'arm' reads only prompts of the agent 'arm'.", "Set agent.kind to 'arm'."
            )
        ids = list(text.encode("utf-8", "replace"))
        check_length(ids, self.config.max_prompt_tokens, "bytes")
        return ids

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        """The bins of an answer of the agent `arm`, or what follows a motion."""
        if prompt_ids and _read(bytes(prompt_ids)).motion is not None:
            if text == world.SUCCESS:
                return [_SUCCESS]
            return [_GOES_ON, *_as_bytes(_read(text.encode("utf-8", "replace")).state)]
        bins = [int(word) for word in re.findall(r"\d{1,4}", text)]
        if len(bins) != self._length or max(bins) >= self.config.bins:
            raise PolicyError(
                f"{text[:80]!r} is not a chunk of {self._length} numbers below {self.config.bins}.",
                "Set policy.chunk, axes and bins to those of agent.options, or remove them.",
            )
        return [*bins[:-1], bins[-1] + self.config.bins]

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        if prompt_ids and token_ids and (read := _read(bytes(prompt_ids))).motion is not None:
            if token_ids[0] == _SUCCESS:
                return world.SUCCESS
            state = " ".join(f"{number:.4f}" for number in _as_numbers(token_ids[1:]))
            return f"{world.UNSURE if token_ids[0] == _UNSURE else ''}Task: {read.sentence}\nState: {state}"
        bins = [str(token % self.config.bins) for token in token_ids]
        axes = self.config.axes
        return "; ".join(" ".join(bins[start : start + axes]) for start in range(0, len(bins), axes))

    def image(self, data: bytes) -> Tensor:
        """[3, H, W] uint8 at the configured image size."""
        return decode_image(data, self.config.image_size)

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts on the right; one image per prompt or none at all, and no sequences."""
        assert places is None, "the policy reads one prompt at a time"
        num = int(self.config.picture)
        if any(len(tensors) != num for tensors in images):
            raise PolicyError(f"The policy 'arm' reads {num} images per prompt.", "Send as many.")
        pictures = Pictures([list(tensors) for tensors in images])
        return PromptBatch(*pad_right(prompts, 0), pictures).to(self.device)

    def _prompts(self, batch: PromptBatch) -> list[_Prompt]:
        rows = batch.input_ids.to(torch.uint8).cpu().numpy()
        lengths = batch.attention_mask.sum(1).tolist()
        return [_read(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def _read(self, prompts: Sequence[_Prompt]) -> tuple[Tensor, Tensor]:
        """[N, MAX_WORDS] words and [N, MAX_STATE] measurements of the prompts."""
        words = torch.zeros(len(prompts), MAX_WORDS, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            found = [self._word_ids.get(word, _UNKNOWN) for word in prompt.words]
            words[row, : len(found)] = torch.tensor(found)
        return words.to(self.device), _padded([prompt.state for prompt in prompts], MAX_STATE, self.device)

    def _outlook(self, prompts: Sequence[_Prompt]) -> Outlook:
        """What follows the motions of prompts that have one."""
        words, state = self._read(prompts)
        wide = 2 / (self.config.bins - 1)
        motion = [[wide * number - 1 for number in one.motion or ()] for one in prompts]
        found: Outlook = self.foresight(state, words, _padded(motion, self._length, self.device))
        return found

    @property
    def world(self) -> ArmWorld | None:
        return self.foresight if self.config.world else None

    @contextmanager
    def augmented(self) -> Iterator[None]:
        """Reads some words as unknown ones."""
        self._is_augmented = True
        try:
            yield
        finally:
            self._is_augmented = False

    # ---- the network ----

    def _forward(self, batch: PromptBatch) -> Tensor:
        """[N, d] of the prompts."""
        words, state = self._read(self._prompts(batch))
        if self._is_augmented:
            is_hidden = (torch.rand(words.shape) < _DISGUISED).to(words.device) & (words > 0)
            words = words.masked_fill(is_hidden, _UNKNOWN)
        count = (words > 0).sum(1, keepdim=True).clamp(min=1)
        sentence = self.table(words).sum(1) / count.sqrt()
        measured = self.read_state(_UNITS * state)
        if self.config.picture:
            states = self._see(batch, sentence, measured)
        else:
            states = self.join(torch.cat([sentence, measured], dim=1))
        for block in self.layers:
            states = states + block(states)
        return self.norm(states)  # type: ignore[no-any-return]

    def _see(self, batch: PromptBatch, sentence: Tensor, measured: Tensor) -> Tensor:
        """[N, d] of the pictures, the sentences and the measurements."""
        assert isinstance(batch.images, Pictures)
        pixels = torch.stack(batch.images.flat).to(self.device)
        pixels = pixels.contiguous(memory_format=torch.channels_last)  # an eighth faster on CPUs
        features: Tensor = self.even(self.look(pixels.to(sentence.dtype).div_(127.5).sub_(1.0)))
        scales = self.scale(sentence)[..., None, None].chunk(4, dim=1)
        for layer, factor, shift in zip(self.search, scales[:2], scales[2:], strict=True):
            features = features + F.relu(layer(features) * (1 + factor) + shift)
        heat = self.points(features).flatten(2)
        rows, columns = (torch.linspace(-1, 1, size, device=heat.device) for size in features.shape[2:])
        grid = torch.cartesian_prod(rows, columns)  # [H · W, 2]
        places = (heat.softmax(-1) @ grid).flatten(1)
        seen = [places, heat.amax(-1), sentence, measured]
        cells = F.relu(self.shrink(features)).flatten(1)
        joined: Tensor = self.join(torch.cat(seen, dim=1)) + self.read_cells(cells)
        return joined

    def _logits(self, states: Tensor) -> Tensor:
        """[N, L, bins]."""
        logits: Tensor = self.head(states)
        return logits.view(len(states), self._length, self.config.bins)

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        prompts = self._prompts(batch)
        if asked := [row for row, prompt in enumerate(prompts) if prompt.motion is not None]:
            rest = [row for row, prompt in enumerate(prompts) if prompt.motion is None]
            found = dict(zip(asked, self._foresee([prompts[row] for row in asked]), strict=True))
            if rest:
                others = batch[torch.tensor(rest, device=batch.input_ids.device)]
                chosen = self.generate(others, [sampling[row] for row in rest], generator)
                found |= dict(zip(rest, chosen, strict=True))
            return [found[row] for row in range(len(prompts))]
        temperature = sampling_temperature(sampling, self.device)
        log_probs = token_log_probs(self._logits(self._forward(batch)), _ALL, temperature)
        log_probs = F.pad(log_probs, (0, self.config.bins), value=-torch.inf)
        log_probs[:, -1] = log_probs[:, -1].roll(self.config.bins, -1)
        positions = iter(log_probs.unbind(1))
        first = torch.zeros(len(sampling), dtype=torch.int64, device=self.device)
        return decode(lambda last: next(positions), first, frozenset(self.end_ids), sampling, generator)

    def _foresee(self, prompts: Sequence[_Prompt]) -> list[Generated]:
        """What follows motions: the networks' means, without log-probabilities, since nothing is drawn."""
        outlook = self._outlook(prompts)
        solved, states = outlook.success.sigmoid().mean(0) > 0.5, outlook.states.mean(0)
        found = []
        for row, prompt in enumerate(prompts):
            size = len(prompt.state)
            is_unsure = bool(ArmWorld.doubt(outlook, size)[row] > DOUBT)  # of success, too
            if solved[row] and not is_unsure:
                tokens = [_SUCCESS]
            else:
                tokens = [_UNSURE if is_unsure else _GOES_ON, *_as_bytes(states[row, :size].tolist())]
            found.append(Generated(tokens, [0.0] * len(tokens)))
        return found

    def _score_world(self, prompts: Sequence[_Prompt], completions: Tensor, mask: Tensor) -> TokenScores:
        """log p of success or none, and the numbers' log densities, each at the first of its two tokens."""
        outlook = self._outlook(prompts)
        answers = [row[keep].tolist() for row, keep in zip(completions.cpu(), mask.cpu(), strict=True)]
        after = _padded([_as_numbers(answer[1:]) for answer in answers], MAX_STATE, self.device)
        came, density = ArmWorld.log_density(outlook, after, completions[:, 0] == _SUCCESS)
        scores = torch.stack([density, torch.zeros_like(density)], dim=2).flatten(1)
        scores = torch.cat([came[:, None], scores], dim=1)[:, : mask.shape[1]]
        zero = torch.zeros_like(scores)
        hidden = zero.new_zeros(len(prompts), self.state_size)
        return TokenScores(torch.where(mask, scores, zero), zero, _states(hidden))

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass over the prompts: all with a motion and its answer by the model of the world, or none."""
        prompts = self._prompts(batch)
        if prompts[0].motion is not None:
            return self._score_world(prompts, completions, mask)
        states = self._forward(batch)
        log_probs = token_log_probs(self._logits(states), _ALL, temperature)[:, : completions.shape[1]]
        chosen = log_probs.gather(2, (completions % self.config.bins)[..., None]).squeeze(2)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        zero = torch.zeros_like(chosen)
        return TokenScores(
            torch.where(mask, chosen, zero), torch.where(mask, entropy, zero), _states(states.detach())
        )

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """One state for each prompt."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return _states(self._forward(batch))

    def save(self, directory: Path) -> None:
        """Writes model.safetensors and, with the vocabulary, tokenizer.json."""
        directory.mkdir(parents=True, exist_ok=True)
        weights_io.write(directory / WEIGHTS_FILE, self.state_dict())
        save_words(directory, self.name, self.words)

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote; the vocabulary there must be this policy's own."""
        check_words(directory, self.words)
        weights_io.load_into(self.state_dict(), directory / WEIGHTS_FILE)


_ALL = torch.tensor(True)


def _states(hidden: Tensor) -> States:
    return States(hidden[:, None], torch.ones(len(hidden), 1, dtype=torch.int64, device=hidden.device))


class _Prompt(NamedTuple):
    sentence: str = ""
    words: tuple[str, ...] = ()
    state: tuple[float, ...] = ()
    motion: tuple[int, ...] | None = None


@lru_cache(4096)
def _read(prompt: bytes) -> _Prompt:
    """What is read of a prompt; of bytes that are none, nothing."""
    found = _PROMPT.fullmatch(prompt.decode("utf-8", "replace"))
    if found is None:
        return _Prompt()
    numbers = re.findall(r"-?\d+\.\d+", found[2] or "")[:MAX_STATE]
    return _Prompt(
        found[1],
        tuple(re.findall(r"\w+", found[1].lower())[:MAX_WORDS]),
        tuple(min(max(float(number), -_FAR), _FAR) for number in numbers),
        None if found[3] is None else tuple(int(word) for word in re.findall(r"\d{1,4}", found[3])),
    )


def _padded(rows: Sequence[Sequence[float]], width: int, device: torch.device) -> Tensor:
    return torch.tensor([[*row, *[0.0] * (width - len(row))][:width] for row in rows], device=device)


def _as_bytes(numbers: Sequence[float]) -> list[int]:
    """Two bytes for each number."""
    steps = [round((min(max(x, -_RANGE), _RANGE) / _RANGE + 1) / 2 * 65535) for x in numbers]
    return [byte for step in steps for byte in divmod(step, 256)]


def _as_numbers(tokens: Sequence[int]) -> list[float]:
    pairs = zip(tokens[::2], tokens[1::2], strict=False)
    return [((256 * high + low) / 65535 * 2 - 1) * _RANGE for high, low in pairs]
