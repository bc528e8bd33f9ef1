"""The question to a vision-language model: expert instruction, solved examples, then the episode's screens.

Source: DistRL, appendix A.2.1: "You're an expert in evaluating whether the Screenshot successfully completes
the Task", examples of question → expectation → status, then the task and the screenshot in question.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from PIL import Image
from pydantic import Field, ValidationError

from distrl.configs.parse import read_yaml
from distrl.core.errors import ConfigError, JudgeError
from distrl.core.fields import first_problem
from distrl.core.image_sizes import MAX_PIXELS
from distrl.core.types import Record, Trajectory
from distrl.evaluator.judges.base import screens

BUILTIN = Path(__file__).parent / "examples" / "examples.yaml"
QUALITY = 85

_EXPERT = """You're an expert in evaluating whether the Screenshot successfully completes the Task.
Say first what the screen has to show if the task is done, then what it does show. Judge by what you see. \
A task that is done in part is not done. End with one line, "Status: success" or "Status: failure"."""


@dataclass(frozen=True)
class Question:
    """What a model is asked.

    Attributes:
        system: The instruction.
        parts: Texts and encoded JPEG pictures, in order.
    """

    system: str
    parts: tuple[str | bytes, ...]

    @property
    def text(self) -> str:
        """All of it, with marks in place of the pictures."""
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
        max_pixels: The longer side of a picture.

    Raises:
        ConfigError: The examples cannot be read.
    """

    def __init__(self, examples: str | None, num_screens: int, max_pixels: int) -> None:
        self._num_screens, self._max_pixels = num_screens, max_pixels
        self._examples: list[str | bytes] = []
        if examples is not None:
            file = BUILTIN if examples == "builtin" else Path(examples).expanduser()
            self._examples = ["=====Examples=====", *_example_parts(file, max_pixels)]

    def ask(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Question:
        """The question about an episode.

        Raises:
            JudgeError: A screenshot is no picture.
        """
        parts: list[str | bytes] = [*self._examples, "=====Your Turn====="]
        shown = _last_different(trajectory, self._num_screens)
        for number, digest in enumerate(shown, start=1):
            name = "Screenshot" if len(shown) == 1 else f"Screenshot {number} of {len(shown)}"
            parts += [f"{name}{', the last' if number == len(shown) > 1 else ''}:"]
            parts += [_scaled(images[digest], self._max_pixels)]
        goal, last = trajectory.task.goal, "last " if len(shown) > 1 else ""
        expectation = f'What should I expect to see on the {last}screenshot if this has been done: "{goal}"?'
        parts += [f"Task: {goal}\nQ: {expectation}\nA:"]
        return Question(_EXPERT, tuple(parts))


def _last_different(trajectory: Trajectory, count: int) -> list[str]:
    """The digests of the last screens, oldest first; one that did not change is there once."""
    found: list[str] = []
    for shown in screens(trajectory):
        if not found or found[-1] != shown.image:
            found.append(shown.image)
    return found[-count:]


def _example_parts(file: Path, max_pixels: int) -> list[str | bytes]:
    parts: list[str | bytes] = []
    for example in _read_examples(file):
        try:
            picture = _scaled((file.parent / example.image).read_bytes(), max_pixels)
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
            f"{file}: {first_problem(error)}.", "See docs/judges.md for what an example has."
        ) from error


def _scaled(data: bytes, max_pixels: int) -> bytes:
    """A picture as JPEG, its longer side at most `max_pixels`; one that is so already stays as it is.

    Raises:
        JudgeError: It is none.
    """
    try:
        with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                raise JudgeError(f"A screenshot has {image.width}x{image.height} pixels.")
            if image.format == "JPEG" and max(image.size) <= max_pixels:
                return data
            picture = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise JudgeError(f"A screenshot cannot be read: {error}.") from error
    picture.thumbnail((max_pixels, max_pixels))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()
