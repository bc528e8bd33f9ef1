"""The policy that reads: a small transformer over a goal's words, the last actions and a screen's elements.

It reads prompts of the agent `elements` as text: a prompt's tokens are the bytes of its UTF-8. An answer is
up to three tokens, each from a softmax over what may follow, so that log π is their sum:

    tap, double_tap, long_press        element
    swipe in one of four directions    element, or the whole screen
    drag                               element, element
    slide                              element, a number of the goal | tenths
    type, open_app, answer             first word of the goal, last word | an element's label | a word
    all others                         nothing more

What a pointer points at is in the prompt, so an answer is text only together with its prompt's tokens.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.core.errors import CheckpointError, ContextFull, PolicyError
from distrl.core.policies import weights_io
from distrl.core.policies.base import (
    Generated,
    Pictures,
    Place,
    Policy,
    PromptBatch,
    States,
    TokenScores,
    check_heads,
    pad_right,
)
from distrl.core.policies.reader_prompt import (
    FIXED_SIZE,
    GOAL_FEATURES,
    HISTORY,
    ITEM_FEATURES,
    MAX_GOAL,
    MAX_LISTED,
    MAX_STEP,
    QUOTED,
    WORD_TABLE,
    Reading,
    Readings,
    read,
    stack,
)
from distrl.core.policies.sampling import decode, sampling_temperature, token_log_probs
from distrl.core.policies.tokenizer import saved_words
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

ON_ELEMENT = ("tap", "double_tap", "long_press")
SWIPES = ("swipe up", "swipe down", "swipe left", "swipe right")
WITH_TEXT = ("type", "open_app", "answer")
PLAIN = ("back", "home", "enter", "wait", "complete", "impossible")
KINDS = (*ON_ELEMENT, *SWIPES, "drag", "slide", *WITH_TEXT, *PLAIN)
TENTHS = 11  # 0%, 10%, … 100%
WEIGHTS_FILE, _FILE = "model.safetensors", "tokenizer.json"
_RELATIONS = 5  # of two places, added to their attention: alike, inside, around, soon after, soon before
_NEAR = 4.0  # at this distance the last two are 1/e


class ReaderOptions(Protocol):
    """The policy that reads; see `distrl.configs.policy.ReaderConfig`."""

    max_prompt_tokens: int
    d_model: int
    num_layers: int
    num_heads: int
    d_ff: int


class Blocks:
    """The token ids of answers: one block of ids after the other; 0 is padding.

    Args:
        num_words: The size of the vocabulary.
    """

    def __init__(self, num_words: int) -> None:
        self.kind = 1
        self.element = self.kind + len(KINDS)  # the first is the whole screen
        self.source = self.element + 1 + MAX_LISTED  # an element that another one follows
        self.tenth = self.source + MAX_LISTED
        self.label = self.tenth + TENTHS  # an element whose label is the text
        self.first = self.label + MAX_LISTED
        self.last = self.first + MAX_GOAL
        self.word = self.last + MAX_GOAL
        self.size = self.word + num_words

    def names(self, words: Sequence[str]) -> list[str]:
        """The names of all tokens, for people."""
        elements = [f"element {place}" for place in range(MAX_LISTED)]
        return [
            "",
            *KINDS,
            "screen",
            *elements,
            *elements,
            *(f"{10 * tenth}%" for tenth in range(TENTHS)),
            *(f"label of {element}" for element in elements),
            *(f"from word {place}" for place in range(MAX_GOAL)),
            *(f"to word {place}" for place in range(MAX_GOAL)),
            *words,
        ]


class _Before(NamedTuple):
    """What has been written of B answers when their next token is written, [B] int64 each.

    Attributes:
        kind: The number of the kind, -1 for none yet.
        place: The item (from MAX_GOAL on) or the word of the goal that was pointed at last, -1 for none.
    """

    kind: Tensor
    place: Tensor


class ReaderPolicy(Policy):
    """About 0.7 million parameters, most of them vectors of words.

    Args:
        config: Sizes.
        words: The words of the training goals but names. All but numbers have learned vectors, and each can
            be typed where neither the goal nor the screen has it.
        seed: Seed of the initial weights. Equal arguments give equal policies in every process.
    """

    name = "reader"

    def __init__(self, config: ReaderOptions, words: Sequence[str], seed: int) -> None:
        super().__init__()
        check_heads(config.d_model, config.num_heads)
        self.words = sorted(set(words))
        self._word_ids = {word: place for place, word in enumerate(self.words)}
        self._known = frozenset(word.lower() for word in self.words if not word.isdigit())
        self.blocks = Blocks(len(self.words))
        d = config.d_model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.table = nn.Embedding(WORD_TABLE, d, padding_idx=0)
            nn.init.zeros_(self.table.weight)
            self.fixed = nn.Linear(FIXED_SIZE, d, bias=False)
            self.steps = nn.Embedding(MAX_STEP + 1, d)
            self.read_goal = nn.Linear(3 * d + GOAL_FEATURES, d)
            self.read_items = nn.Linear(3 * d + ITEM_FEATURES, d)
            self.read_head = nn.Linear(2 * d + 1, d)
            self.layers = nn.ModuleList(
                _Layer(d, config.num_heads, config.d_ff) for _ in range(config.num_layers)
            )
            self.norm = nn.LayerNorm(d)
            self.kinds = nn.Embedding(1 + len(KINDS), d)
            self.aim = nn.Sequential(nn.Linear(3 * d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
            self.kind_head = nn.Linear(d, len(KINDS) + TENTHS)
            self.item_keys = nn.Linear(d, 3 * d)  # as an element, as a source, as a label
            self.goal_keys = nn.Linear(d, 2 * d)  # as the first and as the last word
            self.word_head = nn.Linear(d, len(self.words))
            nn.init.zeros_(self.kind_head.weight)
        self.num_tokens, self.state_size = max(256, self.blocks.size), d
        self.max_prompt_tokens = config.max_prompt_tokens
        b = self.blocks
        self.end_ids = (
            *(b.kind + KINDS.index(kind) for kind in PLAIN),
            *range(b.element, b.source),
            *range(b.tenth, b.first),
            *range(b.last, b.size),
        )

    # ---- texts and tokens ----

    def prompt_ids(self, messages: Sequence[ChatMessage], images: Sequence[Tensor] = ()) -> list[int]:
        """The bytes of the text."""
        parts = [part for message in messages for part in message.parts]
        text = "\n".join(part.text for part in parts if isinstance(part, TextPart))
        if any(isinstance(part, ImagePart) for part in parts) or not text.startswith('Goal: "'):
            raise PolicyError(
                "The policy 'reader' reads only prompts of the agent 'elements'.",
                "Set agent.kind to 'elements'.",
            )
        ids = list(text.encode("utf-8", "replace"))
        if len(ids) > (self.max_prompt_tokens or len(ids)):
            raise ContextFull(
                f"The prompt has {len(ids)} bytes, more than policy.max_prompt_tokens "
                f"{self.max_prompt_tokens}.",
                "Raise the limit.",
            )
        return ids

    def completion_ids(self, text: str, prompt_ids: Sequence[int] = ()) -> list[int]:
        """The tokens of an answer to a prompt.

        Raises:
            PolicyError: It is not an answer of the agent `elements`, or this policy cannot write it.
        """
        b, reading = self.blocks, _reading_of(prompt_ids)
        kind, _, rest = text.partition(" ")
        if kind in WITH_TEXT:
            return [b.kind + KINDS.index(kind), *self._text_ids(rest, reading)]
        found = re.fullmatch(r"(swipe \w+|\w+)((?: [0-9]{1,4})*)", text)
        kind, places = (found[1], [int(word) for word in found[2].split()]) if found else ("", [])
        count = {"drag": 2, "slide": 2}.get(kind, 0 if kind in PLAIN else 1)
        screen = kind in SWIPES and not places
        listed = places[:1] if kind == "slide" else places
        is_written = kind in KINDS and len(places) == (0 if screen else count)
        if not is_written or any(place >= len(reading.labels) for place in listed):
            raise PolicyError(
                f"The policy 'reader' cannot write {text[:80]!r}.",
                f"It writes only actions of the agent 'elements', at one of the first {MAX_LISTED} elements.",
            )
        first = [b.kind + KINDS.index(kind)]
        if kind == "drag":
            return [*first, b.source + places[0], b.element + 1 + places[1]]
        if kind == "slide":
            goal = [reading.goal[start:end] for start, end in reading.pieces]
            if str(places[1]) in goal:
                return [*first, b.source + places[0], b.last + goal.index(str(places[1]))]
            return [*first, b.source + places[0], b.tenth + min(TENTHS - 1, places[1] // 10)]
        return first + ([b.element] if screen else [b.element + 1 + place for place in places])

    def _text_ids(self, quoted: str, reading: Reading) -> list[int]:
        """A typed text as words of the goal, else as the label of an element, else as a word."""
        b = self.blocks
        text = json.loads(quoted, strict=False) if re.fullmatch(QUOTED, quoted) else ""
        firsts = {start: place for place, (start, _) in reversed([*enumerate(reading.pieces)])}
        lasts = {end: place for place, (_, end) in enumerate(reading.pieces)}
        at = reading.goal.find(text) if text else -1
        while at >= 0:
            if at in firsts and at + len(text) in lasts:
                return [b.first + firsts[at], b.last + lasts[at + len(text)]]
            at = reading.goal.find(text, at + 1)
        if text and text in reading.labels:
            return [b.label + reading.labels.index(text)]
        if text in self._word_ids:
            return [b.word + self._word_ids[text]]
        raise PolicyError(
            f"The policy 'reader' cannot write the text {quoted[:80]}.",
            "It writes words that the goal or an element has, or one word of the training goals.",
        )

    def text(self, token_ids: Sequence[int], prompt_ids: Sequence[int] = ()) -> str:
        """An answer in the notation of the agent `elements`; of one that breaks off, its beginning."""
        b, reading = self.blocks, _reading_of(prompt_ids)
        words: list[str] = []
        start, typed = -1, None
        for token in token_ids:
            if b.kind <= token < b.element:
                words.append(KINDS[token - b.kind])
            elif b.element < token < b.source:
                words.append(str(token - b.element - 1))
            elif b.source <= token < b.tenth:
                words.append(str(token - b.source))
            elif b.tenth <= token < b.label:
                words.append(str(10 * (token - b.tenth)))
            elif b.label <= token < b.first:
                typed = "".join(reading.labels[token - b.label :][:1])
            elif b.first <= token < b.last:
                start = token - b.first
            elif b.last <= token < b.word:
                place = token - b.last
                spans = reading.pieces[place if start < 0 else start : place + 1]
                written = reading.goal[spans[0][0] : spans[-1][1]] if spans else ""
                if start < 0:  # a number for `slide`
                    words.append(written)
                else:
                    typed = written
            elif b.word <= token < b.size:
                typed = self.words[token - b.word]
        return " ".join(words if typed is None else [*words, json.dumps(typed, ensure_ascii=False)])

    def image(self, data: bytes) -> Tensor:
        """It reads no pictures."""
        raise PolicyError("The policy 'reader' reads no pictures.", "Set agent.kind to 'elements'.")

    def collate(
        self,
        prompts: Sequence[Sequence[int]],
        images: Sequence[Sequence[Tensor]],
        places: Sequence[Sequence[Place]] | None = None,
    ) -> PromptBatch:
        """Pads prompts on the right."""
        assert places is None, "the policy reads one prompt at a time"
        return PromptBatch(*pad_right(prompts, 0), Pictures([[] for _ in prompts])).to(self.device)

    def _read(self, batch: PromptBatch) -> Readings:
        rows = batch.input_ids.cpu().numpy().astype(np.uint8)
        lengths = batch.attention_mask.sum(1).tolist()
        return stack(
            [read(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)],
            self._known,
            self.device,
        )

    # ---- the network ----

    def _encode(self, r: Readings) -> tuple[Tensor, Tensor]:
        """[B, 1 + G + I, d] states of a place for the whole, of the goal and of the items; and their mask."""
        words = self.table(r.table) + self.fixed(r.fixed)

        def bag(numbers: Tensor) -> Tensor:
            """Means of words, [..., n] → [..., d]."""
            flat = F.embedding_bag(numbers.flatten(0, -2), words, mode="sum")
            count = (numbers > 0).sum(-1, keepdim=True).clamp(min=1)
            return flat.view(*numbers.shape[:-1], -1) / count.sqrt()

        label = bag(r.label)
        outer = torch.cat([torch.zeros_like(label[:, :1]), label], dim=1)
        outer = outer.gather(1, r.parent[..., None].expand(-1, -1, label.shape[-1]))
        # Where a word stands is what is before and behind it: other wordings have other lengths.
        goal = words[r.goal_words]
        before, behind = F.pad(goal[:, :-1], (0, 0, 1, 0)), F.pad(goal[:, 1:], (0, 0, 0, 1))
        goal = self.read_goal(torch.cat([goal, before, behind, r.goal_features], dim=-1))
        items = self.read_items(torch.cat([label, bag(r.meta), outer, r.features], dim=-1))
        whole = torch.cat([bag(r.head), self.steps(r.step), r.unchanged[:, None]], dim=-1)
        states = torch.cat([self.read_head(whole)[:, None], goal, items], dim=1)
        mask = torch.cat([torch.ones_like(r.is_goal[:, :1]), r.is_goal, r.is_item], dim=1)
        relations = self._relations(r)
        blocked = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -1e9)[:, None, None]
        for layer in self.layers:
            states = layer(states, relations, blocked)
        return self.norm(states), mask

    def _relations(self, r: Readings) -> Tensor:
        """[B, _RELATIONS, P, P] of the places of `_encode`."""
        count, wide = r.goal_words.shape
        size = 1 + wide + r.parent.shape[1]
        found = r.match.new_zeros(count, _RELATIONS, size, size)
        found[:, 0, 1 : 1 + wide, 1 + wide :] = r.match
        found[:, 0, 1 + wide :, 1 : 1 + wide] = r.match.transpose(1, 2)
        rows, inner = torch.nonzero(r.parent, as_tuple=True)
        outer = wide + r.parent[rows, inner]
        found[rows, 1, 1 + wide + inner, outer] = 1.0
        found[rows, 2, outer, 1 + wide + inner] = 1.0
        places = torch.arange(size, device=found.device)
        behind = places[:, None] - places
        near = torch.exp(-behind.abs() / _NEAR)
        for part in (slice(1, 1 + wide), slice(1 + wide, size)):  # the goal's words, and the items
            found[:, 3, part, part] = (near * (behind > 0))[part, part]
            found[:, 4, part, part] = (near * (behind < 0))[part, part]
        return found

    def _before(self, tokens: Tensor) -> _Before:
        """Of answers as far as they are written, [B, L] → what the token after them depends on."""
        b = self.blocks
        kind = tokens[:, 0] - b.kind if tokens.shape[1] else tokens.new_full((len(tokens),), -1)
        place = torch.full_like(kind, -1)
        if tokens.shape[1] > 1:
            last = tokens[:, -1]
            place = torch.where((b.source <= last) & (last < b.tenth), last - b.source + MAX_GOAL, place)
            place = torch.where((b.first <= last) & (last < b.last), last - b.first, place)
        return _Before(kind, place)

    def _keys(self, states: Tensor, r: Readings) -> list[Tensor]:
        """What pointers point at, [B, n, d] each: elements with the screen, sources, labels, first, last."""
        wide = r.goal_words.shape[1]
        goal, items = states[:, 1 : 1 + wide], states[:, 1 + wide + HISTORY :]
        element, source, label = self.item_keys(torch.cat([states[:, :1], items], dim=1)).chunk(3, dim=-1)
        return [element, source[:, 1:], label[:, 1:], *self.goal_keys(goal).chunk(2, dim=-1)]

    def _logits(
        self, states: Tensor, keys: Sequence[Tensor], r: Readings, before: _Before
    ) -> tuple[Tensor, Tensor]:
        """[B, V] logits of the next tokens and, bool, which may follow."""
        rows = torch.arange(len(states), device=states.device)
        offset = torch.where(before.place < MAX_GOAL, 0, r.goal_words.shape[1] + HISTORY - MAX_GOAL)
        place = (1 + before.place + offset).clamp(0, states.shape[1] - 1)
        pointed = states[rows, place] * (before.place >= 0)[:, None]
        aim = self.aim(torch.cat([states[:, 0], self.kinds(before.kind + 1), pointed], dim=-1))
        kinds, tenths = self.kind_head(aim).split([len(KINDS), TENTHS], dim=-1)
        query = aim[:, :, None] * states.shape[-1] ** -0.5
        sizes = (1 + MAX_LISTED, MAX_LISTED, MAX_LISTED, MAX_GOAL, MAX_GOAL)
        element, source, label, first, last = (
            F.pad((key @ query).squeeze(-1), (0, size - key.shape[1]))
            for key, size in zip(keys, sizes, strict=True)
        )
        padding = torch.zeros_like(kinds[:, :1])
        parts = [padding, kinds, element, source, tenths, label, first, last, self.word_head(aim)]
        return torch.cat(parts, dim=-1), self._allowed(r, before)

    def _allowed(self, r: Readings, before: _Before) -> Tensor:
        """[B, V] bool."""
        device = r.step.device

        def among(kinds: Sequence[str]) -> Tensor:
            wanted = torch.tensor([KINDS.index(kind) for kind in kinds], device=device)
            return torch.isin(before.kind, wanted)

        def below(size: int, count: Tensor) -> Tensor:
            return torch.arange(size, device=device) < count[:, None]

        is_new, is_second = before.kind < 0, before.place >= 0
        listed, is_text = below(MAX_LISTED, r.num_elements), among(WITH_TEXT)
        is_slide = among(("slide",))
        has_two = among(("drag",)) | is_slide
        digits = r.goal_features[:, :, 4] > 0
        is_number = F.pad(digits, (0, MAX_GOAL - digits.shape[1]))
        needs_element = torch.tensor(
            [kind in (*ON_ELEMENT, "drag", "slide") for kind in KINDS], device=device
        )
        needs_goal = torch.tensor([kind in WITH_TEXT for kind in KINDS], device=device)
        kinds = is_new[:, None] & ~(needs_element & (r.num_elements == 0)[:, None])
        kinds = kinds & ~(needs_goal & (r.num_goal == 0)[:, None])
        one = (among((*ON_ELEMENT, *SWIPES)) | (among(("drag",)) & is_second))[:, None]
        goes_on = torch.arange(MAX_GOAL, device=device) >= before.place[:, None]
        return torch.cat(
            [
                torch.zeros_like(kinds[:, :1]),
                kinds,
                among(SWIPES)[:, None],
                one & listed,
                (has_two & ~is_second)[:, None] & listed,
                (is_slide & is_second)[:, None].expand(-1, TENTHS),
                (is_text & ~is_second)[:, None] & r.has_label,
                (is_text & ~is_second)[:, None] & below(MAX_GOAL, r.num_goal),
                ((is_text & is_second)[:, None] & below(MAX_GOAL, r.num_goal) & goes_on)
                | ((is_slide & is_second)[:, None] & is_number),
                (is_text & ~is_second)[:, None].expand(-1, len(self.words)),
            ],
            dim=-1,
        )

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        readings = self._read(batch)
        states, _ = self._encode(readings)
        keys, temperature = self._keys(states, readings), sampling_temperature(sampling, self.device)
        written: list[Tensor] = []

        def next_log_probs(last: Tensor) -> Tensor:
            written.append(last)
            before = self._before(torch.stack(written, 1)[:, 1:])
            logits, allowed = self._logits(states, keys, readings, before)
            return token_log_probs(logits, allowed, temperature)

        first = torch.zeros(len(sampling), dtype=torch.int64, device=self.device)
        return decode(next_log_probs, first, frozenset(self.end_ids), sampling, generator)

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass over the prompts, and one over the answers for each of their tokens."""
        readings = self._read(batch)
        states, places = self._encode(readings)
        effective = torch.where(temperature > 0, temperature, torch.ones_like(temperature))
        keys = self._keys(states, readings)
        chosen, entropy = [], []
        for length in range(completions.shape[1]):
            before = self._before(completions[:, :length])
            logits, allowed = self._logits(states, keys, readings, before)
            log_probs = token_log_probs(logits, allowed, effective)
            chosen.append(log_probs.gather(1, completions[:, length : length + 1]).squeeze(1))
            entropy.append(-(log_probs.exp() * log_probs).sum(-1))
        zero = torch.zeros(mask.shape, device=self.device)
        return TokenScores(
            torch.where(mask, torch.stack(chosen, 1), zero),
            torch.where(mask, torch.stack(entropy, 1), zero),
            States(states.detach(), places),
        )

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The states of the whole, of the goal's words, of the last actions and of the elements."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return States(*self._encode(self._read(batch)))

    def save(self, directory: Path) -> None:
        """Writes model.safetensors and, with the vocabulary, tokenizer.json."""
        directory.mkdir(parents=True, exist_ok=True)
        weights_io.write(directory / WEIGHTS_FILE, weights_io.distinct(self.state_dict()))
        content = {"format": 1, "kind": self.name, "words": self.words}
        (directory / _FILE).write_text(json.dumps(content, ensure_ascii=False, indent=0), encoding="utf-8")

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote; the vocabulary there must be this policy's own."""
        if saved_words(directory) != self.words:
            raise CheckpointError(
                f"The checkpoint {directory} does not have this policy's vocabulary.",
                "Use the tasks and policy configuration that it was made with.",
            )
        weights_io.load_into(weights_io.distinct(self.state_dict()), directory / WEIGHTS_FILE)


def _reading_of(prompt_ids: Sequence[int]) -> Reading:
    return read(bytes(token & 255 for token in prompt_ids))


class _Layer(nn.Module):
    """Self-attention biased by relations, then two linear layers; both after a norm."""

    def __init__(self, d: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self._heads = heads
        self.norm, self.norm_ff = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.relations = nn.Parameter(torch.ones(_RELATIONS, heads))
        self.ff = nn.Sequential(nn.Linear(d, d_ff), nn.GELU(), nn.Linear(d_ff, d))

    def forward(self, states: Tensor, relations: Tensor, blocked: Tensor) -> Tensor:
        """States [B, P, d], relations [B, R, P, P], `blocked` [B, 1, 1, P]: -1e9 where nothing is."""
        count, size, d = states.shape
        parts = self.qkv(self.norm(states)).view(count, size, 3, self._heads, d // self._heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        bias = torch.einsum("brpq,rh->bhpq", relations, self.relations) + blocked
        weights = (query @ key.transpose(-1, -2) / math.sqrt(d // self._heads) + bias).softmax(-1)
        attended = (weights @ value).transpose(1, 2).reshape(count, size, d)
        states = states + self.out(attended)
        result: Tensor = states + self.ff(self.norm_ff(states))
        return result
