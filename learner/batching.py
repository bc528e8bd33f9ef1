"""From episodes to tensors: N steps in a flat batch for the networks, and their places in [B, T].

Also here: a batch in parts that fit into memory (`pack`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from distrl.core.policies.base import Pictures, Place, Policy, PromptBatch
from distrl.core.policies.images import ImageCache
from distrl.learner.episodes import Episode, Span, StepData, TokenSequence

if TYPE_CHECKING:
    from distrl.learner.losses import Moments


@dataclass
class StepBatch:
    """N steps for the policy."""

    prompts: PromptBatch
    completions: Tensor  # [N, L] int64 action tokens, padded
    token_mask: Tensor  # [N, L] bool
    behaviour_logprobs: Tensor  # [N, L] log μ
    temperature: Tensor  # [N] at which they were sampled
    proximal_logprobs: Tensor | None = None  # [N, L] under the weights at the start of the batch
    reference_logprobs: Tensor | None = None  # [N, L] under the base model, without the adapter

    def __len__(self) -> int:
        return int(self.completions.shape[0])

    def __getitem__(self, rows: Tensor) -> StepBatch:
        chosen: dict[str, Any] = {name: None if x is None else x[rows] for name, x in vars(self).items()}
        return StepBatch(**chosen)


@dataclass(frozen=True)
class Whole:
    """The batch that a `TrajectoryBatch` is a rank's share of."""

    num_steps: int  # what losses are divided by
    num_trajectories: int
    num_tokens: int
    places: Tensor  # [b] int64, where the share's trajectories stand in it
    # Whether the share is but a stand-in: a rank for which there is none keeps in step with the others on a
    # trajectory whose losses count as 0.
    is_idle: bool = False


