"""What the policy `reader` makes of a prompt of the agent `elements`: words, elements and what they share.

A word is a fixed vector: of the word itself and of its trigrams, each a random vector drawn from its hash. So
two words that were never seen match where they are the same, and in part where they are alike, in every
process. What an element is has learned vectors besides (by hash), and so have the words of goals. But names
and numbers share one, in training as in evaluation: what is done with a name does not depend on it.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Array = npt.NDArray[Any]

MAX_GOAL = 128
"""Words and marks of a goal that are read, and can be pointed at."""
MAX_LISTED = 256
"""Elements that are read, and can be pointed at."""
HISTORY = 4
"""The last actions that are read."""
WORD_TABLE = 8192
ID = "id "
"""Before the words of an element's id, which have other learned vectors than those of goals and labels."""
FIXED_SIZE = 64
MAX_STEP = 31
ITEM_FEATURES = 18
GOAL_FEATURES = 6
_LABEL_WORDS, _META_WORDS, _HEAD_WORDS = 12, 8, 6
_ALIKE = 0.3  # two words whose fixed vectors have a cosine below this have nothing in common

_decode = json.JSONDecoder(strict=False).decode
_PIECE = re.compile(r"[^\W\d_]+|\d+|[^\w\s]|_")
QUOTED = r'"(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"'
_GOAL = re.compile(rf"Goal: ({QUOTED})")
_STEP = re.compile(r"Step (\d{1,9})(?:, app ([\w.:-]+))?(, the last action changed nothing)?")
_ELEMENT = re.compile(
    rf"\d+ ([\w.:-]+)(?: ({QUOTED}))?(?: \(({QUOTED})\))?(?: #([\w.:-]+))?(?: \[([\w,]+)\])?"
    r"(?: in (\d{1,4}))? at (\d{1,4}) (\d{1,4}) (\d{1,4}) (\d{1,4})"
)


@dataclass(frozen=True, eq=False)
class Reading:
    """A prompt, parsed. Items are HISTORY slots for the last actions, the newest first, then the elements.

    Attributes:
        goal, pieces: The goal, and where each of its words and marks begins and ends in it.
        labels: The text, else the description of each element.
        words: The distinct words of the prompt; the arrays below name them by their number + 1, 0 is none.
        goal_words: [G]; goal_features: [G, GOAL_FEATURES].
        label, meta: [I, n] the words of an item's label, and its class, id, flags or kind of action.
        parent: [I] the number + 1 of the item around it.
        features: [I, ITEM_FEATURES]; is_item: [I], False for slots without an action.
        match: [G, I], how much each word of the goal is like one of an item's label, 0 to 1.
        head: The words of the app in front; step: The number of the step; unchanged: 1 if the last action
            changed nothing.
    """

    goal: str
    pieces: tuple[tuple[int, int], ...]
    labels: tuple[str, ...]
    words: tuple[str, ...]
    goal_words: Array
    goal_features: Array
    label: Array
    meta: Array
    parent: Array
    features: Array
    is_item: Array
    match: Array
    head: Array
    step: int
    unchanged: float


def words_of(text: str) -> list[str]:
    """Words, numbers and marks, in lower case."""
    return [piece.lower() for piece in _PIECE.findall(text)]


@lru_cache(2**16)
def _gram(text: str) -> Array:
    return np.random.default_rng(zlib.crc32(text.encode("utf-8", "replace"))).standard_normal(
        FIXED_SIZE, dtype=np.float32
    )


def _amount(number: int) -> Array:
    """[FIXED_SIZE] of about length 1: how large a number is, whether it is odd, its last two digits."""
    sizes = [min(number, limit) / limit for limit in (10, 30, 100, 300, 1000)]
    turns = [math.tau * number / period for period in (10, 100)]
    figures = [*sizes, math.log1p(number) / 10, number % 2 * 2 - 1, *np.sin(turns), *np.cos(turns)]
    return np.pad(np.array(figures, np.float32) / len(figures) ** 0.5, (0, FIXED_SIZE - len(figures)))


