"""Episodes on a page: steps with screenshot, touch mark, action, log-probabilities and reward parts."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from distrl.core.model_points import MAX_PIXELS
from distrl.core.types import (
    ActionRecord,
    Chat,
    Element,
    Fault,
    Outcome,
    TextPart,
    TimeStep,
    Trajectory,
    Verdict,
)
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.workers.agents.elements import element_at, scrolling_at

TokenNames = Callable[[int], str]
QUALITY = 72
"""Of embedded JPEG files."""

OUTCOME_WORDS = {
    Outcome.SUCCESS: "solved",
    Outcome.FAILURE: "not solved",
    Outcome.IMPOSSIBLE_CLAIMED: "gave up",
    Outcome.STEP_LIMIT: "out of steps",
    Outcome.UNJUDGED: "not judged",
}


@dataclass(frozen=True)
class Picture:
    """A screenshot as it is embedded; `uri` is "" if there is none to embed.

    `height` is in units for the overlay, whose width is always 100.
    """

    uri: str
    height: float


@dataclass(frozen=True)
class Mark:
    """A mark over a screenshot, in the coordinates of a box 100 units wide.

    Attributes:
        kind: "tap", "long_press", "swipe" or "" (nothing).
        arrow: SVG path data of a swipe's shaft and head.
    """

    kind: str = ""
    x: float = 0.0
    y: float = 0.0
    arrow: str = ""


@dataclass(frozen=True)
class Token:
    """A sampled token: its text or number, log μ, and a shade from 0 (certain) to 10 (of probability 0)."""

    text: str
    logprob: float | None
    shade: int


@dataclass(frozen=True)
class Call:
    """One call of the policy: its record, the prompt's text, the tokens, and their log-probability."""

    chat: Chat
    prompt: str
    tokens: tuple[Token, ...]
    logprob: float | None


@dataclass(frozen=True)
class StepView:
    """One step.

    Attributes:
        detail: Why the action is invalid, or what the device's guard closed after it.
        probability: exp(Σ log μ) over the action's tokens; None when no policy acted.
        touched: The number of the element that the action touched or scrolled, None if that is unknown.
        versions: The weights that acted, such as "v12".
        rewards: The parts that are not 0, by name.
    """

    step: TimeStep
    number: int
    shot: Picture
    mark: Mark
    action: str
    touched: int | None
    detail: str
    probability: float | None
    versions: str
    rewards: dict[str, float]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class EpisodeView:
    """One episode; `verdict` is a word such as "solved", `tone` is "good", "bad" or "fault"."""

    trajectory: Trajectory
    verdict: str
    reason: str
    tone: str
    steps: tuple[StepView, ...]
    final: Picture | None
    versions: str
    judged: tuple[tuple[str, str], ...] = ()
    mode: str = ""

    @property
    def anchor(self) -> str:
        """The episode's anchor on a page."""
        return f"e-{self.trajectory.id[:16]}"

    @property
    def num_listed(self) -> int:
        """The most elements that one of its screens lists."""
        screens = [*(step.step.observation for step in self.steps), self.trajectory.final]
        return max(len(one.elements or ()) if one is not None else 0 for one in screens)

    @property
    def size_bytes(self) -> int:
        """The size of the embedded screenshots."""
        shots = [step.shot for step in self.steps] + ([self.final] if self.final is not None else [])
        return sum(len(shot.uri) for shot in shots)


def episode_view(
    trajectory: Trajectory,
    images: Mapping[str, bytes],
    verdict: Verdict,
    max_width: int,
    token_names: TokenNames | None = None,
    weights: str | None = None,
    mode: FailureMode | None = None,
) -> EpisodeView:
    """The view of an episode.

    Args:
        max_width: Pixels of the embedded screenshots.
        token_names: From token id to text; ids are shown without it.
        weights: The name of the weights that acted, e.g. a checkpoint's; None: their versions.
    """
    steps = []
    first = 1 + (len(trajectory.branch.past) if trajectory.branch is not None else 0)
    for number, step in enumerate(trajectory.steps, first):
        seen = step.observation
        shot = picture(images.get(seen.shown), seen.width, seen.height, max_width)
        steps.append(_step_view(step, number, shot, token_names, weights))
    last, fault = trajectory.final, trajectory.fault
    reason, tone = verdict.reason, "good" if verdict.success else "bad"
    if fault is not Fault.NONE:
        reason, tone = trajectory.fault_detail or "The episode is not counted.", "fault"
    return EpisodeView(
        trajectory=trajectory,
        verdict=ended(fault, verdict.success, trajectory.outcome),
        reason=reason,
        tone=tone,
        steps=tuple(steps),
        final=picture(images.get(last.shown), last.width, last.height, max_width) if last else None,
        versions=_weights(trajectory.steps, weights),
        judged=_judged(verdict),
        mode=MODE_WORDS[mode] if mode is not None else "",
    )


def ended(fault: Fault, success: bool, outcome: Outcome) -> str:
    """How an episode ended, in words. A judge may contradict the worker's outcome."""
    if fault is not Fault.NONE:
        return f"{fault.value} fault"
    if success:
        return OUTCOME_WORDS[Outcome.SUCCESS]
    return OUTCOME_WORDS[Outcome.FAILURE if outcome is Outcome.SUCCESS else outcome]