@dataclass
class TrajectoryBatch:
    """B whole trajectories of at most T steps, N steps in all."""

    ids: list[str]  # the same id may occur twice: sampling is with replacement
    steps: StepBatch  # the N steps, trajectory by trajectory
    row: Tensor  # [N] int64, the place of each step in the [B, T] layout
    col: Tensor  # [N] int64
    last: Tensor  # [B] int64, the position among the N steps of each trajectory's last step
    mask: Tensor  # [B, T] bool
    outcome: Tensor  # [B, T] one part of the reward
    penalty: Tensor  # [B, T] the other
    invalid: Tensor  # [N] float, 1 where the action was refused as invalid
    terminated: Tensor  # [B] bool
    success: Tensor  # [B] outcomes in [0, 1]; 0 for a branch that its horizon ended, see `is_open`
    imagined: Tensor  # [B] bool
    first_step: Tensor  # [B] int64, the step index t of each trajectory's first step
    final_prompts: PromptBatch | None  # the F states after a truncated episode's last action
    final_row: Tensor  # [F] int64, their trajectories
    final_step: Tensor  # [F] int64, the step index given to the critic
    oldest_version: Tensor  # [B] int64
    group_mean: Tensor  # [B] of the total rewards of each trajectory's group, see `GroupStats`
    group_std: Tensor  # [B]
    group_count: Tensor  # [B] int64, the members of that group; 1 for a trajectory without one
    old_values: Tensor | None = None  # [N] V(s_t) by the critic of when the episode was ingested
    old_bootstrap: Tensor | None = None  # [B] the same of the state after a cut
    # What advantages are normalised by, if not by those of the batch itself: several gradient steps on parts
    # of a batch take those of the whole.
    advantage_moments: Moments | None = None
    whole: Whole | None = None  # the batch that this is a share of, if it is one
    demonstrated: StepBatch | None = None  # steps of demonstrations to clone in the same gradient step

    @property
    def num_steps(self) -> int:
        """N, or that of the whole batch: what a sum over steps is divided by."""
        return len(self.steps) if self.whole is None else self.whole.num_steps

    @property
    def num_trajectories(self) -> int:
        """B, or that of the whole batch: what a sum over trajectories is divided by."""
        return len(self.ids) if self.whole is None else self.whole.num_trajectories

    @property
    def num_tokens(self) -> int:
        """Of all actions, or those of the whole batch: what a sum over tokens is divided by."""
        return int(self.steps.token_mask.sum()) if self.whole is None else self.whole.num_tokens

    @property
    def times(self) -> Tensor:
        """[N] int64, the step index t of each step."""
        return self.col + self.first_step[self.row]

    @property
    def is_open(self) -> Tensor:
        """[B] bool: imagined, and cut off before there was an outcome."""
        return self.imagined & ~self.terminated

    @property
    def counted(self) -> Tensor:
        """[B, T] bool: what statistics over a batch are of; `mask`, or nothing in a stand-in."""
        return torch.zeros_like(self.mask) if self.is_idle else self.mask

    @property
    def is_idle(self) -> bool:
        """Whether it is a stand-in, see `Whole`."""
        return self.whole is not None and self.whole.is_idle

    def grid(self, flat: Tensor) -> Tensor:
        """[N] → [B, T], 0 at padding."""
        out = torch.zeros(self.mask.shape, dtype=flat.dtype, device=flat.device)
        out[self.row, self.col] = flat
        return out

    def flat(self, grid: Tensor) -> Tensor:
        """[B, T] → [N]."""
        return grid[self.row, self.col]

    def row_mean(self, flat: Tensor) -> Tensor:
        """[N] → [B], the mean over each trajectory's steps."""
        return self.grid(flat).sum(dim=1) / self.mask.sum(dim=1).clamp(min=1)

    @property
    def first(self) -> Tensor:
        """[B] int64, the position among the N steps of each trajectory's first step."""
        return self.last - self.mask.sum(dim=1) + 1

    def part(self, rows: Tensor) -> TrajectoryBatch:
        """The batch of some trajectories, in the order of `rows`, [b] int64 without repetition.

        It counts for itself; `share` gives a part whose losses add up with those of the others.
        """
        pairs = zip(self.first[rows].tolist(), self.last[rows].tolist(), strict=True)
        kept = torch.cat([torch.arange(a, b + 1, device=rows.device) for a, b in pairs])
        lengths = self.mask[rows].sum(dim=1)
        place = torch.full_like(self.last, -1)
        place[rows] = torch.arange(len(rows), device=rows.device)
        cut = torch.nonzero(place[self.final_row] >= 0).squeeze(1)
        cut = cut[place[self.final_row[cut]].argsort()]
        by_row = ["mask", "outcome", "penalty", "terminated", "success", "oldest_version"]
        by_row += ["imagined", "first_step"]
        by_row += ["group_mean", "group_std", "group_count"]
        final = self.final_prompts
        return replace(
            self,
            ids=[self.ids[row] for row in rows.tolist()],
            steps=self.steps[kept],
            row=place[self.row[kept]],
            col=self.col[kept],
            last=torch.cumsum(lengths, 0) - 1,
            invalid=self.invalid[kept],
            final_prompts=final[cut] if final is not None and len(cut) else None,
            final_row=place[self.final_row[cut]],
            final_step=self.final_step[cut],
            old_values=None if self.old_values is None else self.old_values[kept],
            old_bootstrap=None if self.old_bootstrap is None else self.old_bootstrap[rows],
            whole=None,
            **{name: getattr(self, name)[rows] for name in by_row},
        )

    def share(self, rows: Tensor) -> TrajectoryBatch:
        """`part(rows)` as the share of a rank: it is divided by the counts of this batch.

        Args:
            rows: [b] int64; without any, the share is a stand-in that adds nothing.
        """
        is_idle = len(rows) == 0
        rows = rows.new_zeros(1) if is_idle else rows
        whole = Whole(self.num_steps, self.num_trajectories, self.num_tokens, rows, is_idle)
        return replace(self.part(rows.to(self.mask.device)), whole=whole)


def to_device(batch: StepBatch | TrajectoryBatch, device: torch.device) -> None:
    """Moves every tensor of `batch` to `device`, in place."""
    for item in fields(batch):
        value = getattr(batch, item.name)
        if isinstance(value, Tensor | PromptBatch):
            setattr(batch, item.name, value.to(device))
        elif isinstance(value, StepBatch):
            to_device(value, device)


# ---- parts that fit into memory ----


