"""The question to a vision-language model, and the status that its answer ends with.

The question has an expert instruction, solved examples, then the episode's screens. Source: DistRL, appendix
A.2.1: "You're an expert in evaluating whether the Screenshot successfully completes the Task", examples of
question → expectation → status, then the task and the screenshot in question.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from pydantic import Field, ValidationError

from distrl.configs.parse import read_yaml
from distrl.core.errors import ConfigError, JudgeError
from distrl.core.model_points import MAX_PIXELS
from distrl.core.types import Record, Trajectory
from distrl.core.user_errors import first_problem
from distrl.evaluator.judges.base import screens

BUILTIN = Path(__file__).parent / "examples" / "examples.yaml"
QUALITY = 85
MAX_SIDE = 1024  # pixels of the longer side of a picture that is sent

_EXPERT = """You're an expert in evaluating whether the Screenshot successfully completes the Task.
Say first what the screen has to show if the task is done, then what it does show. Judge by what you see. \
A task that is done in part is not done. End with one line, "Status: success" or "Status: failure"."""


@dataclass(frozen=True)
class Question:
    """A question to a model.

    Attributes:
        system: The instruction.
        parts: Texts and encoded JPEG pictures, in order.
    """

    system: str
    parts: tuple[str | bytes, ...]

    @property
    def text(self) -> str:
        """The whole question, with placeholders for the pictures."""
        return "\n".join(
            [self.system, *(part if isinstance(part, str) else "[picture]" for part in self.parts)]
        )

    @property
    def digest(self) -> str:
        """BLAKE2b of texts and pictures."""
        hashed = hashlib.blake2b(digest_size=16)
        for part in (self.system, *self.parts):
            data = part.encode() if isinstance(part, str) else part
            hashed.update(f"{type(part).__name__}{len(data)}:".encode())
            hashed.update(data)
        return hashed.hexdigest()


class Example(Record):
    """A solved question. `image` is a file beside the YAML file."""

    image: str
    task: str
    question: str
    answer: str
    status: Literal["success", "failure"]


class _Examples(Record):
    examples: tuple[Example, ...] = Field(min_length=1)


class Prompt:
    """Makes questions.

    Args:
        examples: A YAML file of examples, "builtin", or None.
        num_screens: How many of the last screens are shown.

    Raises:
        ConfigError: The examples cannot be read.
    """

    def __init__(self, examples: str | None, num_screens: int) -> None:
        self._num_screens = num_screens
        self._examples: list[str | bytes] = []
        if examples is not None:
            file = BUILTIN if examples == "builtin" else Path(examples).expanduser()
            self._examples = ["=====Examples=====", *_example_parts(file)]

    def ask(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Question:
        """The question about an episode.

        Raises:
            JudgeError: A screenshot is not a valid image.
        """
        parts: list[str | bytes] = [*self._examples, "=====Your Turn====="]
        different = [digest for digest, _ in itertools.groupby(one.image for one in screens(trajectory))]
        shown = different[-self._num_screens :]
        for number, digest in enumerate(shown, start=1):
            name = "Screenshot" if len(shown) == 1 else f"Screenshot {number} of {len(shown)}"
            parts += [f"{name}{', the last' if number == len(shown) > 1 else ''}:"]
            parts += [_scaled(images[digest])]
        goal, last = trajectory.task.goal, "last " if len(shown) > 1 else ""
        expectation = f'What should I expect to see on the {last}screenshot if this has been done: "{goal}"?'
        parts += [f"Task: {goal}\nQ: {expectation}\nA:"]
        return Question(_EXPERT, tuple(parts))


def _example_parts(file: Path) -> list[str | bytes]:
    parts: list[str | bytes] = []
    for example in _read_examples(file):
        try:
            picture = _scaled((file.parent / example.image).read_bytes())
        except (OSError, JudgeError) as error:
            raise ConfigError(
                f"{file}: the picture {example.image!r} cannot be read: {error}.", "Correct the file."
            ) from error
        parts += [
            "Screenshot:",
            picture,
            f"Task: {example.task}\nQ: {example.question}\nA: {example.answer}\nStatus: {example.status}",
        ]
    return parts


def _read_examples(file: Path) -> Sequence[Example]:
    try:
        return _Examples.model_validate(read_yaml(file)).examples
    except ValidationError as error:
        raise ConfigError(
            f"{file}: {first_problem(error)}.", "See docs/evaluation.md for the format of examples."
        ) from error


def _scaled(data: bytes) -> bytes:
    """A picture as JPEG, its longer side at most `MAX_SIDE`; a JPEG of that size stays unchanged.

    Raises:
        JudgeError: It is not a valid image.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise JudgeError(f"A screenshot has {image.width}x{image.height} pixels.")
            if image.format == "JPEG" and max(image.size) <= MAX_SIDE:
                return data
            picture = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise JudgeError(f"A screenshot cannot be read: {error}.") from error
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


