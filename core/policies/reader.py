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
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distrl.core.errors import PolicyError
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
    check_length,
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
    word_vector,
)
from distrl.core.policies.sampling import decode, sampling_temperature, token_log_probs
from distrl.core.policies.tokenizer import check_words, save_words
from distrl.core.types import ChatMessage, ImagePart, Sampling, TextPart

ON_ELEMENT = ("tap", "double_tap", "long_press")
SWIPES = ("swipe up", "swipe down", "swipe left", "swipe right")
WITH_TEXT = ("type", "open_app", "answer")
PLAIN = ("back", "home", "enter", "wait", "complete", "impossible")
KINDS = (*ON_ELEMENT, *SWIPES, "drag", "slide", *WITH_TEXT, *PLAIN)
TENTHS = 11  # 0%, 10%, … 100%
COMMON_WORDS = frozenset(Path(__file__).with_name("common_words.txt").read_text(encoding="utf-8").split())
"""English words that are hardly ever names: pronouns, prepositions, adverbs, common verbs and the like."""
WEIGHTS_FILE = "model.safetensors"
_RELATIONS = 5  # of two places, added to their attention: alike, inside, around, soon after, soon before
_NEAR = 4.0  # at this distance the last two are 1/e
_GROUP = 64  # rows that are scored together
_DISGUISED = 0.3  # share of the words without a vector of their own that are given one in cloning
_RARE = -8.0  # first logit of each word of the vocabulary: what is typed is nearly always in the prompt


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
    """What has been written of B answers when each of L tokens is written, [B, L] int64 each.

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
        words: The words of the training goals but names. Each can be typed where neither the goal nor the
            screen has it. All but numbers, and `COMMON_WORDS`, have learned vectors; the others share one.
        seed: Seed of the initial weights. Equal arguments give equal policies in every process.
    """

    name = "reader"

    def __init__(self, config: ReaderOptions, words: Sequence[str], seed: int) -> None:
        super().__init__()
        check_heads(config.d_model, config.num_heads)
        self.words = sorted(set(words))
        self._word_ids = {word: place for place, word in enumerate(self.words)}
        self._known = COMMON_WORDS | {word.lower() for word in self.words if not word.isdigit()}
        self._learned = torch.tensor(sorted(word_vector(word)[0] for word in self._known))
        self._is_augmented = False
        self.blocks = Blocks(len(self.words))
        d = config.d_model
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.table = nn.Embedding(WORD_TABLE, d, padding_idx=0)
            nn.init.zeros_(self.table.weight)
            self.fixed = nn.Linear(FIXED_SIZE, d, bias=False)
            self.steps = nn.Embedding(MAX_STEP + 1, d)
            self.read_goal = nn.Linear(3 * d + GOAL_FEATURES, d)
            self.read_items = nn.Linear(4 * d + ITEM_FEATURES, d)
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
            nn.init.constant_(self.word_head.bias, _RARE)
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
        check_length(ids, self.max_prompt_tokens, "bytes")
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

    def _read(self, batch: PromptBatch) -> list[Reading]:
        rows = batch.input_ids.cpu().numpy().astype(np.uint8)
        lengths = batch.attention_mask.sum(1).tolist()
        return [read(row[:length].tobytes()) for row, length in zip(rows, lengths, strict=True)]

    def _stack(self, readings: list[Reading]) -> Readings:
        found = stack(readings, self._known, self.device)
        if self._is_augmented:
            is_new = (found.table == 1) & (torch.rand(found.table.shape) < _DISGUISED).to(self.device)
            chosen = torch.randint(len(self._learned), (int(is_new.sum()),))
            found.table[is_new] = self._learned[chosen].to(self.device)
        return found

    @contextmanager
    def augmented(self) -> Iterator[None]:
        """Reads some new words as if they were other, known ones: names can be ordinary words ("a ring")."""
        self._is_augmented = True
        try:
            yield
        finally:
            self._is_augmented = False

    def _groups(self, batch: PromptBatch) -> list[tuple[Tensor, Readings]]:
        """Rows of about the same length together, so that little of what is computed is padding."""
        found = self._read(batch)
        order = sorted(range(len(found)), key=lambda row: len(found[row].pieces) + len(found[row].is_item))
        groups = [order[start : start + _GROUP] for start in range(0, len(order), _GROUP)]
        return [
            (torch.tensor(rows, device=self.device), self._stack([found[row] for row in rows]))
            for rows in groups
        ]

    # ---- the network ----

    def _encode(self, r: Readings) -> tuple[Tensor, Tensor]:
        """[B, P, d] states of a place for the whole, of the goal and of the items (`Readings.filled`)."""
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
        # How the goal mentions what an item says: the ten of "7:10" is not an hour.
        mention = r.match.transpose(1, 2) @ goal / r.match.sum(1).clamp(min=1.0)[..., None]
        items = self.read_items(torch.cat([label, bag(r.meta), outer, mention, r.features], dim=-1))
        whole = torch.cat([bag(r.head), self.steps(r.step), r.unchanged[:, None]], dim=-1)
        states = torch.cat([self.read_head(whole)[:, None], goal, items], dim=1)
        states = states.gather(1, r.filled[..., None].expand(-1, -1, states.shape[-1]))
        relations = self._relations(r).flatten(2)
        for layer in self.layers:
            states = layer(states, relations)
        return self.norm(states), r.mask

    def _relations(self, r: Readings) -> Tensor:
        """[B, _RELATIONS + 1, P, P] of the places of `_encode`; the last is -1e9 where no place is seen."""
        count, size = r.filled.shape
        wide = r.goal_words.shape[1]
        found = r.match.new_zeros(count, _RELATIONS + 1, size, size)
        rows, word, item = alike = torch.nonzero(r.match, as_tuple=True)
        word, item = r.place[rows, 1 + word], r.place[rows, 1 + wide + item]
        found[rows, 0, word, item] = found[rows, 0, item, word] = r.match[alike]
        rows, inner = torch.nonzero(r.parent, as_tuple=True)
        outer = r.place[rows, wide + r.parent[rows, inner]]
        inner = r.place[rows, 1 + wide + inner]
        found[rows, 1, inner, outer] = found[rows, 2, outer, inner] = 1.0
        behind = r.filled[:, :, None] - r.filled[:, None]
        is_item = r.filled > wide
        near = torch.exp(-behind.abs() / _NEAR) * (is_item[:, :, None] == is_item[:, None])
        near[:, 0] = near[:, :, 0] = 0.0  # the whole has no place in an order
        found[:, 3], found[:, 4] = near * (behind > 0), near * (behind < 0)
        found[:, -1].masked_fill_(~r.mask[:, None], -1e9)
        return found

    def _before(self, tokens: Tensor) -> _Before:
        """Of answers' first tokens, [B, L] → what each of them and the next one depend on, [B, L + 1]."""
        b = self.blocks
        last = F.pad(tokens, (1, 0))
        kind = F.pad((tokens[:, :1] - b.kind).expand_as(tokens), (1, 0), value=-1)
        place = torch.full_like(last, -1)
        place = torch.where((b.source <= last) & (last < b.tenth), last - b.source + MAX_GOAL, place)
        return _Before(kind, torch.where((b.first <= last) & (last < b.last), last - b.first, place))

    def _logits(self, states: Tensor, r: Readings, before: _Before) -> tuple[Tensor, Tensor]:
        """[B, L, V] logits of the next tokens and, bool, which may follow."""
        count, length = before.kind.shape
        wide, d = r.goal_words.shape[1], states.shape[-1]
        offset = torch.where(before.place < MAX_GOAL, 1, 1 + wide + HISTORY - MAX_GOAL)
        place = r.place.gather(1, (before.place + offset).clamp(0, r.place.shape[1] - 1))
        pointed = states.gather(1, place[..., None].expand(-1, -1, d)) * (before.place >= 0)[..., None]
        whole = states[:, :1].expand(-1, length, -1)
        aim = self.aim(torch.cat([whole, self.kinds(before.kind + 1), pointed], dim=-1))
        kinds, tenths = self.kind_head(aim).split([len(KINDS), TENTHS], dim=-1)
        scaled = aim * d**-0.5

        def pointers(keys: nn.Linear) -> Tensor:
            """[B, L, n, 1 + G + I] products of the aim and each place's n keys, which are never made."""
            query = scaled @ keys.weight.view(-1, d, d).transpose(0, 1).flatten(1)
            found: Tensor = query.view(count, -1, d) @ states.transpose(1, 2)
            found = found.view(count, length, -1, found.shape[-1])
            found = found + (scaled @ keys.bias.view(-1, d).T)[..., None]
            return found.gather(-1, r.place[:, None, None].expand(-1, length, found.shape[2], -1))

        def padded(scores: Tensor, size: int) -> Tensor:
            return F.pad(scores, (0, size - scores.shape[-1]))

        of_items, of_goal = pointers(self.item_keys), pointers(self.goal_keys)[..., 1 : 1 + wide]
        element, source, label = of_items[..., 1 + wide + HISTORY :].unbind(2)
        first, last = of_goal.unbind(2)
        parts = [torch.zeros_like(kinds[..., :1]), kinds, of_items[:, :, 0, :1], padded(element, MAX_LISTED)]
        parts += [padded(source, MAX_LISTED), tenths, padded(label, MAX_LISTED)]
        parts += [padded(first, MAX_GOAL), padded(last, MAX_GOAL), self.word_head(aim)]
        return torch.cat(parts, dim=-1), self._allowed(r, before)

    def _allowed(self, r: Readings, before: _Before) -> Tensor:
        """[B, L, V] bool."""
        device = r.step.device

        def among(kinds: Sequence[str]) -> Tensor:
            wanted = torch.tensor([KINDS.index(kind) for kind in kinds], device=device)
            return torch.isin(before.kind, wanted)[..., None]

        def below(size: int, count: Tensor) -> Tensor:
            return torch.arange(size, device=device) < count[:, None, None]

        is_new, is_second = before.kind[..., None] < 0, before.place[..., None] >= 0
        listed, is_text = below(MAX_LISTED, r.num_elements), among(WITH_TEXT)
        is_slide = among(("slide",))
        has_two = among(("drag",)) | is_slide
        digits = r.goal_features[:, None, :, 4] > 0
        is_number = F.pad(digits, (0, MAX_GOAL - digits.shape[-1]))
        needs_element = torch.tensor(
            [kind in (*ON_ELEMENT, "drag", "slide") for kind in KINDS], device=device
        )
        needs_goal = torch.tensor([kind in WITH_TEXT for kind in KINDS], device=device)
        kinds = is_new & ~(needs_element & (r.num_elements == 0)[:, None, None])
        kinds = kinds & ~(needs_goal & (r.num_goal == 0)[:, None, None])
        one = among((*ON_ELEMENT, *SWIPES)) | (among(("drag",)) & is_second)
        goes_on = torch.arange(MAX_GOAL, device=device) >= before.place[..., None]
        return torch.cat(
            [
                torch.zeros_like(is_new),
                kinds,
                among(SWIPES),
                one & listed,
                has_two & ~is_second & listed,
                (is_slide & is_second).expand(-1, -1, TENTHS),
                is_text & ~is_second & r.has_label[:, None],
                is_text & ~is_second & below(MAX_GOAL, r.num_goal),
                (is_text & is_second & below(MAX_GOAL, r.num_goal) & goes_on)
                | (is_slide & is_second & is_number),
                (is_text & ~is_second).expand(-1, -1, len(self.words)),
            ],
            dim=-1,
        )

    @torch.no_grad()
    def generate(
        self, batch: PromptBatch, sampling: Sequence[Sampling], generator: torch.Generator | None = None
    ) -> list[Generated]:
        readings = self._stack(self._read(batch))
        states, _ = self._encode(readings)
        temperature = sampling_temperature(sampling, self.device)
        written: list[Tensor] = []

        def next_log_probs(last: Tensor) -> Tensor:
            written.append(last)
            kind, place = self._before(torch.stack(written, 1)[:, 1:])
            before = _Before(kind[:, -1:], place[:, -1:])
            logits, allowed = self._logits(states, readings, before)
            return token_log_probs(logits[:, 0], allowed[:, 0], temperature)

        first = torch.zeros(len(sampling), dtype=torch.int64, device=self.device)
        return decode(next_log_probs, first, frozenset(self.end_ids), sampling, generator)

    def score(
        self, batch: PromptBatch, completions: Tensor, mask: Tensor, temperature: Tensor
    ) -> TokenScores:
        """One pass over each group of prompts, and one over all tokens of their answers."""
        logprobs, entropy = (torch.zeros(mask.shape, device=self.device) for _ in range(2))
        parts = []
        for rows, readings in self._groups(batch):
            states, places = self._encode(readings)
            parts.append((rows, States(states.detach(), places)))
            logits, allowed = self._logits(states, readings, self._before(completions[rows, :-1]))
            real = mask[rows].nonzero(as_tuple=True)
            tokens = (rows[real[0]], real[1])
            log_probs = token_log_probs(logits[real], allowed[real], temperature[tokens[0]])
            logprobs = logprobs.index_put(tokens, log_probs.gather(1, completions[tokens][:, None])[:, 0])
            entropy = entropy.index_put(tokens, -(log_probs.exp() * log_probs).sum(-1))
        return TokenScores(logprobs, entropy, _joined(parts))

    @torch.no_grad()
    def states(self, batch: PromptBatch) -> States:
        """The states of the whole, of the goal's words, of the last actions and of the elements."""
        return self.encode(batch)

    def encode(self, batch: PromptBatch) -> States:
        return _joined([(rows, States(*self._encode(readings))) for rows, readings in self._groups(batch)])

    def save(self, directory: Path) -> None:
        """Writes model.safetensors and, with the vocabulary, tokenizer.json."""
        directory.mkdir(parents=True, exist_ok=True)
        weights_io.write(directory / WEIGHTS_FILE, weights_io.distinct(self.state_dict()))
        save_words(directory, self.name, self.words)

    def load(self, directory: Path) -> None:
        """Reads what `save` wrote; the vocabulary there must be this policy's own."""
        check_words(directory, self.words)
        weights_io.load_into(weights_io.distinct(self.state_dict()), directory / WEIGHTS_FILE)