def pack(steps: StepBatch, max_tokens: int | None) -> list[Tensor]:
    """Parts of N steps, [n] int64 each, ascending; every step is in one of them.

    A pass over a part has at most `max_tokens` tokens, prompts, actions and padding together, unless a single
    sequence is longer, which is a part of its own. Steps that share a sequence stay together.

    Tokens are what memory grows with, and steps differ in them by an order of magnitude: between a thumbnail
    and a screenshot, or between the first step of a chat and its last. Steps of about the same length are put
    together, so that little is padding.
    """
    num_steps = len(steps)
    if max_tokens is None or num_steps == 0:
        return [torch.arange(num_steps)]
    lengths = steps.prompts.attention_mask.sum(dim=1).tolist()
    rows = steps.prompts.token_rows
    if rows is None:
        actions = steps.token_mask.sum(dim=1).tolist()
        units = [_Unit([n], 1, p, a) for n, (p, a) in enumerate(zip(lengths, actions, strict=True))]
    else:  # the actions are in the sequences
        units = _units(rows.tolist(), lengths)
    if _tokens(units) <= max_tokens:
        return [torch.arange(num_steps)]
    return [
        torch.tensor(sorted(n for unit in part for n in unit.steps)) for part in _parts(units, max_tokens)
    ]


class _Unit(NamedTuple):
    """Steps that must be in one pass, and what they take there: sequences, and the longest one's tokens."""

    steps: list[int]
    num_sequences: int
    prompt: int
    action: int


def _units(rows: list[list[int]], lengths: list[int]) -> list[_Unit]:
    """Steps that share a sequence, directly or by others between them, together."""
    found: list[tuple[list[int], set[int]]] = []
    for step, row in enumerate(rows):
        steps, sequences = [step], set(row)
        apart = []
        for unit in found:
            if sequences.isdisjoint(unit[1]):
                apart.append(unit)
            else:
                steps, sequences = unit[0] + steps, sequences | unit[1]
        found = [*apart, (steps, sequences)]
    return [_Unit(steps, len(some), max(lengths[row] for row in some), 0) for steps, some in found]


def _tokens(units: list[_Unit]) -> int:
    """What a pass over `units` takes, padding included."""
    width = max(unit.prompt for unit in units) + max(unit.action for unit in units)
    return width * sum(unit.num_sequences for unit in units)


def _parts(units: list[_Unit], max_tokens: int) -> list[list[_Unit]]:
    """Units of about the same length in parts, the longest first."""
    parts: list[list[_Unit]] = []
    for unit in sorted(units, key=lambda unit: unit.prompt + unit.action, reverse=True):
        if parts and _tokens([*parts[-1], unit]) <= max_tokens:
            parts[-1].append(unit)
        else:
            parts.append([unit])
    return parts


def trimmed(steps: StepBatch) -> StepBatch:
    """The same steps without the columns of tokens that are padding in all of them."""
    length = int(steps.token_mask.sum(dim=1).max()) if len(steps) else 0
    prompts, rows, places = steps.prompts, steps.prompts.token_rows, steps.prompts.token_places
    if rows is not None and places is not None and length:
        prompts = replace(prompts, token_rows=rows[:, :length], token_places=places[:, :length])
    grids = {name: x for name, x in vars(steps).items() if isinstance(x, Tensor) and x.dim() == 2}
    return replace(steps, prompts=prompts, **{name: x[:, :length] for name, x in grids.items()})


# ---- building batches ----


