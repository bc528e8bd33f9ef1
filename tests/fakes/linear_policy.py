"""A ten-line policy and critic behind the real interfaces."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.policies.base import Critic, Generated, Policy, PromptBatch, States, TokenScores
from distrl.core.types import ChatMessage, Sampling, TextPart

VOCABULARY = 8


def features(batch: PromptBatch) -> Tensor:
    """Eight numbers of a prompt: a bias, its first token one-hot, the picture's first pixel."""
    first = nn.functional.one_hot(batch.input_ids[:, 0] % 6, 6).float()
    pixel = batch.images.flatten(1)[:, :1].float() / 255
    return torch.cat([torch.ones(len(batch), 1), first, pixel], dim=1)


class LinearPolicy(Policy):
    """Every token's logits are a linear function of the prompt's features; tokens are independent."""

    name = "linear"

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, VOCABULARY, bias=False)
        nn.init.zeros_(self.head.weight)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def num_tokens(self) -> int:
        return VOCABULARY

    @property
    def end_ids(self) -> list[int]:
        return list(range(VOCABULARY))

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        return [int(p.text) for m in messages for p in m.parts if isinstance(p, TextPart)]

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        return [int(word) for word in text.split()]

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        return " ".join(str(token) for token in token_ids)

    def image(self, data: bytes) -> Tensor:
        try:
            picture = Image.open(io.BytesIO(data)).convert("RGB")
        except OSError as error:
            raise PolicyError(f"{len(data)} bytes are no picture.") from error
        return torch.tensor(np.asarray(picture)).permute(2, 0, 1)

    def collate(
        self, prompts: Sequence[Sequence[int]], images: Sequence[Sequence[Tensor]], places: object = None
    ) -> PromptBatch:
        size = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[*p, *[0] * (size - len(p))] for p in prompts])
        mask = torch.tensor([[1] * len(p) + [0] * (size - len(p)) for p in prompts])
        return PromptBatch(ids, mask, torch.stack([i[-1] for i in images]))

    def _logits(self, batch: PromptBatch, temperature: Tensor) -> Tensor:
        t = torch.where(temperature > 0, temperature, 1.0)
        out: Tensor = self.head(features(batch).to(self.head.weight.dtype)) / t[:, None]
        return out

    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        with torch.no_grad():
            log_p = self._logits(batch, torch.ones(len(batch))).log_softmax(-1)
        tokens = torch.multinomial(log_p.exp(), 1, generator=generator)[:, 0]
        if sampling[0].temperature == 0:
            tokens = log_p.argmax(-1)
        return [Generated([int(t)], [float(row[t])]) for t, row in zip(tokens, log_p, strict=True)]

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        log_p = self._logits(batch, temperature).log_softmax(-1)[:, None].expand(-1, mask.shape[1], -1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        return TokenScores(log_p.gather(-1, completions[..., None])[..., 0], entropy, self.states(batch))

    @property
    def state_size(self) -> int:
        return 8

    def states(self, batch: PromptBatch) -> States:
        return States(features(batch)[:, None], torch.ones(len(batch), 1))

    def published_kind(self) -> str:
        return "full"

    def published_state(self) -> dict[str, Tensor]:
        return dict(self.state_dict())

    def load_published(self, state: dict[str, Tensor]) -> None:
        self.load_state_dict(state)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), directory / "policy.pt")

    def load(self, directory: Path) -> None:
        self.load_state_dict(torch.load(directory / "policy.pt", weights_only=True))


class LinearCritic(Critic):
    """Values are linear in the prompt's features and the step index."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Linear(9, 1)
        self.trajectory = nn.Linear(9 + VOCABULARY, 1)

    def _state(self, states: States, steps: Tensor) -> Tensor:
        return torch.cat([states.hidden[:, 0], steps[:, None].float() / 10], dim=1).to(
            self.value.weight.dtype
        )

    def values(self, states: States, steps: Tensor) -> Tensor:
        out: Tensor = self.value(self._state(states, steps))[:, 0]
        return out

    def trajectory_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        action = nn.functional.one_hot(completions[:, 0], VOCABULARY).to(self.value.weight.dtype)
        out: Tensor = self.trajectory(torch.cat([self._state(states, steps), action], dim=1))[:, 0]
        return out


class LinearQCritic(LinearCritic):
    """With Q(s, a), linear in the same features and the first token."""

    def __init__(self) -> None:
        super().__init__()
        self.action = nn.Linear(9 + VOCABULARY, 1)

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        action = nn.functional.one_hot(completions[:, 0], VOCABULARY).to(self.value.weight.dtype)
        out: Tensor = self.action(torch.cat([self._state(states, steps), action], dim=1))[:, 0]
        return out