def _reading_of(prompt_ids: Sequence[int]) -> Reading:
    return read(bytes(token & 255 for token in prompt_ids))


def _joined(parts: Sequence[tuple[Tensor, States]]) -> States:
    """The states of groups of rows as those of all rows, padded on the right."""
    size = max(part.mask.shape[1] for _, part in parts)
    back = torch.cat([rows for rows, _ in parts]).argsort()
    hidden = [F.pad(part.hidden, (0, 0, 0, size - part.mask.shape[1])) for _, part in parts]
    mask = [F.pad(part.mask, (0, size - part.mask.shape[1])) for _, part in parts]
    return States(torch.cat(hidden)[back], torch.cat(mask)[back])


class _Layer(nn.Module):
    """Self-attention biased by relations, then two linear layers; both after a norm."""

    def __init__(self, d: int, heads: int, d_ff: int) -> None:
        super().__init__()
        self._heads = heads
        self.norm, self.norm_ff = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.relations = nn.Parameter(torch.ones(_RELATIONS, heads))
        self.ff = nn.Sequential(nn.Linear(d, d_ff), nn.GELU(), nn.Linear(d_ff, d))

    def forward(self, states: Tensor, relations: Tensor) -> Tensor:
        """States [B, P, d], relations [B, R + 1, P · P]: the last has the weight 1."""
        count, size, d = states.shape
        parts = self.qkv(self.norm(states)).view(count, size, 3, self._heads, d // self._heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).flatten(1, 2)
        weights = F.pad(self.relations, (0, 0, 0, 1), value=1.0).T.expand(count, -1, -1)
        bias = torch.bmm(weights, relations).view(-1, size, size)  # `@` would copy the relations
        scale = (d // self._heads) ** -0.5
        attention = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scale).softmax(-1)
        attended = (attention @ value).view(count, self._heads, size, -1).transpose(1, 2).flatten(2)
        states = states + self.out(attended)
        result: Tensor = states + self.ff(self.norm_ff(states))
        return result
