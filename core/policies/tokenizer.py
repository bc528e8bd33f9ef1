"""Action text and prompt text to the embedded policy's token ids, and back.

The text is DigiRL's and DistRL's AutoUI notation: `"action_type": "DUAL_POINT", "touch_point": "[y, x]",
"lift_point": "[y, x]", "typed_text": ""`, y first. A tap's lift point repeats its touch point, so the tokens
leave it out and `decode` writes it again: the text stays what any AutoUI parser reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
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
_DUAL = '"action_type": "DUAL_POINT", "touch_point": "[{v}, '
_HOLD = '"action_type": "LONG_PRESS", "touch_point": "[{v}, '
_HERE = '{v}]", "lift_point": "[{y}, {v}]", "typed_text": ""'
# Coordinate groups, in the order that they may follow one another; the last of each path ends the action. The
# texts are of a coordinate with value v, y being the row of the touch.
PATHS = (
    {"tap y": _DUAL, "x": _HERE},
    {"hold y": _HOLD, "hold x": _HERE},
    {
        "swipe y": _DUAL,
        "swipe x": '{v}]", "lift_point": "[',
        "to y": "{v}, ",
        "to x": '{v}]", "typed_text": ""',
    },
)
# Words that prompts use around the goal: the AutoUI agent's, AutoUI's own, and names of kinds of actions.
PROMPT_WORDS = (
    *("step", "last", "goal", "none", "previous", "action", "actions", "task", "screen", "user"),
    *("tap", "long", "press", "swipe", "type", "back", "home", "enter", "wait", "invalid"),
)
NUMBERS = [str(number) for number in range(60)] + [f"{number:02d}" for number in range(10)]
_WORD = re.compile(r"[^\W\d_]+|\d+")
_PIECES = re.compile(rf"{_WORD.pattern}|.", re.DOTALL)
_NUMBER = r"(-?\d+(?:\.\d+)?)"
_POINT = rf'"\[{_NUMBER}, ?{_NUMBER}\]"'
_HEAD = rf'"action_type": "(\w+)", "touch_point": {_POINT}, "lift_point": {_POINT}, "typed_text": '
_ACTION = re.compile(_HEAD + '"(.*)"', re.DOTALL)
_EMBEDDED = re.compile(_HEAD + '"([^"\n]*)"')
_NOWHERE = '"touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", "typed_text": "'
_FILE = "tokenizer.json"


def grid_values(count: int) -> tuple[str, ...]:
    """The centres of `count` equal cells of [0, 1], as the two-decimal texts that actions use."""
    return tuple(f"{(index + 0.5) / count:.2f}" for index in range(count))


class ActionTokenizer:
    """Lossless tokens for AutoUI action texts, on a grid of tap positions, and for goal texts.

    Ids are a function of the arguments alone, so that every process has the same.

    Args:
        words: Words of the suite's goals, in any order; each has a token of its own.
        grid: The tap grid, (columns, rows).

    Attributes:
        tokens: All token names, by id.
        end_ids: The tokens after which a completion is over.
        words: The id of each word or number that has a token of its own.
    """

    def __init__(self, words: Iterable[str], grid: tuple[int, int]) -> None:
        self._grid = grid
        values = {"x": grid_values(grid[0]), "y": grid_values(grid[1])}
        texts = {group: text for path in PATHS for group, text in path.items()}
        coordinates = [(group, value) for group in texts for value in values[group[-1]]]
        known = {piece.lower() for word in (*PROMPT_WORDS, *words) for piece in _WORD.findall(word)}
        ordered = NUMBERS + sorted(known - set(NUMBERS))
        self.tokens = (
            *(PAD, END, CAP, GLUE, TYPE),
            *(f"<{name}>" for name in FIXED_ACTIONS),
            *(f"<{group} {value}>" for group, value in coordinates),
            *(f"<0x{byte:02x}>" for byte in range(256)),
            *ordered,
        )
        ids = {token: index for index, token in enumerate(self.tokens)}
        self._end, self._cap, self._glue, self._type = (ids[name] for name in (END, CAP, GLUE, TYPE))
        self._fixed = {name: ids[f"<{name}>"] for name in FIXED_ACTIONS}
        self._groups = {group: [ids[f"<{group} {value}>"] for value in values[group[-1]]] for group in texts}
        self._coordinates = {ids[f"<{group} {value}>"]: (texts[group], value) for group, value in coordinates}
        self._first_byte = ids["<0x00>"]
        self.words = {word: ids[word] for word in ordered}
        self._words = {index: word for word, index in self.words.items()}
        lasts = [token for path in PATHS for token in self._groups[list(path)[-1]]]
        self.end_ids = sorted([*self._fixed.values(), *lasts, self._end])

    def grammar(self) -> Tensor:
        """[V, V] bool: whether token j may follow token i; row `<pad>` holds what may come first.

        After a token that ends a completion only `<end>` is allowed; nothing is sampled there, but the row
        stays finite.
        """
        size = len(self.tokens)
        allowed = torch.zeros(size, size, dtype=torch.bool)
        allowed[0, [*self._fixed.values(), self._type]] = True
        for path in PATHS:
            groups = [self._groups[name] for name in path]
            allowed[0, groups[0]] = True
            for before, after in pairwise(groups):
                allowed[before[0] : before[-1] + 1, after[0] : after[-1] + 1] = True
        spelled = torch.zeros(size, dtype=torch.bool)
        spelled[[*range(self._first_byte, size), self._cap, self._glue]] = True
        begins_text, follows_text = spelled.clone(), spelled.clone()
        begins_text[self._type] = True
        follows_text[self._end] = True
        allowed |= begins_text[:, None] & follows_text[None, :]
        allowed[self.end_ids, self._end] = True
        return allowed

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
        return [*ids, *self._encode_words(text[end:]), self._end]

    def _encode_words(self, text: str) -> list[int]:
        """Words, numbers, and bytes for everything else; a space is kept only between two spelled words."""
        tokens: list[int] = []
        spelled = spaced = False
        for piece in _PIECES.findall(text.lower()):
            if piece.isspace():
                spaced = True
                continue
            word = self.words.get(piece)
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
        kind = match.group(1) if match is not None else ""
        if match is None or kind not in ("TYPE", "DUAL_POINT", "LONG_PRESS", *self._fixed):
            raise PolicyError(
                f"{text!r:.200} is not an action in AutoUI notation.",
                "The embedded policy only writes AutoUI actions: use agent.kind 'autoui'.",
            )
        if kind in self._fixed:
            return [self._fixed[kind]]
        if kind == "TYPE":
            return [self._type, *self._encode_text(match.group(6)), self._end]
        y, x, to_y, to_x = (float(point) for point in match.groups()[1:5])
        start, stop = self._cell(y, x), self._cell(to_y, to_x)
        if kind == "LONG_PRESS":
            path, cells = PATHS[1], start
        else:
            path, cells = (PATHS[0], start) if start == stop else (PATHS[2], start + stop)
        return [self._groups[group][place] for group, place in zip(path, cells, strict=True)]

    def _cell(self, y: float, x: float) -> tuple[int, ...]:
        columns, rows = self._grid
        return tuple(min(count - 1, max(0, int(at * count))) for at, count in ((y, rows), (x, columns)))

    def _encode_text(self, text: str) -> list[int]:
        """Words, numbers and bytes whose `_decode_text` is `text`."""
        tokens: list[int] = []
        pending, after_word = "", False
        for piece in _PIECES.findall(text):
            word = self.words.get(piece.lower())
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
                tokens.append(self._glue)
            pending, after_word = "", True
            tokens += [self._cap, word] if capitalised else [word]
        return tokens + self._bytes(pending)

    def _bytes(self, text: str) -> list[int]:
        return [self._first_byte + byte for byte in text.encode("utf-8", errors="replace")]

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion. Tokens that cannot stand where they stand give an unparsable text."""
        parts: list[str] = []
        run: list[int] = []
        touch_y, in_text = "?", False
        for index in token_ids:
            if index >= self._first_byte or index in (self._cap, self._glue):
                run.append(index)
                continue
            parts.append(self._decode_text(run))
            run = []
            if index == self._end:
                parts.append('"' if in_text else "")
            elif index == self._type:
                in_text = True
                parts.append(f'"action_type": "TYPE", {_NOWHERE}')
            elif index in self._coordinates:
                text, value = self._coordinates[index]
                touch_y = value if text in (_DUAL, _HOLD) else touch_y
                parts.append(text.format(v=value, y=touch_y))
            elif index != 0:
                parts.append(f'"action_type": "{self.tokens[index][1:-1]}", {_NOWHERE}"')
        return "".join([*parts, self._decode_text(run)])

    def _decode_text(self, ids: Sequence[int]) -> str:
        out = bytearray()
        after_word = capital = glue = False
        for index in ids:
            if index == self._cap:
                capital = True
            elif index == self._glue:
                glue = True
            elif index not in self._words:
                out.append(index - self._first_byte)
                after_word = capital = glue = False
            else:
                word = self._words[index]
                space = " " if after_word and not glue else ""
                out += (space + (word.capitalize() if capital else word)).encode()
                after_word, capital, glue = True, False, False
        return out.decode("utf-8", errors="replace")

    def save(self, directory: Path) -> None:
        """Writes the words and the grid to `directory`/tokenizer.json."""
        content = {"format": 1, "grid": list(self._grid), "words": sorted(self.words)}
        (directory / _FILE).write_text(json.dumps(content, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> ActionTokenizer | None:
        """Reads what `save` wrote; None if `directory` has no tokenizer of this kind.

        Raises:
            CheckpointError: The file is damaged.
        """
        path = directory / _FILE
        try:
            content: Any = json.loads(path.read_text(encoding="utf-8"))
            if "grid" not in content:
                return None
            columns, rows = content["grid"]
            return cls(map(str, content["words"]), (int(columns), int(rows)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"The tokenizer {path} cannot be read: {error!r}.", "Choose another checkpoint."
            ) from error


def saved_words(directory: Path) -> list[str] | None:
    """The words in the tokenizer of a policy that has a word list, None for others.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = directory / _FILE
    try:
        words = json.loads(path.read_text(encoding="utf-8")).get("words")
        return None if words is None else [str(word) for word in words]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(
            f"The tokenizer {path} cannot be read: {error!r}.", "Choose another checkpoint."
        ) from error


def save_words(directory: Path, kind: str, words: Sequence[str]) -> None:
    """Writes what `saved_words` reads."""
    content = {"format": 1, "kind": kind, "words": list(words)}
    (directory / _FILE).write_text(json.dumps(content, ensure_ascii=False, indent=0), encoding="utf-8")


def check_words(directory: Path, words: Sequence[str]) -> None:
    """Raises CheckpointError unless `directory` was saved with these words."""
    if saved_words(directory) != words:
        raise CheckpointError(
            f"The checkpoint {directory} does not have this policy's vocabulary.",
            "Use the tasks and policy configuration that it was made with.",
        )


def token_names(file: Path) -> Callable[[int], str] | None:
    """A function from token id to text, by a file of `ActionTokenizer` or of the tokenizers library.

    None if it is damaged.
    """
    from tokenizers import Tokenizer

    try:
        if (embedded := ActionTokenizer.load(file.parent)) is not None:
            names = dict(enumerate(embedded.tokens))
            return lambda token: names.get(token, str(token))
        if json.loads(file.read_text(encoding="utf-8")).get("kind") == "arm":
            return str  # numbers of bins
        if (words := saved_words(file.parent)) is not None:
            from distrl.core.policies.reader import Blocks

            pointers = dict(enumerate(Blocks(len(words)).names(words)))
            return lambda token: pointers.get(token, str(token))
        hub = Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 - the library raises nothing more precise
        return None
    return lambda token: hub.id_to_token(token) or str(token)
