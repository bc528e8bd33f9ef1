"""What every policy offers to the inference engine (generate) and to the learner (score, train, publish).

Prompts and completions are token ids. An engine tokenises a chat once; the ids travel with the trajectory and
the learner rebuilds the same inputs from ids and image bytes. Nothing is tokenised twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from distrl.core.errors import ContextFull, PolicyError
from distrl.core.model_points import Resize
from distrl.core.policies import weights_io
from distrl.core.policies.images import pixel_key
from distrl.core.types import ChatMessage, Sampling

if TYPE_CHECKING:
    from distrl.core.policies.adapters import AdapterHandle

CONFIG_KEY = "adapter_config"
"""Where `Policy.published_metadata` has an adapter's PEFT configuration."""


class LoraOptions(Protocol):
    """Low-rank adapters; see `distrl.configs.policy.LoraConfig`."""

    rank: int
    alpha: float
    targets: list[str] | None
    vision: bool
    experts: bool


class PolicyOptions(Protocol):
    """Common keys of all policies; see `distrl.configs.policy`."""

    device: str
    max_prompt_tokens: int
    lora: Any  # LoraOptions or None


class PretrainedOptions(PolicyOptions, Protocol):
    """Keys of models that are loaded with transformers."""

    model: str
    dtype: Any  # a name of a number format
    gradient_checkpointing: bool


@dataclass
class Pictures:
    """Pictures of B prompts, any number and any sizes.

    They stay in main memory, whichever device the batch is on: a batch of whole episodes may show more than a
    GPU has room for beside a model, and a pass reads some of them (`on`).

    Attributes:
        rows: Each prompt's pictures in order of appearance: [3, H, W] uint8 each, or what the policy that
            made the batch keeps of them.
        digests: Of the encoded pictures, if they are known.
    """

    rows: list[list[Tensor]]
    digests: list[list[str]] | None = None

    def __getitem__(self, rows: Tensor) -> Pictures:
        """The pictures of some of the prompts; nothing is copied."""
        places, digests = rows.tolist(), self.digests
        return Pictures(
            [self.rows[row] for row in places], None if digests is None else [digests[row] for row in places]
        )

    @property
    def keys(self) -> list[Hashable]:
        """What tells the pictures apart, prompt by prompt: digests of encoded pictures, or of pixels."""
        if self.digests is not None:
            return [digest for row in self.digests for digest in row]
        return [pixel_key(picture) for picture in self.flat]

    @property
    def flat(self) -> list[Tensor]:
        """All pictures, prompt by prompt."""
        return [picture for row in self.rows for picture in row]

    def on(self, device: torch.device | str) -> list[Tensor]:
        """All pictures on `device`, prompt by prompt."""
        return [picture.to(device) for picture in self.flat]

    def distinct_on(self, device: torch.device | str) -> tuple[list[Tensor], Tensor]:
        """Each picture once, so that what is computed from it is computed once.

        Screens repeat within a batch of episodes, and caches give the same tensor for the same bytes.

        Returns:
            The distinct pictures on `device`, and [number of all pictures] int64, the place of each picture
            of `flat` among them, on `device`.
        """
        flat = self.flat
        distinct = {id(picture): picture for picture in flat}
        places = {key: place for place, key in enumerate(distinct)}
        index = torch.tensor([places[id(picture)] for picture in flat], dtype=torch.int64)
        return [picture.to(device) for picture in distinct.values()], index.to(device)