class Batcher:
    """Builds batches, in the prefetch thread too while the policy trains: no weight is touched."""

    def __init__(self, policy: Policy, images: ImageCache) -> None:
        self._policy, self._cache = policy, images

    def steps(self, steps: Sequence[StepData]) -> StepBatch:
        """A flat batch of single steps."""
        length = max(len(step.tokens) for step in steps)
        return StepBatch(
            prompts=self._sequences(steps) if any(step.spans for step in steps) else self._prompts(steps),
            completions=torch.tensor([[*s.tokens, *[0] * (length - len(s.tokens))] for s in steps]),
            token_mask=torch.tensor([[i < len(s.tokens) for i in range(length)] for s in steps]),
            behaviour_logprobs=torch.tensor(
                [[*s.logprobs, *[0.0] * (length - len(s.logprobs))] for s in steps]
            ),
            temperature=torch.tensor([s.temperature for s in steps], dtype=torch.float32),
        )

    def _prompts(self, steps: Sequence[StepData]) -> PromptBatch:
        return self._collate([step.prompt for step in steps], [step.images for step in steps])

    def _collate(
        self,
        prompts: Sequence[Sequence[int]],
        shown: Sequence[Sequence[str]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Prompts or sequences with the pictures that they show, by digest."""
        images = self._cache.get([digest for row in shown for digest in row])
        batch = self._policy.collate(prompts, [[images[d] for d in row] for row in shown], places)
        if isinstance(batch.images, Pictures):
            batch.images.digests = [list(row) for row in shown]
        return batch

    def _sequences(self, steps: Sequence[StepData]) -> PromptBatch:
        """Every sequence once, as far as the steps need it."""
        numbers: dict[int, int] = {}
        longest: list[Span] = []
        places: list[list[Place]] = []
        for step in steps:
            places.append([])
            spans = step.spans
            if not spans:  # one prompt and one answer
                ids = (*step.prompt, *step.tokens)
                spans = (Span(TokenSequence(ids, step.images), len(step.prompt), len(ids), len(step.images)),)
            for span in spans:
                row = numbers.setdefault(id(span.sequence), len(longest))
                if row == len(longest):
                    longest.append(span)
                elif span.stop > longest[row].stop:
                    longest[row] = span
                places[-1] += [(row, place) for place in range(span.start, span.stop)]
        return self._collate(
            [span.sequence.ids[: span.stop] for span in longest],
            [span.sequence.images[: span.num_images] for span in longest],
            places,
        )

    def trajectories(self, episodes: Sequence[Episode]) -> TrajectoryBatch:
        flat = [step for episode in episodes for step in episode.steps]
        lengths = torch.tensor([len(episode.steps) for episode in episodes])
        row = torch.repeat_interleave(torch.arange(len(episodes)), lengths)
        first = torch.cumsum(lengths, 0) - lengths
        col = torch.arange(len(flat)) - first[row]
        mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]

        def grid(values: list[float]) -> Tensor:
            out = torch.zeros(mask.shape)
            out[row, col] = torch.tensor(values)
            return out

        has_values = all(episode.values for episode in episodes)
        cut = [i for i, episode in enumerate(episodes) if not episode.terminated]
        return TrajectoryBatch(
            ids=[episode.id for episode in episodes],
            steps=self.steps(flat),
            row=row,
            col=col,
            last=first + lengths - 1,
            mask=mask,
            outcome=grid([step.outcome for step in flat]),
            penalty=grid([step.penalty for step in flat]),
            invalid=torch.tensor([float(step.invalid) for step in flat]),
            terminated=torch.tensor([episode.terminated for episode in episodes]),
            success=torch.tensor([episode.success for episode in episodes]),
            imagined=torch.tensor([episode.is_imagined for episode in episodes]),
            first_step=torch.tensor([episode.first_step for episode in episodes]),
            final_prompts=self._final_prompts([episodes[i] for i in cut]) if cut else None,
            final_row=torch.tensor(cut, dtype=torch.int64),
            final_step=torch.tensor([episodes[i].final_step for i in cut], dtype=torch.int64),
            oldest_version=torch.tensor([episode.oldest_version for episode in episodes]),
            group_mean=torch.tensor([episode.group.mean for episode in episodes], dtype=torch.float32),
            group_std=torch.tensor([episode.group.std for episode in episodes], dtype=torch.float32),
            group_count=torch.tensor([episode.group.count for episode in episodes]),
            old_values=torch.tensor([v for e in episodes for v in e.values[:-1]]) if has_values else None,
            old_bootstrap=torch.tensor([e.values[-1] for e in episodes]) if has_values else None,
        )

    def _final_prompts(self, episodes: Sequence[Episode]) -> PromptBatch:
        """The states after a cut: the last step's words with the final screenshot, if there is no prompt."""
        states = [episode.steps[-1].state() for episode in episodes]
        images = self._cache.get(
            [d for e, (_, shown) in zip(episodes, states, strict=True) for d in (*shown, *e.final_images)]
        )
        prompts = [
            episode.final_prompt
            or self._policy.with_images(
                prompt, [images[d] for d in shown], [images[d] for d in episode.final_images]
            )
            for (prompt, shown), episode in zip(states, episodes, strict=True)
        ]
        return self._collate(prompts, [episode.final_images for episode in episodes])