@lru_cache(2**16)
def word_vector(word: str) -> tuple[int, Array]:
    """A word's place in the table of learned vectors, and its fixed vector, [FIXED_SIZE] of length 1."""
    place = 2 + zlib.crc32(word.encode("utf-8", "replace")) % (WORD_TABLE - 2)
    word = word.removeprefix(ID)
    if word.isdecimal() and len(word) < 10:
        # "05" is nearly "5", as in dates; on a clock they are two.
        own, plain = _gram(f"word {word}"), _gram(f"word {int(word)}")
        vector = (2 * own + plain) / 24 + _amount(int(word)) / 2
    else:
        vector = _gram(f"word {word}")
        if len(word) > 2 and word[0].isalpha():
            grams = [_gram(f"^{word}$"[at : at + 3]) for at in range(len(word))]
            vector = vector + np.sum(grams, axis=0) / len(grams) ** 0.5
    return place, (vector / np.linalg.norm(vector)).astype(np.float32)


def _vectors(vectors: list[Array]) -> Array:
    """[U + 1, FIXED_SIZE], that of no word first. `np.stack` is slow."""
    return np.concatenate([np.zeros(FIXED_SIZE, np.float32), *vectors]).reshape(-1, FIXED_SIZE)


def _id_words(name: str) -> list[str]:
    return [f"{ID}{word}" for word in words_of(name) if word != "_"]


def _texts(quoted: list[str]) -> list[str]:
    """The distinct texts."""
    return list(dict.fromkeys(_decode(one) for one in quoted))


@lru_cache(2**14)
def _element(line: str) -> tuple[Any, ...] | None:
    """An element's label, its words, its other words, the number of its parent and its bounds."""
    found = _ELEMENT.fullmatch(line)
    if found is None:
        return None
    class_name, text, description, name, flags, parent, *edges = found.groups()
    texts = _texts([one for one in (text, description) if one])
    label = [word for one in texts for word in words_of(one)]
    meta = [f"class {class_name}", *(f"flag {flag}" for flag in (flags or "").split(",") if flag)]
    meta += _id_words(name or "")
    bounds = tuple(int(edge) / 1000 for edge in edges)
    return next(filter(None, texts), ""), label[:_LABEL_WORDS], meta[:_META_WORDS], parent, bounds, class_name


@lru_cache(4096)
def read(prompt: bytes) -> Reading:
    """A prompt's text, parsed. Lines of another form are skipped."""
    text = prompt.decode("utf-8", "replace")
    head, step, unchanged, goal = "", 0, 0.0, ""
    actions: list[tuple[list[str], list[str]]] = []
    elements: list[tuple[Any, ...]] = []
    for line in text.split("\n"):
        if line[:1].isdigit():
            if (element := _element(line)) is not None and len(elements) < MAX_LISTED:
                elements.append(element)
        elif found := _GOAL.fullmatch(line):
            goal = _decode(found[1])
        elif found := _STEP.fullmatch(line):
            step, head, unchanged = min(MAX_STEP, int(found[1])), found[2] or "", float(bool(found[3]))
        elif line.startswith("Last: "):
            kind, *others = re.sub(QUOTED, "", line[6:]).replace("()", "").split() or [""]
            label = [word for one in _texts(re.findall(QUOTED, line)) for word in words_of(one)]
            meta = [f"action {kind}"]
            for one in others:
                meta += _id_words(one[1:]) if one[0] == "#" else [f"class {one}"]
            actions.append((label[:_LABEL_WORDS], meta))
    recent = actions[-HISTORY:][::-1]
    return _reading(goal, head, step, unchanged, recent, elements)


