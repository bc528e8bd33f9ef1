"""Action text and prompt text to the embedded policy's token ids, and back.

The text is DigiRL's and DistRL's AutoUI notation: `"action_type": "DUAL_POINT", "touch_point": "[y, x]",
"lift_point": "[y, x]", "typed_text": ""`, y first. A tap's lift point repeats its touch point, so the tokens
leave it out and `decode` writes it again: the text stays what any AutoUI parser reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies.vocabulary import (
    CAP,
    END,
    FIXED_ACTIONS,
    GLUE,
    PATHS,
    TYPE,
    Vocabulary,
    build_vocabulary,
    grid_values,
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
        """Words, numbers and, for the rest, bytes; a space is kept only between two spelled words."""
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
