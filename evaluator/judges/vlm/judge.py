"""The judge `vlm`: the question to a vision-language model, its answers, and their votes.

The question has an expert instruction, solved examples, then the episode's screens. Source: DistRL, appendix
A.2.1: "You're an expert in evaluating whether the Screenshot successfully completes the Task", examples of
question → expectation → status, then the task and the screenshot in question.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from PIL import Image
from pydantic import Field, ValidationError

from distrl.configs.judge import VlmConfig
from distrl.configs.parse import read_yaml
from distrl.core.errors import ConfigError, JudgeError, JudgeRefuses, JudgeUnavailable
from distrl.core.http_post import GARBLED, PostFailed
from distrl.core.model_points import MAX_PIXELS
from distrl.core.types import Record, Spent, Trajectory, Verdict
from distrl.core.user_errors import first_problem
from distrl.evaluator.judges.base import screens
from distrl.evaluator.judges.vlm.client import Answer, BudgetSpent, Endpoint, image_part, text_part

BUILTIN = Path(__file__).parent / "examples" / "examples.yaml"
OPENAI_URL = "https://api.openai.com/v1"
QUALITY = 85
MAX_SIDE = 1024  # pixels of the longer side of a picture that is sent
MENDABLE_S = 120.0
"""When to retry after an error that a user has to fix: longer than a pause between two tries."""

_MENDABLE = frozenset({401, 402, 403, 404})
_BAD_KEY = re.compile(r"API[ _]KEY[ _](?:is )?(?:not valid|INVALID|expired)|invalid API key", re.IGNORECASE)
"""Gemini's messages about an invalid key, which come with status 400."""

_EXPERT = """You're an expert in evaluating whether the Screenshot successfully completes the Task.
Say first what the screen has to show if the task is done, then what it does show. Judge by what you see. \
A task that is done in part is not done. End with one line, "Status: success" or "Status: failure"."""

Part = str | bytes
"""A text, or an encoded picture."""


class VlmJudge:
    """A vision-language model behind an HTTP endpoint. Thread-safe."""

    name = "vlm"

    def __init__(self, config: VlmConfig) -> None:
        self._config = config
        if not config.model:
            raise ConfigError("judge.model is empty.", "Set it to the model that judges.")
        url, prices = config.url or OPENAI_URL, (config.price_input, config.price_output)
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"judge.url {url!r} is not a valid URL.", "Start it with https://.")
        self._endpoint = Endpoint(
            url, config.model, read_key(config), config.timeout_s, config.attempts, prices, config.max_calls
        )
        self._examples: list[Part] = []
        if config.examples is not None:
            file = BUILTIN if config.examples == "builtin" else Path(config.examples).expanduser()
            self._examples = ["=====Examples=====", *_example_parts(file)]

    def wait_by(self, wait: Callable[[float], bool]) -> None:
        """Makes pauses by `wait`, which returns True to end them."""
        self._endpoint.wait = wait

    def judge(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> Verdict:
        """The verdict of more than half of the votes; undecided without one, or if the budget is spent.

        Raises:
            JudgeUnavailable: The endpoint does not answer.
            JudgeError: The endpoint rejects the question, or a screenshot is not a valid image.
        """
        parts, config = self._question(trajectory, images), self._config
        content = [text_part(part) if isinstance(part, str) else image_part(part) for part in parts]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": _EXPERT},
            {"role": "user", "content": content},
        ]
        spent, answers, votes, problem = list[Spent](), list[str](), list[bool](), ""
        failure: JudgeError | None = None
        try:
            while len(votes) < config.votes and 2 * max(map(votes.count, (True, False))) <= config.votes:
                answers.append(
                    self._endpoint.ask(messages, config.temperature, config.max_tokens, spent, self._read)
                )
                votes.append(bool(read_status(answers[-1])))
        except BudgetSpent as error:
            problem = str(error)
        except PostFailed as error:
            failure = _meaning(error)
            problem = str(failure or error.detail)
        successes = votes.count(True)
        is_decided = not problem and 2 * max(successes, len(votes) - successes) > config.votes
        if is_decided:
            problem = answers[votes.index(2 * successes > len(votes))]  # the first answer with that status
        elif not problem:
            problem = f"The votes disagree: {successes} for success, {len(votes) - successes} against."
        line = " ".join(problem.split())
        verdict = Verdict(
            success=is_decided and 2 * successes > len(votes),
            score=successes / len(votes) if votes else 0.0,
            reason=line if len(line) <= 500 else f"{line[:499]}…",
            is_decided=is_decided,
            judge=self.name,
            model=config.model,
            prompt="\n".join([_EXPERT, *(one if isinstance(one, str) else "[picture]" for one in parts)]),
            answers=tuple(answers),
        )
        if failure is not None:
            failure.spent, failure.asked = Spent.total(spent), verdict
            raise failure
        return verdict.after(*spent)

    def _question(self, trajectory: Trajectory, images: Mapping[str, bytes]) -> list[Part]:
        parts: list[Part] = [*self._examples, "=====Your Turn====="]
        different = [digest for digest, _ in itertools.groupby(one.image for one in screens(trajectory))]
        shown = different[-self._config.screenshots :]
        for number, digest in enumerate(shown, start=1):
            name = "Screenshot" if len(shown) == 1 else f"Screenshot {number} of {len(shown)}"
            parts += [f"{name}{', the last' if number == len(shown) > 1 else ''}:", _scaled(images[digest])]
        goal, last = trajectory.task.goal, "last " if len(shown) > 1 else ""
        expectation = f'What should I expect to see on the {last}screenshot if this has been done: "{goal}"?'
        return [*parts, f"Task: {goal}\nQ: {expectation}\nA:"]

    def _read(self, answer: Answer) -> str:
        problem = ""
        if answer.is_cut:  # the rest could have contradicted it
            problem = f"The answer was cut off at judge.max_tokens={self._config.max_tokens}. Increase it."
        elif not answer.text:
            problem = "The reply contains no answer."
        elif read_status(answer.text) is None:
            end = " ".join(answer.text.split())[-200:]  # where its status should be
            problem = f"The answer has no status, or several; it ends with {end!r}."
        if problem:
            raise PostFailed(GARBLED, problem)
        return answer.text