def _reading(
    goal: str,
    head: str,
    step: int,
    unchanged: float,
    actions: list[tuple[list[str], list[str]]],
    elements: list[tuple[Any, ...]],
) -> Reading:
    numbers: dict[str, int] = {}

    def numbered(words: list[str], size: int) -> list[int]:
        row = [numbers.setdefault(word, len(numbers) + 1) for word in words[:size]]
        return row + [0] * (size - len(row))

    found = list(_PIECE.finditer(goal))[:MAX_GOAL]
    if len(found) > 1 and found[-1][0] in ".?!":  # the mark that ends the sentence is never typed
        found.pop()
    pieces = tuple(one.span() for one in found)
    goal_list = [one[0].lower() for one in found]
    goal_words = np.array(numbered(goal_list, len(goal_list)), np.int64)
    rows = [*actions, *[([], [])] * (HISTORY - len(actions)), *((one[1], one[2]) for one in elements)]
    label = np.array([numbered(words, _LABEL_WORDS) for words, _ in rows], np.int64)
    meta = np.array([numbered(words, _META_WORDS) for _, words in rows], np.int64)
    head_words = np.array(numbered([w for w in words_of(head) if w != "_"], _HEAD_WORDS), np.int64)
    parent = np.zeros(len(rows), np.int64)
    for place, element in enumerate(elements):
        if element[3] is not None and int(element[3]) < place:
            parent[HISTORY + place] = HISTORY + int(element[3]) + 1
    vectors = _vectors([word_vector(word)[1] for word in numbers])
    alike = np.clip((vectors[goal_words] @ vectors.T - _ALIKE) / (1 - _ALIKE), 0.0, 1.0)
    match = alike[:, label.T].max(1, initial=0.0)  # [G, I]
    features = np.zeros((len(rows), ITEM_FEATURES), np.float32)
    if len(goal_list):
        own = np.where(label > 0, alike[:, label].max(0), 0.0)  # [I, n] how well each of the words is matched
        features[:, 8] = match.max(0)
        features[:, 9] = (match > 0.9).sum(0) / 4
        features[:, 10] = own.sum(1) / np.maximum(1, (label > 0).sum(1))
    features[: len(actions), 11] = 1.0
    features[: len(actions), 12] = np.arange(len(actions)) / HISTORY
    last = actions[0] if actions else ([], [])
    listed = [one[0] for one in elements]
    joined = f" {' '.join(goal_list)} "
    for place, (name, words, _, _, bounds, class_name) in enumerate(elements):
        left, top, right, bottom = bounds
        row = features[HISTORY + place]
        row[:8] = (left, top, right, bottom, right - left, bottom - top, (left + right) / 2, place / 50)
        row[13] = last[0] == words and last[1][1:2] == [f"class {class_name}"]
        row[14] = bool(name) and listed.count(name) > 1
        row[15] = bool(name)
        row[16] = len(words) / 5 if words and f" {' '.join(words)} " in joined else 0.0
        row[17] = 1.0
    goal_features = np.zeros((len(goal_list), GOAL_FEATURES), np.float32)
    goal_features[:, 0] = match[:, HISTORY:].max(1, initial=0.0)
    goal_features[:, 1] = match[:, :HISTORY].max(1, initial=0.0)
    is_quoted = False
    for place, piece in enumerate(found):
        if piece[0] in '"“”':
            is_quoted = not is_quoted
        goal_features[place, 2:] = (is_quoted, piece[0][:1].isupper(), piece[0].isdigit(), 1.0)
    is_item = np.array([*[n < len(actions) for n in range(HISTORY)], *[True] * len(elements)])
    return Reading(
        goal, pieces, tuple(listed), tuple(numbers), goal_words, goal_features, label, meta, parent, features,
        is_item, match.astype(np.float32), head_words, step, unchanged,
    )  # fmt: skip


