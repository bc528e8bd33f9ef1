"""What every policy offers to the inference engine (generate) and to the learner (score, train, publish).

Prompts and completions are token ids. An engine tokenises a chat once; the ids travel with the trajectory and
the learner rebuilds the very same inputs from ids and image bytes. Nothing is tokenised twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from distrl.core.errors import PolicyError
from distrl.core.types import ChatMessage, Sampling


@dataclass
class Pictures:
    """Pictures of B prompts, any number and any sizes.

    Attributes:
        rows: Each prompt's pictures in order of appearance, [3, H, W] uint8 each.
    """

    rows: list[list[Tensor]]

    def to(self, device: torch.device | str) -> Pictures:
        """The same pictures on `device`."""
        return Pictures([[picture.to(device) for picture in row] for row in self.rows])

    def __getitem__(self, rows: Tensor) -> Pictures:
        """The pictures of some of the prompts; nothing is copied."""
        return Pictures([self.rows[row] for row in rows.tolist()])

    @property
    def flat(self) -> list[Tensor]:
        """All pictures, prompt by prompt."""
        return [picture for row in self.rows for picture in row]


@dataclass
class PromptBatch:
    """Model inputs of B prompts.

    Attributes:
        input_ids: [B, P] int64, padded.
        attention_mask: [B, P] int64, 1 where `input_ids` is real.
        images: [B, 3, H, W] uint8 for policies with one image of fixed size per prompt, else `Pictures`.
    """

    input_ids: Tensor
    attention_mask: Tensor
    images: Tensor | Pictures

    def to(self, device: torch.device | str) -> PromptBatch:
        """The same batch on `device`."""
        return PromptBatch(self.input_ids.to(device), self.attention_mask.to(device), self.images.to(device))

    def __len__(self) -> int:
        return int(self.input_ids.shape[0])

    def __getitem__(self, rows: Tensor) -> PromptBatch:
        """Some of the prompts, without the columns that are padding in all of them."""
        attention = self.attention_mask[rows]
        real = torch.nonzero(attention.any(0)).flatten()
        columns = slice(int(real[0]), int(real[-1]) + 1) if len(real) else slice(0, 0)
        return PromptBatch(self.input_ids[rows, columns], attention[:, columns], self.images[rows])


@dataclass
class Generated:
    """One sampled completion: token ids (end-of-sequence included when sampled) and log μ of each."""

    token_ids: list[int]
    logprobs: list[float]


@dataclass
class States:
    """What the policy makes of B prompts, for the critic to read; no gradient leads back to the policy.

    Attributes:
        hidden: [B, S, d] last hidden states at the S prompt positions, padded; the action is not in them.
        mask: [B, S] 1 where a position is real.
    """

    hidden: Tensor
    mask: Tensor

    def __getitem__(self, rows: Tensor) -> States:
        """The states of some of the prompts."""
        return States(self.hidden[rows], self.mask[rows])


@dataclass
class TokenScores:
    """Teacher-forced statistics of B completions of up to L tokens, at the sampling temperature.

    Attributes:
        logprobs: [B, L] log π of the given token.
        entropy: [B, L] exact entropy (nats) of the token distribution.
        states: The prompts' hidden states, from the same pass.
    """

    logprobs: Tensor
    entropy: Tensor
    states: States


class Policy(nn.Module, ABC):
    """A vision-language policy. All tensors it takes and returns live on `self.device`."""

    name: str

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the parameters are."""

    @property
    @abstractmethod
    def num_tokens(self) -> int:
        """Size of the vocabulary: every token id is below it."""

    @property
    def max_context_tokens(self) -> int | None:
        """How long a sequence may become, answers included; None where only its prompts are bounded."""
        return None

    @abstractmethod
    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """Tokenises a chat up to where the completion starts.

        Args:
            messages: The chat.
            images: Its pictures in order of appearance, as `image` gives them. Policies whose prompts have as
                many tokens whatever the picture do without.

        Raises:
            PolicyError: The chat is too long, or shows pictures that are not given.
        """

    def continuation_ids(
        self, prefix: Sequence[int], messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()
    ) -> list[int]:
        """The tokens that follow the sequence `prefix`, which ends with a completion, when `messages` come.

        The prefix is not tokenised again, nor the text of its completion.

        Args:
            prefix: The token ids so far.
            messages: What comes next.
            images: The pictures of `messages`, as in `prompt_ids`.

        Raises:
            PolicyError: The policy reads one prompt at a time.
        """
        raise PolicyError(
            f"The policy {self.name!r} cannot go on with a sequence.", "Set agent.options.mode to history."
        )

    @abstractmethod
    def completion_ids(self, text: str) -> list[int]:
        """Tokenises a demonstration's answer, end-of-sequence appended."""

    @abstractmethod
    def text(self, token_ids: Sequence[int]) -> str:
        """Decodes a completion without special tokens."""

    @abstractmethod
    def image(self, data: bytes) -> Tensor:
        """Decodes encoded image bytes and resizes them to what the policy reads, [3, H, W] uint8.

        Raises:
            PolicyError: If `data` is no image, or one that the policy cannot read.
        """

    def with_images(
        self, prompt: Sequence[int], images: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[int]:
        """The prompt of the same words with other pictures, as many as before."""
        return list(prompt)

    @abstractmethod
    def collate(self, prompts: Sequence[Sequence[int]], images: Sequence[Sequence[Tensor]]) -> PromptBatch:
        """Pads prompts and stacks images (one list of images per prompt, in order of appearance)."""

    @abstractmethod
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples one completion per prompt, each with its own sampling parameters. No gradients."""

    @abstractmethod
    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """Teacher-forced log-probabilities and entropies, differentiable.

        Args:
            batch: B prompts.
            completions: [B, L] int64 sampled tokens, padded.
            mask: [B, L] bool, True where a token is real.
            temperature: [B] sampling temperatures; 0 (greedy) counts as 1.
        """

    @property
    @abstractmethod
    def state_size(self) -> int:
        """Size d of the hidden states."""

    @abstractmethod
    def states(self, batch: PromptBatch) -> States:
        """The prompts' hidden states, as `score` gives them, without an action to score."""

    @abstractmethod
    def published_kind(self) -> str:
        """ "full" or "adapter": what `published_state` holds."""

    @abstractmethod
    def published_state(self) -> dict[str, Tensor]:
        """The tensors that inference servers need: the adapter's, or all weights that training can change.

        A server has built the same policy from the same configuration, so what is frozen it has already.
        """

    def published_metadata(self) -> dict[str, str]:
        """Texts that travel with `published_state`: an adapter's PEFT configuration."""
        return {}

    @abstractmethod
    def load_published(self, state: dict[str, Tensor]) -> None:
        """Copies what `published_state` gave; the tensors of `state` may lie in memory that is read-only.

        Raises:
            PolicyError: Naming the first tensor that does not fit.
        """

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Writes weights (a PEFT adapter directory when training an adapter) and tokenizer files."""

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Reads what `save` wrote. Raises CheckpointError."""


class Critic(nn.Module, ABC):
    """State values from the policy's hidden states; its gradients end there and cannot harm the policy."""

    @abstractmethod
    def values(self, states: States, steps: Tensor) -> Tensor:
        """Logits of the expected discounted outcome V(s_t), [B]. `steps`: [B] int64 step index t."""

    @abstractmethod
    def trajectory_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of success given the last state and action, V_traj(s_{H-1}, a_{H-1}), [B]."""

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of the expected discounted outcome Q(s_t, a_t), [B], of actions as tokens.

        Raises:
            PolicyError: This critic was built without.
        """
        raise PolicyError("This critic has no action values.", "Set learner.aride.critic to 'v'.")