MAX_STATUSES = 100
"""An answer with more statuses than this is repetitive garbage."""

_SUCCESS = r"success|successful|succeeded"
_FAILURE = r"failure|failed|unsuccessful|incomplete"
_MEANS = {**dict.fromkeys(_SUCCESS.split("|"), True), **dict.fromkeys(_FAILURE.split("|"), False)}
_MARKS = re.compile(r"[*_`\"'“”‘’]")
"""Markdown and quotes; they do not change the meaning."""
_FENCE = re.compile(r"^```(?:json)?\s*(.*?)\s*```$", re.DOTALL)
_KEY = re.compile(r"(?:(?:final|overall|task)[\s_-]*)?status", re.IGNORECASE)
_OWN_LINE = re.compile(
    r"^[ \t>#{•\d.)-]*(?:(?:final|overall|task) )?status[ \t]*(?:[:：=]|[–—-][ \t])\s*(.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_PLAIN = {
    True: re.compile(rf"(?:{_SUCCESS})[\s.!}}]*[✅✓✔☑\ufe0f\s]*", re.IGNORECASE),
    False: re.compile(rf"(?:{_FAILURE})[\s.!}}]*[❌✗✘✖\ufe0f\s]*", re.IGNORECASE),
}
"""A status, and a mark that agrees with it."""
_LONE = re.compile(rf"^[ \t>#•-]*({_SUCCESS}|{_FAILURE})[^\w\n]*$", re.IGNORECASE | re.MULTILINE)
_SENTENCE = re.compile(
    r"\b(?:status|verdict|answer|result|outcome|conclusion|correction)\b"
    rf"[^.,;(\n]{{0,40}}?\b({_SUCCESS}|{_FAILURE})\b",
    re.IGNORECASE,
)
"""A sentence that states the outcome as well."""
_HEDGE = re.compile(
    r"\b(?:not?|never|only|without|partial\w*|part(?:ly)?|almost|\w+nt|or|if|maybe)\b|\?", re.IGNORECASE
)
"""Words that change the meaning of such a sentence. Apostrophes have been removed with the other marks."""
_BACK = r"\b(?:wait|actually|correction|second thoughts?|reconsider\w*|mistaken)\b"
_NOT_DONE = r"\bnot\s+(?:yet\s+|been\s+)*(?:done|complete|met|achieve|fulfil)"
_RETRACTED = {
    True: re.compile(rf"{_BACK}|\b(?:but|however|{_FAILURE})\b|{_NOT_DONE}", re.IGNORECASE),
    False: re.compile(rf"{_BACK}|\b(?:{_SUCCESS})\b", re.IGNORECASE),
}
"""Words that retract a status when they follow its line."""


def read_status(text: str) -> bool | None:
    """Whether an answer's status is success; None unless it is plain and nothing contradicts it.

    A line of its own decides, "Status: success" or "Status: failure", with nothing but a mark after it, or
    the key `status` of a JSON object. An answer that gives another status anywhere contradicts itself: no
    reward depends on a guess about its meaning. Reasoning up to `</think>` is not part of the answer.
    """
    answer = text.rpartition("</think>")[2].strip()
    fenced = _FENCE.match(answer)
    try:
        data = json.loads(fenced[1] if fenced else answer, object_pairs_hook=_every_value)
    except (ValueError, RecursionError):
        return _read_text(_MARKS.sub("", answer))
    pairs = data.items() if isinstance(data, dict) else ()
    found = [value for key, values in pairs if _KEY.fullmatch(key.strip()) for value in values]
    said = {_MEANS.get(one.strip().lower()) if isinstance(one, str) else None for one in found}
    return said.pop() if len(said) == 1 else None


def _read_text(plain: str) -> bool | None:
    """The status in a text without markdown."""
    lines = list(_OWN_LINE.finditer(plain))
    if not 0 < len(lines) <= MAX_STATUSES:
        return None
    values = [line[1].strip() for line in lines]
    said = {next((says for says in (True, False) if _PLAIN[says].fullmatch(one)), None) for one in values}
    said |= {_MEANS[word.lower()] for word in _LONE.findall(plain)}
    for found in _SENTENCE.finditer(plain):
        said.add(None if _HEDGE.search(found[0]) else _MEANS[found[1].lower()])
    if len(said) != 1 or (says := said.pop()) is None:
        return None
    return None if _RETRACTED[says].search(plain[lines[-1].end() :]) else says


def _every_value(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """A JSON object with all values of repeated keys."""
    found: dict[str, list[Any]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