@dataclass
class PromptBatch:
    """What a policy knew when it wrote the answers of N steps.

    Row n of `input_ids` is the prompt of step n, and its answer is given apart. Or, with `token_rows` and
    `token_places`, R token sequences hold the answers themselves: token l of step n is
    `input_ids[token_rows[n, l], token_places[n, l]]`, and what the policy knew lies before it. So an episode
    in which every prompt continues the answer before it is one sequence, and a step may have several
    answers.

    Attributes:
        input_ids: [N, P] or [R, S] int64, padded.
        attention_mask: The same shape, int64, 1 where `input_ids` is real.
        images: Of the prompts or sequences: `Pictures`, or [N, 3, H, W] uint8 where a policy of your own
            reads one image of fixed size per prompt.
        token_rows, token_places: [N, L] int64 or None. Padding repeats a step's first token.
    """

    input_ids: Tensor
    attention_mask: Tensor
    images: Tensor | Pictures
    token_rows: Tensor | None = None
    token_places: Tensor | None = None

    def to(self, device: torch.device | str) -> PromptBatch:
        """The same batch on `device`; `Pictures` stay in main memory."""
        return PromptBatch(
            self.input_ids.to(device),
            self.attention_mask.to(device),
            self.images.to(device) if isinstance(self.images, Tensor) else self.images,
            None if self.token_rows is None else self.token_rows.to(device),
            None if self.token_places is None else self.token_places.to(device),
        )

    def __len__(self) -> int:
        return int((self.input_ids if self.token_rows is None else self.token_rows).shape[0])

    @property
    def rows(self) -> Tensor | None:
        """[N] int64, the sequence in which each step begins; None without sequences."""
        return None if self.token_rows is None else self.token_rows[:, 0]

    @property
    def starts(self) -> Tensor | None:
        """[N] int64, where each step's first token is in its sequence; None without sequences."""
        return None if self.token_places is None else self.token_places[:, 0]

    def __getitem__(self, steps: Tensor) -> PromptBatch:
        """Some of the steps, without the sequences and columns that none of them needs."""
        if self.token_rows is None or self.token_places is None:
            used, rows, places = steps, None, None
        else:
            used, rows = torch.unique(self.token_rows[steps], return_inverse=True)
            places = self.token_places[steps]
        attention = self.attention_mask[used]
        real = torch.nonzero(attention.any(0)).flatten()
        columns = slice(int(real[0]), int(real[-1]) + 1) if len(real) else slice(0, 0)
        return PromptBatch(
            self.input_ids[used, columns],
            attention[:, columns],
            self.images[used],
            rows,
            None if places is None else places - columns.start,
        )


@dataclass
class Generated:
    """One sampled completion: token ids (end-of-sequence included when sampled) and log μ of each.

    `top` has, for each token, the `Sampling.top_logprobs` most probable ones with their log-probabilities.
    """

    token_ids: list[int]
    logprobs: list[float]
    top: list[tuple[tuple[int, float], ...]] = field(default_factory=list)


@dataclass
class States:
    """What the policy makes of N prompts, for a critic to read. Only `Policy.encode` gives gradients.

    Prompts may share a sequence: prompt n is then the first `ends[n]` positions of `hidden[rows[n]]`, whose
    states do not depend on what comes after them.

    Attributes:
        hidden: [N, S, d] last hidden states at the S prompt positions, padded; the action is not in them. Or
            [R, S, d], of R sequences.
        mask: [N, S] or [R, S], 1 where a position is real.
        rows, ends: [N] int64, or None if each prompt has its own row.
    """

    hidden: Tensor
    mask: Tensor
    rows: Tensor | None = None
    ends: Tensor | None = None

    def __getitem__(self, prompts: Tensor) -> States:
        """The states of some of the prompts; those of shared sequences are not copied."""
        if self.rows is None or self.ends is None:
            return States(self.hidden[prompts], self.mask[prompts])
        return States(self.hidden, self.mask, self.rows[prompts], self.ends[prompts])

    @property
    def last(self) -> Tensor:
        """[N, d], the state at each prompt's last position: it has seen all of the prompt."""
        if self.rows is not None and self.ends is not None:
            return self.hidden[self.rows, self.ends - 1]
        places = torch.arange(self.mask.shape[1], device=self.mask.device)
        ends = torch.where(self.mask > 0, places, -1).amax(dim=1)
        return self.hidden[torch.arange(len(ends), device=ends.device), ends]


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


def check_heads(d_model: int, num_heads: int) -> None:
    """Refuses a width that does not divide into attention heads."""
    if d_model % num_heads:
        raise PolicyError(
            f"policy.d_model {d_model} is not a multiple of policy.num_heads {num_heads}.",
            "Choose sizes that divide.",
        )


Place = tuple[int, int]
"""Where a token is: its sequence, and its position there."""