def _meaning(error: PostFailed) -> JudgeError | None:
    """The error for a failed request; None for an answer that is not valid."""
    detail = f"The endpoint: {error.detail}"
    if error.status in _MENDABLE or (error.status == 400 and _BAD_KEY.search(error.detail)):
        remedy = "Check judge.url, judge.model and the key."
        return JudgeRefuses(detail, remedy, retry_after_s=MENDABLE_S)
    if error.status == GARBLED:
        return None
    return (
        JudgeUnavailable(detail, retry_after_s=error.retry_after_s) if error.may_pass else JudgeError(detail)
    )


def read_key(config: VlmConfig) -> str:
    """The key, from the environment."""
    key = os.environ.get(config.key_env, "").strip()
    if config.key_env and not key:
        raise ConfigError(
            f"The environment variable {config.key_env} (judge.key_env) is not set.",
            "Set it to the endpoint's key, or set judge.key_env to '' for an endpoint without keys.",
        )
    return key


class Example(Record):
    """A solved question. `image` is a file beside the YAML file."""

    image: str
    task: str
    question: str
    answer: str
    status: Literal["success", "failure"]


class _Examples(Record):
    examples: tuple[Example, ...] = Field(min_length=1)


def _example_parts(file: Path) -> list[Part]:
    parts: list[Part] = []
    try:
        for one in _Examples.model_validate(read_yaml(file)).examples:
            text = f"Task: {one.task}\nQ: {one.question}\nA: {one.answer}\nStatus: {one.status}"
            parts += ["Screenshot:", _scaled((file.parent / one.image).read_bytes()), text]
    except ValidationError as error:
        raise ConfigError(
            f"{file}: {first_problem(error)}.", "See docs/evaluation.md for the format of examples."
        ) from error
    except (OSError, JudgeError) as error:
        raise ConfigError(f"{file}: a picture cannot be read: {error}.", "Correct the file.") from error
    return parts


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
    except (OSError, ValueError, SyntaxError, AssertionError, Image.DecompressionBombError) as error:
        raise JudgeError(f"A screenshot cannot be read: {str(error) or 'it is damaged'}.") from error
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


_MEANS = {"success": True, "successful": True, "failure": False, "failed": False, "unsuccessful": False}
_MARKS = re.compile(r"[*_`#>\"'“”‘’✅✔❌\ufe0f]")
"""Markdown, quotes and marks."""
_FENCE = re.compile(r"```(?:json)?\s*({.*?})\s*```$", re.DOTALL)
_LINE = re.compile(r"(?:[-•] *)?(?:(?:final|overall|task) )?status *[:：=](.*)", re.IGNORECASE)


def read_status(text: str) -> bool | None:
    """Whether an answer's status is success; None unless it is plain and no other status contradicts it.

    The last line decides, "Status: success" or "Status: failure" with nothing after it, or the key `status`
    of a JSON object: no reward depends on a guess about the meaning of an answer. Reasoning up to
    `</think>` is not part of the answer.
    """
    answer = text.rpartition("</think>")[2].strip()
    fenced = _FENCE.search(answer)
    try:
        data = json.loads(fenced[1] if fenced else answer, object_pairs_hook=tuple)
    except (ValueError, RecursionError):
        lines = [_LINE.fullmatch(_MARKS.sub("", line).strip()) for line in answer.splitlines()]
        found: list[Any] = [line[1] for line in lines if line] if lines and lines[-1] else []
    else:
        pairs: Sequence[Any] = data if isinstance(data, tuple) else ()
        found = [value for key, value in pairs if key.lower().strip().endswith("status")]
    said = {_MEANS.get(str(one).strip(" .!").lower()) for one in found}
    return said.pop() if len(said) == 1 else None
