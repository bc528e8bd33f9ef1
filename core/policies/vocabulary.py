"""The embedded policy's vocabulary: which tokens exist, in which order, and which may follow which.

An action is few tokens: each sampled token costs a decoder step and adds variance to a policy gradient.

    tap           `<tap y>` `<x>`                              2 tokens, both on the tap grid
    swipe         `<swipe y>` `<swipe x>` `<to y>` `<to x>`    4 tokens
    long press    `<hold y>` `<hold x>`                        2 tokens
    press, status `<PRESS_BACK>` …                             1 token
    type          `<TYPE>` words, numbers or bytes… `<end>`

Words are lower-case; `<cap>` capitalises the next one, `<glue>` suppresses the space before it, and whatever
is not a word is spelled in UTF-8 bytes: every text has tokens and comes back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

PAD = "<pad>"
END = "<end>"
CAP = "<cap>"
GLUE = "<glue>"
TYPE = "<TYPE>"
FIXED_ACTIONS = (
    "PRESS_BACK",
    "PRESS_HOME",
    "PRESS_ENTER",
    "STATUS_TASK_COMPLETE",
    "STATUS_TASK_IMPOSSIBLE",
    "WAIT",
)
# Coordinate groups, in the order that they may follow one another; the last of each line ends the action.
PATHS = (
    ("tap y", "x"),
    ("hold y", "hold x"),
    ("swipe y", "swipe x", "to y", "to x"),
)
# Words that prompts use around the goal: the AutoUI agent's, AutoUI's own, and names of kinds of actions.
PROMPT_WORDS = (
    *("step", "last", "goal", "none", "previous", "action", "actions", "task", "screen", "user"),
    *("tap", "long", "press", "swipe", "type", "back", "home", "enter", "wait", "invalid"),
)
WORD_PIECE = re.compile(r"[^\W\d_]+|\d+")


def grid_values(count: int) -> tuple[str, ...]:
    """The centres of `count` equal cells of [0, 1], as the two-decimal texts that actions use."""
    return tuple(f"{(index + 0.5) / count:.2f}" for index in range(count))


@dataclass(frozen=True)
class Vocabulary:
    """Token texts by id, and the ids of each group.

    Attributes:
        columns, rows: The tap grid.
        tokens: All token names, by id.
        ids: Id of each token name.
        words: Id of each word or number that has a token of its own.
    """

    columns: int
    rows: int
    tokens: tuple[str, ...]
    ids: dict[str, int] = field(repr=False)
    words: dict[str, int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.tokens)

    def group(self, name: str) -> range:
        """The ids of a coordinate group, ordered along the grid: "tap y", "x", "swipe y", "to x", …"""
        values = grid_values(self.rows if name.endswith("y") else self.columns)
        first = self.ids[f"<{name} {values[0]}>"]
        return range(first, first + len(values))

    @property
    def first_byte(self) -> int:
        """The id of the token for byte 0; the other 255 follow it."""
        return self.ids["<0x00>"]

    @property
    def goal_words(self) -> tuple[int, ...]:
        """The ids of all words but numbers and those that prompts use around the goal."""
        return tuple(
            index for word, index in self.words.items() if not word.isdigit() and word not in PROMPT_WORDS
        )

    @property
    def terminals(self) -> frozenset[int]:
        """The tokens after which a completion is over."""
        fixed = [self.ids[f"<{name}>"] for name in FIXED_ACTIONS]
        points = [index for path in PATHS for index in self.group(path[-1])]
        return frozenset([*fixed, *points, self.ids[END]])

    def grammar(self) -> Tensor:
        """[V, V] bool: whether token j may follow token i; row `<pad>` tells what may come first.

        After a terminal token only `<end>` is allowed; nothing is sampled there, but the row stays finite.
        """
        size = len(self)
        allowed = torch.zeros(size, size, dtype=torch.bool)
        fixed = [self.ids[f"<{name}>"] for name in FIXED_ACTIONS]
        allowed[0, [*fixed, self.ids[TYPE]]] = True
        for path in PATHS:
            groups = [self.group(name) for name in path]
            allowed[0, groups[0].start : groups[0].stop] = True
            for before, after in pairwise(groups):
                allowed[before.start : before.stop, after.start : after.stop] = True
        spelled = [*range(self.first_byte, self.first_byte + 256), *self.words.values()]
        spelled += [self.ids[CAP], self.ids[GLUE]]
        text_rows = torch.zeros(size, dtype=torch.bool)
        text_rows[[self.ids[TYPE], *spelled]] = True
        text_columns = torch.zeros(size, dtype=torch.bool)
        text_columns[[self.ids[END], *spelled]] = True
        allowed |= text_rows[:, None] & text_columns[None, :]
        allowed[sorted(self.terminals), self.ids[END]] = True
        return allowed


def split_words(text: str) -> list[str]:
    """The lower-cased runs of letters and runs of digits in `text`."""
    return [piece.lower() for piece in WORD_PIECE.findall(text)]


def build_vocabulary(words: Iterable[str], grid: tuple[int, int]) -> Vocabulary:
    """The vocabulary for a suite's words and a tap grid of (columns, rows).

    The order is a function of the arguments alone, so that every process builds the same ids.
    """
    columns, rows = grid
    tokens = [PAD, END, CAP, GLUE, TYPE, *(f"<{name}>" for name in FIXED_ACTIONS)]
    for group in (name for path in PATHS for name in path):
        tokens += [f"<{group} {value}>" for value in grid_values(rows if group.endswith("y") else columns)]
    tokens += [f"<0x{byte:02x}>" for byte in range(256)]
    numbers = [str(number) for number in range(60)] + [f"{number:02d}" for number in range(10)]
    known = {piece for word in (*PROMPT_WORDS, *words) for piece in split_words(word)}
    ordered = numbers + sorted(known - set(numbers))
    first_word = len(tokens)
    tokens += ordered
    return Vocabulary(
        columns=columns,
        rows=rows,
        tokens=tuple(tokens),
        ids={token: index for index, token in enumerate(tokens)},
        words={word: first_word + index for index, word in enumerate(ordered)},
    )