def check_length(ids: Sequence[int], limit: int | None, unit: str, remedy: str = "Raise the limit.") -> None:
    """Raises ContextFull if a prompt has more than `limit` tokens, which are called `unit`."""
    if limit is not None and len(ids) > limit:
        raise ContextFull(
            f"The prompt has {len(ids)} {unit}, more than policy.max_prompt_tokens {limit}.", remedy
        )


def pad_right(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """`input_ids` and `attention_mask` of a `PromptBatch` for encoders, [N, P] each."""
    rows = [torch.from_numpy(np.array(ids, np.int64)) for ids in prompts]  # torch.tensor is slower
    input_ids = pad_sequence(rows, batch_first=True, padding_value=pad_id)
    lengths = torch.tensor([len(row) for row in rows])
    return input_ids, (torch.arange(input_ids.shape[1]) < lengths[:, None]).to(torch.int64)


class Policy(nn.Module, ABC):
    """A vision-language policy. All tensors it takes and returns live on `self.device`.

    Attributes:
        num_tokens: Size of the vocabulary: every token id is below it.
        end_ids: The tokens that end a completion.
        state_size: Size d of the hidden states.
        max_prompt_tokens: How long a prompt that begins a sequence may be; None without a bound.
        max_context_tokens: How long a sequence may become, answers included; None where only prompts are
            bounded.
        reads_sequences: Whether it scores answers inside of sequences; see `PromptBatch`.
        adapter: The LoRA adapter that is trained and published instead of all weights.
        is_joint: Whether ranks of a learner gather weights or add up gradients layer by layer, so that
            every rank must call the same layers, whatever its batch is.
    """

    name: str
    num_tokens: int
    end_ids: Sequence[int]
    state_size: int
    max_prompt_tokens: int | None = None
    max_context_tokens: int | None = None
    reads_sequences = False
    adapter: AdapterHandle | None = None
    is_joint = False

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    def max_sequence_tokens(self, max_new_tokens: int) -> int | None:
        """How long a sequence may become with answers of `max_new_tokens`; None: without a bound."""
        if self.max_context_tokens is not None or self.max_prompt_tokens is None:
            return self.max_context_tokens
        return self.max_prompt_tokens + max_new_tokens

    @abstractmethod
    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """Tokenises a chat up to where the completion starts.

        Args:
            images: Its pictures in order of appearance, as `image` gives them, for policies whose prompts
                depend on their sizes.

        Raises:
            PolicyError: The chat is too long, or shows pictures that are not given.
        """

    def continuation_ids(
        self, prefix: Sequence[int], messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()
    ) -> list[int]:
        """The tokens of `messages` after the sequence `prefix`, which ends with a completion.

        The prefix is not tokenised again, nor the text of its completion.

        Raises:
            PolicyError: The policy reads one prompt at a time.
        """
        raise PolicyError(
            f"The policy {self.name!r} cannot continue a sequence.", "Set agent.options.mode to history."
        )

    @abstractmethod
    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        """Tokenises a demonstration's answer, end-of-sequence appended.

        Args:
            prompt_ids: What it answers, for policies whose tokens mean something only there.
        """

    @abstractmethod
    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        """Decodes a completion of `prompt_ids` without special tokens."""

    @abstractmethod
    def image(self, data: bytes) -> Tensor:
        """Encoded image bytes at the size that the policy reads, [3, H, W] uint8; or PolicyError."""

    def verify(self, ids: Sequence[int], images: Sequence[Tensor]) -> None:
        """Refuses what this policy cannot have read and written.

        Args:
            ids: A prompt with its answer, or a whole sequence.

        Raises:
            PolicyError: A token is none of the policy's, or its placeholders are not those of the pictures.
        """
        if unknown := [token for token in ids if not 0 <= token < self.num_tokens]:
            raise PolicyError(
                f"Token {unknown[0]} is not one of the policy's {self.num_tokens} tokens.",
                "Use one policy configuration everywhere.",
            )

    def check_points(self, coordinates: str, resize: Resize) -> None:
        """Refuses an agent that reads points as pixels of pictures of another size than the model sees.

        Logs a warning for one that reads points in a notation that such models do not write as published.

        Args:
            coordinates: What the agent reads, "relative" or "absolute".
            resize: The size to which the agent assumes pictures are resized, for "absolute".
        """

    def with_images(
        self, prompt: Sequence[int], images: Sequence[Tensor], others: Sequence[Tensor]
    ) -> list[int]:
        """The prompt of the same words with other pictures, as many as before."""
        return list(prompt)

    @abstractmethod
    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts and stacks images.

        Args:
            prompts: Token ids of the prompts, or of sequences that have the answers in them.
            places: With sequences, where each token of each step is; only for policies that read sequences.
        """

    @abstractmethod
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        """Samples one completion per prompt, each with its own sampling parameters. No gradients.

        Of a batch of sequences, the prompt of a step is what lies before its first token.
        """

    @abstractmethod
    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """Teacher-forced log-probabilities and entropies, differentiable.

        Args:
            completions: [B, L] int64 sampled tokens, padded.
            mask: [B, L] bool, True where a token is real.
            temperature: [B] sampling temperatures; 0 (greedy) counts as 1.
        """

    @abstractmethod
    def states(self, batch: PromptBatch) -> States:
        """The prompts' hidden states, as `score` gives them, without an action to score."""

    def encode(self, batch: PromptBatch) -> States:
        """The same states with gradients, for a head that trains the policy; by default without."""
        return self.states(batch)

    def augmented(self) -> AbstractContextManager[None]:
        """A block in which `score` may vary what it reads, for cloning."""
        return nullcontext()

    def without_adapter(self) -> AbstractContextManager[None]:
        """A block in which the policy is the base model, as it was before its adapter was trained."""
        assert self.adapter is not None, "the configuration was checked"
        return self.adapter.disabled()

    @property
    def world(self) -> nn.Module | None:
        """The model of the world that it answers for (`distrl.core.world`), if it has one."""
        return None

    def published_kind(self) -> str:
        """ "full" or "adapter": what `published_state` holds."""
        return "full" if self.adapter is None else "adapter"

    def published_state(self) -> dict[str, Tensor]:
        """The tensors that inference servers need: the adapter's, or all weights that training can change.

        A server has built the same policy from the same configuration, so what is frozen it has already.
        """
        return weights_io.trained_state(self) if self.adapter is None else self.adapter.state()

    def published_metadata(self) -> dict[str, str]:
        """Texts that travel with `published_state`: an adapter's PEFT configuration."""
        return {} if self.adapter is None else {CONFIG_KEY: self.adapter.config_json()}

    def load_published(self, state: dict[str, Tensor]) -> None:
        """Copies what `published_state` gave; the tensors of `state` may lie in memory that is read-only.

        Nothing changes unless all of them fit.

        Raises:
            PolicyError: Naming the first tensor that does not fit.
        """
        weights_io.copy_into(self.published_state(), state)

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Writes weights (a PEFT adapter directory when training an adapter) and tokenizer files."""

    @abstractmethod
    def load(self, directory: Path) -> None:
        """Reads what `save` wrote. Raises CheckpointError."""

    def export(self, directory: Path) -> None:
        """Writes a model that transformers loads, an adapter merged for good; PolicyError if it is none."""
        raise PolicyError(
            f"The policy {self.name!r} is not a transformers model.", "Use its checkpoint as it is."
        )


class Critic(nn.Module, ABC):
    """State values from the policy's hidden states; its gradients end there and cannot harm the policy."""

    @abstractmethod
    def values(self, states: States, steps: Tensor) -> Tensor:
        """Logits of the expected discounted outcome V(s_t), [B]. `steps`: [B] int64 step index t."""

    @abstractmethod
    def trajectory_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of success given the last state and action, V_traj(s_{H-1}, a_{H-1}), [B]."""

    def action_values(self, states: States, steps: Tensor, completions: Tensor, mask: Tensor) -> Tensor:
        """Logits of Q(s_t, a_t), [B], of actions as tokens; PolicyError if built without."""
        raise PolicyError("This critic has no action values.", "Set learner.algorithm.critic to 'v'.")