def _step_view(
    step: TimeStep,
    number: int,
    shot: Picture,
    token_names: TokenNames | None,
    weights: str | None,
) -> StepView:
    calls = tuple(_call(chat, token_names) for chat in step.chats)
    logprobs = [call.logprob for call in calls if call.logprob is not None]
    return StepView(
        step=step,
        number=number,
        shot=shot,
        mark=mark(step.action, shot),
        action=describe(step.action),
        touched=touched(step.action, step.observation.elements or ()),
        detail=step.action.reason or (f"the guard left {step.guard}" if step.guard else ""),
        probability=math.exp(min(0.0, sum(logprobs))) if logprobs else None,
        versions=_weights([step], weights),
        rewards={name: value for name, value in step.reward if value},
        calls=calls,
    )


def _weights(steps: Sequence[TimeStep], name: str | None) -> str:
    """The weights that acted, by name or as "v3" or "v3–v5"; "" if no policy acted."""
    found = {v for step in steps for chat in step.chats for v in chat.completion.weight_versions}
    if not found:
        return ""
    if name is not None:
        return name
    return f"v{min(found)}" if len(found) == 1 else f"v{min(found)}–v{max(found)}"


def _call(chat: Chat, token_names: TokenNames | None) -> Call:
    completion = chat.completion
    texts = [part.text for message in chat.messages for part in message.parts if isinstance(part, TextPart)]
    tokens = []
    for i, token in enumerate(completion.token_ids):
        logprob = completion.logprobs[i] if i < len(completion.logprobs) else None
        shade = 0 if logprob is None else round(10 * (1.0 - math.exp(min(0.0, logprob))))
        tokens.append(Token(token_names(token) if token_names is not None else str(token), logprob, shade))
    logprob = math.fsum(completion.logprobs) if completion.logprobs else None
    return Call(chat, "\n".join(texts), tuple(tokens), logprob)


def _judged(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """The verdict's fields other than success and reason, if they are set."""
    shown = {"success", "score", "reason"}
    found = {name: value for name, value in verdict if name not in shown and value}
    if not found:
        return ()
    lines = [("score", f"{verdict.score:.2f}")]
    for name, value in found.items():
        texts = value if isinstance(value, tuple) else (value,)
        lines += [(name.replace("_", " "), str(text)) for text in texts]
    return tuple(lines)


def picture(data: bytes | None, width: int, height: int, max_width: int) -> Picture:
    """Embeds an encoded image, never wider than `max_width` pixels.

    An empty box if the bytes, which any worker may have sent, are missing, damaged or too large an image.
    """
    units = 100.0 * height / max(1, width)
    try:
        with Image.open(io.BytesIO(data or b""), formats=("JPEG", "PNG", "WEBP")) as image:
            if image.width * image.height > MAX_PIXELS:
                return Picture("", units)
            shrunk = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, AssertionError, Image.DecompressionBombError):
        return Picture("", units)
    if shrunk.width > max_width:
        size = (max_width, max(1, round(shrunk.height * max_width / shrunk.width)))
        shrunk = shrunk.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shrunk.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return Picture(f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}", units)


def mark(action: ActionRecord, shot: Picture) -> Mark:
    """The mark of `action` over `shot`."""
    kind = "tap" if action.kind == "double_tap" else action.kind
    if action.point is None or kind not in ("tap", "long_press", "swipe"):
        return Mark()
    x, y = action.point[0] * 100, action.point[1] * shot.height
    if kind != "swipe" or action.to is None:
        return Mark(kind, x, y)
    return Mark(kind, x, y, _arrow(x, y, action.to[0] * 100, action.to[1] * shot.height))


def _arrow(x0: float, y0: float, x1: float, y1: float, head: float = 7.0) -> str:
    angle = math.atan2(y1 - y0, x1 - x0)
    path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    for turn in (math.pi * 5 / 6, -math.pi * 5 / 6):
        x2, y2 = x1 + head * math.cos(angle + turn), y1 + head * math.sin(angle + turn)
        path += f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"
    return path


def touched(action: ActionRecord, elements: Sequence[Element]) -> int | None:
    """The number of the element that an action touches, scrolls or types into."""
    if action.point is not None and action.to is not None:
        return scrolling_at(elements, action.point, action.to)
    if action.point is not None:
        return element_at(elements, action.point)
    focused = (number for number, one in enumerate(elements) if "focused" in one.flags)
    return next(focused, None) if action.kind == "type" else None


def describe(action: ActionRecord) -> str:
    """An action in a few words."""
    point = "" if action.point is None else f"{100 * action.point[0]:.0f}%, {100 * action.point[1]:.0f}%"
    words = {
        "tap": f"Tap {point}",
        "double_tap": f"Double tap {point}",
        "long_press": f"Long press {point}",
        "swipe": f"Swipe {_direction(action)}",
        "type": f"Type “{action.text}”",
        "open_app": f"Open “{action.text}”",
        "answer": f"Answer “{action.text}”",
        "back": "Press Back",
        "home": "Press Home",
        "enter": "Press Enter",
        "wait": "Wait",
        "complete": "Says: done",
        "impossible": "Says: impossible",
        "motion": f"Move, {len(action.motion)} rows",
        "invalid": "Not an action",
    }
    return words.get(action.kind, f"Unknown action “{action.kind}”")


def _direction(action: ActionRecord) -> str:
    if action.point is None or action.to is None:
        return ""
    dx, dy = action.to[0] - action.point[0], action.to[1] - action.point[1]
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "down" if dy > 0 else "up"
