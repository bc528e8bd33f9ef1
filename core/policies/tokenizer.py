"""Action text and prompt text to the embedded policy's token ids, and back.

The text is DigiRL's and DistRL's AutoUI notation: `"action_type": "DUAL_POINT", "touch_point": "[y, x]",
"lift_point": "[y, x]", "typed_text": ""`, y first. A tap's lift point repeats its touch point, so the tokens
leave it out and `decode` writes it again: the text stays what any AutoUI parser reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from distrl.core.errors import CheckpointError, PolicyError

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
        """[V, V] bool: whether token j may follow token i; row `<pad>` holds what may come first.

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


_NUMBER = r"(-?\d+(?:\.\d+)?)"
_POINT = rf'"\[{_NUMBER}, ?{_NUMBER}\]"'
_HEAD = rf'"action_type": "(\w+)", "touch_point": {_POINT}, "lift_point": {_POINT}, "typed_text": '
_ACTION = re.compile(_HEAD + '"(.*)"', re.DOTALL)
_EMBEDDED = re.compile(_HEAD + '"([^"\n]*)"')
_PIECES = re.compile(r"[^\W\d_]+|\d+|.", re.DOTALL)
_LIFT = ']", "lift_point": "['
_NO_TEXT = ']", "typed_text": ""'
_NOWHERE = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", "typed_text": "'
_FILE = "tokenizer.json"


