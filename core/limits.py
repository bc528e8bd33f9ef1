"""What a trajectory on the wire may hold: limits that always hold, and those of a run.

They are checked where a message is decoded and before a commit, not in the types: what an earlier version
stored stays readable. Other messages are bounded by their own types, see `core.message_parts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from distrl.core.actions import ActionKind
from distrl.core.types import ActionRecord, Chat, Completion, TimeStep, Trajectory
from distrl.core.verdicts import Spent

MAX_NAME = 200
"""Characters of a name, an id or an address."""

MAX_REWARD = 1e3
"""The magnitude of a part of a reward, and the sum of all magnitudes of a trajectory. A success is 1: where
advantages are normalised, one return of 10⁶ leaves nothing of all others in its batch."""

MAX_SUM = 1e12
"""The magnitude of seconds, costs and counts, which reports add up."""

MAX_TEXT = 100_000
"""Characters of what an episode says about itself."""

MAX_TOKEN = 2**31 - 1
MAX_VERSION = 2**53
LOGPROBS = (-1e4, 1e-2)
"""Of a sampled token; rounding may take one a little above 0."""

MAX_CHATS = 8
"""Chats of a step."""

_KINDS = frozenset(kind.value for kind in ActionKind)


def check_trajectory(trajectory: Trajectory) -> str:
    """The first value of `trajectory` that no run accepts, in words; "" if there is none."""
    return next(_problems(trajectory), "")


@dataclass(frozen=True)
class RunLimits:
    """The limits of one run.

    Attributes:
        num_tokens: Size of the vocabulary.
        max_prompt_tokens, max_sequence_tokens: Of a prompt, and of a sequence with its answers; None where
            the policy does not bound them.
        max_new_tokens: Of an answer.
        newest_version: Tells the newest weight version of the run.
    """

    num_tokens: int
    max_prompt_tokens: int | None
    max_sequence_tokens: int | None
    max_new_tokens: int
    newest_version: Callable[[], int]

    def check(self, trajectory: Trajectory) -> str:
        """The first value of `trajectory` that this run does not accept, in words; "" if there is none."""
        num_steps, most = len(trajectory.steps), trajectory.task.max_steps
        if num_steps > most:
            return f"it has {num_steps} steps, and its task at most {most}"
        newest, length = self.newest_version(), 0
        for number, step in enumerate(trajectory.steps):
            for chat in step.chats:
                prompt, tokens = chat.completion.prompt_token_ids, chat.completion.token_ids
                length = (length if chat.continues else 0) + len(prompt) + len(tokens)
                if problem := self._of_chat(chat, length, newest):
                    return f"steps.{number}: {problem}"
        return ""

    def _of_chat(self, chat: Chat, length: int, newest: int) -> str:
        completion = chat.completion
        prompt, tokens = completion.prompt_token_ids, completion.token_ids
        for ids in (prompt, tokens):
            if ids and max(ids) >= self.num_tokens:
                return f"token {max(ids)}, and the policy's vocabulary has {self.num_tokens}"
        if max(completion.weight_versions, default=0) > newest:
            return f"weight version {max(completion.weight_versions)}, and the newest is {newest}"
        if len(tokens) > self.max_new_tokens:
            return f"an answer of {len(tokens)} tokens, learner.max_new_tokens is {self.max_new_tokens}"
        if self.max_prompt_tokens is not None and not chat.continues and len(prompt) > self.max_prompt_tokens:
            return f"a prompt of {len(prompt)} tokens, policy.max_prompt_tokens is {self.max_prompt_tokens}"
        if self.max_sequence_tokens is not None and length > self.max_sequence_tokens:
            return f"a sequence of {length} tokens, and it may have {self.max_sequence_tokens}"
        return ""


def _problems(trajectory: Trajectory) -> Iterator[str]:
    for name in ("id", "lease_id", "group_id", "worker"):
        value = getattr(trajectory, name)
        if len(value) > MAX_NAME or not value.isprintable() or (name == "id" and not value):
            yield f"{name} must be one line of at most {MAX_NAME} printable characters"
    if not 0 <= trajectory.slot <= MAX_TOKEN:
        yield f"slot is {trajectory.slot}"
    for name in ("success", "truth"):
        score = getattr(trajectory, name)
        if score is not None and not 0.0 <= score <= 1.0:
            yield f"{name} is {score:g}, which is not within 0 and 1"
    verdict = trajectory.verdict
    for record, names in (
        (trajectory, ("started_at", "duration_s")),
        (verdict, ("step", *Spent.model_fields)),
    ):
        for name in names if record is not None else ():
            if abs(getattr(record, name)) > MAX_SUM:
                yield f"{name} is {getattr(record, name):g}, beyond {MAX_SUM:g}"
    for name, text in (
        ("task.goal", trajectory.task.goal),
        ("fault_detail", trajectory.fault_detail),
        ("shortfall", trajectory.shortfall),
    ):
        if len(text) > MAX_TEXT:
            yield f"{name} has {len(text)} characters, more than {MAX_TEXT}"
    for number, step in enumerate(trajectory.steps):
        for problem in _problems_of_step(step):
            yield f"steps.{number}.{problem}"
    total = sum(abs(part) for step in trajectory.steps for part in vars(step.reward).values())
    if total > MAX_REWARD:
        yield f"the parts of its rewards add up to {total:g}, beyond {MAX_REWARD:g}"


def _problems_of_step(step: TimeStep) -> Iterator[str]:
    for name, part in vars(step.reward).items():
        if abs(part) > MAX_REWARD:
            yield f"reward.{name} is {part:g}, beyond {MAX_REWARD:g}"
    for name, seconds in vars(step.timing).items():
        if abs(seconds) > MAX_SUM:
            yield f"timing.{name} is {seconds:g}, beyond {MAX_SUM:g}"
    yield from _problems_of_action(step.action)
    screen = step.observation
    if not all(0 <= size <= MAX_TOKEN for size in (screen.width, screen.height, screen.distance or 0)):
        yield "observation: a size or the distance is out of range"
    if len(step.chats) > MAX_CHATS:
        yield f"chats: there are {len(step.chats)}, and at most {MAX_CHATS} in a step"
    for chat in step.chats:
        yield from _problems_of_completion(chat.completion)


def _problems_of_action(action: ActionRecord) -> Iterator[str]:
    if action.kind not in _KINDS:
        yield f"action.kind {action.kind[:40]!r} is not a kind of action"
    for point in (action.point, action.to):
        if point is not None and not all(0.0 <= fraction <= 1.0 for fraction in point):
            yield f"action: the point {point} is not on the screen"


def _problems_of_completion(completion: Completion) -> Iterator[str]:
    for name, values, low, high in (
        ("prompt_token_ids", completion.prompt_token_ids, 0, MAX_TOKEN),
        ("token_ids", completion.token_ids, 0, MAX_TOKEN),
        ("logprobs", completion.logprobs, *LOGPROBS),
        ("weight_versions", completion.weight_versions, 0, MAX_VERSION),
    ):
        if values and not low <= min(values) <= max(values) <= high:
            yield f"completion.{name} must be within {low:g} and {high:g}"
    if not len(completion.token_ids) == len(completion.logprobs) == len(completion.weight_versions):
        yield "completion: each token needs one log-probability and one weight version"
    if len(completion.server) > MAX_NAME:
        yield f"completion.server has {len(completion.server)} characters, more than {MAX_NAME}"
