"""The trained judge's network: the encoder of a policy, and a head that pools its states into one logit."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from distrl.configs.policy import ChatPolicy, policy_config
from distrl.core.errors import CheckpointError, JudgeError
from distrl.core.files import write_atomically, write_bytes_atomically, writing
from distrl.core.policies import build_policy, weights_io
from distrl.core.policies.base import States
from distrl.core.types import ChatMessage, ImagePart, Number, Record, TextPart, image_digest
from distrl.evaluator.judges.local.data import Example, HoldOut
from distrl.evaluator.judges.local.prompt import Vocabulary

HEADS = 4
WIDTH = 32


class JudgeModel(nn.Module):
    """Attention pooling over the states of a prompt, as the critic's (`AttentionCritic`), and two layers.

    Args:
        config: The section `policy` of the encoder.
        vocabulary: The words that it reads.
        seed: Seed of the initial weights.
        cached: How many inputs are kept, for epochs that read the same.
    """

    def __init__(self, config: ChatPolicy, vocabulary: Vocabulary, seed: int, cached: int = 0) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.policy = build_policy(config, vocabulary.words, seed)
        d = self.policy.state_size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.norm = nn.LayerNorm(d)
            self.weigh, self.read = nn.Linear(d, HEADS), nn.Linear(d, WIDTH)
            self.head = nn.Sequential(nn.Linear(HEADS * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
        self.to(self.policy.device)
        self._image, self._read = lru_cache(cached)(self.policy.image), lru_cache(cached)(self._prompt)

    def forward(self, examples: Sequence[Example]) -> Tensor:
        """[B] logits of success.

        Raises:
            PolicyError: A screenshot is not a valid image, or the prompt is too long for the policy.
        """
        inputs = [self._read(example.words, example.screen) for example in examples]
        batch = self.policy.collate([ids for ids, _ in inputs], [[image] for _, image in inputs])
        return self._logits(self.policy.encode(batch))

    def _prompt(self, words: Sequence[str], screen: bytes) -> tuple[list[int], Tensor]:
        image = self._image(screen)
        parts = (ImagePart(digest=image_digest(screen)), TextPart(text=self.vocabulary.text(words)))
        return self.policy.prompt_ids([ChatMessage(role="user", parts=parts)], [image]), image

    def _logits(self, states: States) -> Tensor:
        hidden = self.norm(states.hidden.to(self.read.weight.dtype))
        scores = self.weigh(hidden).masked_fill(states.mask[..., None] == 0, float("-inf"))
        pooled = scores.softmax(dim=1).transpose(1, 2) @ self.read(hidden)
        logits: Tensor = self.head(pooled.flatten(1)).squeeze(1)
        return logits

    def state(self) -> dict[str, Tensor]:
        """What was trained: the head's weights, and the policy's or its adapter's."""
        own = {name: value for name, value in self.state_dict().items() if not name.startswith("policy.")}
        return own | {f"policy.{name}": value for name, value in self.policy.published_state().items()}


CARD_FILE = "judge.json"
WEIGHTS_FILE = "judge.safetensors"


class JudgeCard(Record):
    """What a trained judge is, and how it came about.

    Attributes:
        policy: The section of its encoder.
        words: Its vocabulary.
        temperature: Its logits are divided by this to be probabilities (Guo et al. 2017).
        threshold: From this probability on an episode counts as a success.
        seed: Of its weights and of the split.
        sources: The stores that it was fitted to.
        hold_out: What the parts of the split do not share.
        agreement: Share of the held-out episodes on which it agrees with ground truth.
    """

    version: Literal[4] = 4
    policy: dict[str, Any]
    words: tuple[str, ...]
    temperature: Number
    threshold: Number
    seed: int
    sources: tuple[str, ...]
    num_fitted: int
    num_calibration: int
    num_held_out: int
    hold_out: HoldOut
    agreement: Number


def write_judge(directory: Path, model: JudgeModel, card: JudgeCard) -> None:
    """Writes a trained judge; the card comes last.

    Raises:
        RunDirectoryError: The disk is full, or the directory not writable.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    weights = weights_io.to_bytes(weights_io.distinct(model.state()))
    write_bytes_atomically(directory / WEIGHTS_FILE, weights, is_durable=True)
    write_atomically(directory / CARD_FILE, card.model_dump_json(indent=2))


def read_judge(directory: Path) -> tuple[JudgeModel, JudgeCard]:
    """A trained judge, ready to judge.

    Raises:
        JudgeError: There is none, or it is damaged.
        PolicyError: Its encoder cannot be loaded.
    """
    if not (directory / CARD_FILE).is_file():
        raise JudgeError(
            f"{directory} holds no trained judge ({CARD_FILE} is missing).",
            "Train one with distrl train-judge, and set judge.path to its directory.",
        )
    try:
        card = JudgeCard.model_validate_json((directory / CARD_FILE).read_text(encoding="utf-8"))
        model = JudgeModel(policy_config(**card.policy), Vocabulary(card.words), card.seed)
        weights_io.load_into(weights_io.distinct(model.state()), directory / WEIGHTS_FILE)
    except (ValidationError, CheckpointError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise JudgeError(f"The judge in {directory} cannot be read: {reason}.", "Train it again.") from error
    return model.eval(), card