class ActionTokenizer:
    """Lossless tokens for AutoUI action texts, on a grid of tap positions, and for goal texts.

    Args:
        vocabulary: The tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.terminals = vocabulary.terminals
        self._fixed = {name: vocabulary.ids[f"<{name}>"] for name in FIXED_ACTIONS}
        self._values = {
            name: dict(
                zip(
                    vocabulary.group(name),
                    grid_values(vocabulary.rows if name.endswith("y") else vocabulary.columns),
                    strict=True,
                )
            )
            for path in PATHS
            for name in path
        }
        self._words = {index: word for word, index in vocabulary.words.items()}

    def encode_prompt(self, text: str) -> list[int]:
        """The tokens of a prompt, then `<end>`: lower-cased words, action texts as action tokens."""
        ids: list[int] = []
        end = 0
        for match in _EMBEDDED.finditer(text):
            ids += self._encode_words(text[end : match.start()])
            try:
                ids += self.encode_action(match.group())
            except PolicyError:  # an unknown action type: read it as words
                ids += self._encode_words(match.group())
            end = match.end()
        return [*ids, *self._encode_words(text[end:]), self.vocabulary.ids[END]]

    def _encode_words(self, text: str) -> list[int]:
        """Words, numbers, and bytes for everything else; a space is kept only between two spelled words."""
        tokens: list[int] = []
        spelled = spaced = False
        for piece in _PIECES.findall(text.lower()):
            if piece.isspace():
                spaced = True
                continue
            word = self.vocabulary.words.get(piece)
            if word is not None:
                tokens.append(word)
            else:
                tokens += self._bytes(f" {piece}" if spelled and spaced else piece)
            spelled, spaced = word is None and piece.isalnum(), False
        return tokens

    def encode_action(self, text: str) -> list[int]:
        """The tokens of one action text, its points moved to the nearest grid values.

        Raises:
            PolicyError: If `text` is not an action in AutoUI notation.
        """
        match = _ACTION.fullmatch(text.strip())
        if match is None:
            raise PolicyError(
                f"{text!r:.200} is not an action in AutoUI notation.",
                "The embedded policy only writes AutoUI actions: use agent.kind 'autoui'.",
            )
        kind, *points, typed = match.groups()
        if kind in self._fixed:
            return [self._fixed[kind]]
        ids = self.vocabulary.ids
        if kind == "TYPE":
            return [ids[TYPE], *self._encode_text(typed), ids[END]]
        if kind not in ("DUAL_POINT", "LONG_PRESS"):
            raise PolicyError(
                f"Unknown action type {kind!r}.",
                f"Known: DUAL_POINT, LONG_PRESS, TYPE, {', '.join(FIXED_ACTIONS)}.",
            )
        y, x, to_y, to_x = (float(point) for point in points)
        start, stop = self._cell(y, x), self._cell(to_y, to_x)
        group = self.vocabulary.group
        if kind == "LONG_PRESS":
            return [group("hold y")[start[0]], group("hold x")[start[1]]]
        if start == stop:
            return [group("tap y")[start[0]], group("x")[start[1]]]
        return [
            group("swipe y")[start[0]],
            group("swipe x")[start[1]],
            group("to y")[stop[0]],
            group("to x")[stop[1]],
        ]

    def _cell(self, y: float, x: float) -> tuple[int, int]:
        rows, columns = self.vocabulary.rows, self.vocabulary.columns
        return (
            min(rows - 1, max(0, int(y * rows))),
            min(columns - 1, max(0, int(x * columns))),
        )

    def _encode_text(self, text: str) -> list[int]:
        """Words, numbers and bytes whose `_decode_text` is `text`."""
        ids, pending = self.vocabulary.ids, ""
        tokens: list[int] = []
        after_word = False
        for piece in _PIECES.findall(text):
            word = self.vocabulary.words.get(piece.lower())
            capitalised = piece == piece.lower().capitalize() and piece != piece.lower()
            if word is None or not (capitalised or piece == piece.lower()):
                if piece == " " and not pending:
                    pending = " "
                    continue
                tokens += self._bytes(pending + piece)
                pending, after_word = "", False
                continue
            if pending and not after_word:
                tokens += self._bytes(pending)
            elif after_word and not pending:
                tokens.append(ids[GLUE])
            pending, after_word = "", True
            tokens += [ids[CAP], word] if capitalised else [word]
        return tokens + self._bytes(pending)

    def _bytes(self, text: str) -> list[int]:
        return [self.vocabulary.first_byte + byte for byte in text.encode("utf-8", errors="replace")]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion. Tokens that cannot stand where they stand give an unparsable text."""
        parts: list[str] = []
        touch_y = "?"
        run: list[int] = []
        in_text = False
        for index in token_ids:
            if self._is_text(index):
                run.append(index)
                continue
            parts.append(self._decode_text(run))
            run = []
            name = self.vocabulary.tokens[index]
            if name == END:
                parts.append('"' if in_text else "")
            elif name == TYPE:
                in_text = True
                parts.append(f'"action_type": "TYPE", {_NOWHERE}')
            elif index in self._fixed.values():
                parts.append(f'"action_type": "{name[1:-1]}", {_NOWHERE}"')
            else:
                touch_y, part = self._decode_coordinate(index, touch_y)
                parts.append(part)
        parts.append(self._decode_text(run))
        return "".join(parts)

    def _decode_coordinate(self, index: int, touch_y: str) -> tuple[str, str]:
        """The text of a coordinate token after a touch at row `touch_y`, and the touch row from now on."""
        group = next((name for name, values in self._values.items() if index in values), None)
        if group is None:
            return touch_y, ""
        value = self._values[group][index]
        if group in ("tap y", "hold y", "swipe y"):
            kind = "LONG_PRESS" if group == "hold y" else "DUAL_POINT"
            return value, f'"action_type": "{kind}", "touch_point": "[{value}, '
        if group in ("x", "hold x"):
            return touch_y, f"{value}{_LIFT}{touch_y}, {value}{_NO_TEXT}"
        if group == "swipe x":
            return touch_y, f"{value}{_LIFT}"
        return touch_y, f"{value}, " if group == "to y" else f"{value}{_NO_TEXT}"

    def _is_text(self, index: int) -> bool:
        first = self.vocabulary.first_byte
        special = (self.vocabulary.ids[CAP], self.vocabulary.ids[GLUE])
        return first <= index < first + 256 or index in self._words or index in special

    def _decode_text(self, ids: Sequence[int]) -> str:
        out = bytearray()
        first = self.vocabulary.first_byte
        after_word = capital = glue = False
        for index in ids:
            if first <= index < first + 256:
                out.append(index - first)
                after_word = capital = glue = False
            elif index == self.vocabulary.ids[CAP]:
                capital = True
            elif index == self.vocabulary.ids[GLUE]:
                glue = True
            else:
                word = self._words[index]
                space = " " if after_word and not glue else ""
                out += (space + (word.capitalize() if capital else word)).encode()
                after_word, capital, glue = True, False, False
        return out.decode("utf-8", errors="replace")

    def save(self, directory: Path) -> None:
        """Writes the vocabulary to `directory`/tokenizer.json."""
        vocabulary = self.vocabulary
        content = {
            "format": 1,
            "grid": [vocabulary.columns, vocabulary.rows],
            "words": sorted(vocabulary.words),
        }
        (directory / _FILE).write_text(json.dumps(content, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> ActionTokenizer:
        """Reads what `save` wrote.

        Raises:
            CheckpointError: If the file is missing, truncated or no tokenizer.
        """
        path = directory / _FILE
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            columns, rows = content["grid"]
            return cls(build_vocabulary(map(str, content["words"]), (int(columns), int(rows))))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"The tokenizer {path} cannot be read: {error!r}.", "Choose another checkpoint."
            ) from error

    @staticmethod
    def words_in(directory: Path) -> list[str] | None:
        """The words in a saved tokenizer, None if `directory` has none of this kind.

        Raises:
            CheckpointError: If the file is truncated.
        """
        path = directory / _FILE
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            return [str(word) for word in content["words"]]
        except (FileNotFoundError, KeyError):
            return None
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"The tokenizer {path} cannot be read: {error!r}.", "Choose another checkpoint."
            ) from error