@dataclass
class Readings:
    """B prompts as padded tensors; the names are those of `Reading`, and words those of all prompts.

    Attributes:
        table, fixed: [U + 1] and [U + 1, FIXED_SIZE]: each word's place in the table of learned vectors,
            and its fixed vector; the first is no word, and names have the place 1.
        filled: [B, P], the places of the whole, goal and items, [1 + G + I], that hold something, in order;
            mask: [B, P] bool, False for others beyond them.
        place: [B, 1 + G + I], where in `filled` a place is.
        has_label: [B, MAX_LISTED] bool, the elements with a label.
    """

    table: Tensor
    fixed: Tensor
    goal_words: Tensor
    goal_features: Tensor
    label: Tensor
    meta: Tensor
    parent: Tensor
    features: Tensor
    match: Tensor
    head: Tensor
    step: Tensor
    unchanged: Tensor
    filled: Tensor
    mask: Tensor
    place: Tensor
    num_goal: Tensor
    num_elements: Tensor
    has_label: Tensor


def stack(readings: list[Reading], known: Collection[str], device: torch.device) -> Readings:
    """The prompts of a batch, as few columns wide as they allow; words not `known` share a learned vector."""
    numbers: dict[str, int] = {}
    count = len(readings)
    num_goal = [len(one.pieces) for one in readings]
    num_items = [len(one.is_item) for one in readings]
    wide, high = max([1, *num_goal]), max(num_items)
    arrays: dict[str, Array] = {
        "goal_words": np.zeros((count, wide), np.int64),
        "goal_features": np.zeros((count, wide, GOAL_FEATURES), np.float32),
        "label": np.zeros((count, high, _LABEL_WORDS), np.int64),
        "meta": np.zeros((count, high, _META_WORDS), np.int64),
        "parent": np.zeros((count, high), np.int64),
        "features": np.zeros((count, high, ITEM_FEATURES), np.float32),
        "match": np.zeros((count, wide, high), np.float32),
        "head": np.zeros((count, _HEAD_WORDS), np.int64),
        "has_label": np.zeros((count, MAX_LISTED), bool),
    }
    is_filled = np.zeros((count, 1 + wide + high), bool)
    is_filled[:, 0] = True
    for row, one in enumerate(readings):
        # The words of this prompt by their numbers in the batch.
        own = np.array([0, *[numbers.setdefault(word, len(numbers) + 1) for word in one.words]], np.int64)
        g, i = num_goal[row], num_items[row]
        arrays["goal_words"][row, :g] = own[one.goal_words]
        arrays["label"][row, :i] = own[one.label]
        arrays["meta"][row, :i] = own[one.meta]
        arrays["head"][row] = own[one.head]
        arrays["goal_features"][row, :g] = one.goal_features
        arrays["parent"][row, :i] = one.parent
        arrays["features"][row, :i] = one.features
        arrays["match"][row, :g, :i] = one.match
        is_filled[row, 1 : 1 + g] = True
        is_filled[row, 1 + wide : 1 + wide + i] = one.is_item
        arrays["has_label"][row, : len(one.labels)] = [bool(label) for label in one.labels]
    num_filled = is_filled.sum(1)
    arrays["filled"] = np.argsort(~is_filled, axis=1, kind="stable")[:, : num_filled.max()]
    arrays["mask"] = np.arange(num_filled.max()) < num_filled[:, None]
    arrays["place"] = is_filled.cumsum(1) - 1
    vectors = {word: word_vector(word) for word in numbers}
    places = [place if word in known or " " in word else 1 for word, (place, _) in vectors.items()]
    arrays["table"] = np.array([0, *places], np.int64)
    arrays["fixed"] = _vectors([vector for _, vector in vectors.values()])
    arrays["step"] = np.array([one.step for one in readings], np.int64)
    arrays["unchanged"] = np.array([one.unchanged for one in readings], np.float32)
    arrays["num_goal"] = np.array(num_goal, np.int64)
    arrays["num_elements"] = np.array([len(one.labels) for one in readings], np.int64)
    return Readings(**{name: torch.from_numpy(array).to(device) for name, array in arrays.items()})
