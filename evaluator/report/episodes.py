"""Episodes on a page: steps with screenshot, touch mark, action, log-probabilities and reward parts."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError

from distrl.core.actions import ActionKind
from distrl.core.types import ActionRecord, Chat, Fault, Outcome, TextPart, TimeStep, Trajectory
from distrl.evaluator.failure_modes import MODE_WORDS, FailureMode
from distrl.evaluator.judges.base import Verdict
from distrl.workers.rewards import same_action

TokenNames = Callable[[int], str]

OUTCOME_WORDS = {
    Outcome.SUCCESS: "solved",
    Outcome.FAILURE: "not solved",
    Outcome.IMPOSSIBLE_CLAIMED: "gave up",
    Outcome.STEP_LIMIT: "out of steps",
    Outcome.UNJUDGED: "not judged",
}


@dataclass(frozen=True)
class Token:
    """A sampled token: its text or number, log μ, the weight version, and a shade from 0 to 10."""

    text: str
    logprob: float | None
    version: int | None
    shade: int


@dataclass(frozen=True)
class Call:
    """One call of the policy: the prompt's text, the answer, and the tokens."""

    prompt: str
    text: str
    tokens: tuple[Token, ...]
    logprob: float | None
    num_prompt_tokens: int
    continues: bool


@dataclass(frozen=True)
class StepView:
    """One step, or `times` equal steps on an unchanged screen.

    `probability` is exp(Σ log μ) over the action's tokens, None when no policy acted; `versions` is as "v12".
    """

    number: int
    times: int
    shot: Picture
    mark: Mark
    kind: str
    action: str
    detail: str
    app: str
    probability: float | None
    versions: str
    rewards: tuple[tuple[str, float], ...]
    calls: tuple[Call, ...]
    seconds: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class EpisodeView:
    """One episode.

    `verdict` is a word such as "solved"; `tone` is "good", "bad" or "fault"; `judged` has the judge's model,
    answers and cost; `mode` is the failure mode, if it failed.
    """

    trajectory_id: str
    task_id: str
    template: str
    split: str
    goal: str
    params: tuple[tuple[str, str], ...]
    verdict: str
    reason: str
    tone: str
    steps: tuple[StepView, ...]
    num_steps: int
    final: Picture | None
    reward: float
    versions: str
    duration_s: float
    meta: tuple[tuple[str, str], ...]
    judged: tuple[tuple[str, str], ...] = ()
    mode: str = ""

    @property
    def anchor(self) -> str:
        """The episode's anchor on a page."""
        return f"e-{self.trajectory_id[:16]}"

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
    fold: bool = True,
    token_names: TokenNames | None = None,
    weights: str | None = None,
    mode: FailureMode | None = None,
) -> EpisodeView:
    """The view of an episode.

    Args:
        trajectory: The episode.
        images: Its encoded screenshots by digest; missing ones show as empty frames.
        verdict: The judge's.
        max_width: Pixels of the embedded screenshots.
        fold: Whether equal steps on an unchanged screen become one card.
        token_names: From token id to text; ids are shown without it.
        weights: The name of the weights that acted, e.g. a checkpoint's; None: their versions.
        mode: Why it failed, if it did.
    """
    groups = _fold(trajectory.steps) if fold else [[step] for step in trajectory.steps]
    steps, number = [], 1
    for group in groups:
        steps.append(_step_view(group, number, images, max_width, token_names, weights))
        number += len(group)
    last = trajectory.final
    return EpisodeView(
        trajectory_id=trajectory.id,
        task_id=trajectory.task.id,
        template=trajectory.task.template,
        split=trajectory.task.split,
        goal=trajectory.task.goal,
        params=tuple((name, str(value)) for name, value in trajectory.task.params.items()),
        verdict=_verdict_word(trajectory, verdict),
        reason=_reason(trajectory, verdict),
        tone=_tone(trajectory, verdict),
        steps=tuple(steps),
        num_steps=len(trajectory.steps),
        final=picture(images.get(last.image), last.width, last.height, max_width) if last else None,
        reward=trajectory.total_reward,
        versions=_weights(trajectory.steps, weights),
        duration_s=trajectory.duration_s,
        meta=_meta(trajectory),
        judged=_judged(verdict),
        mode=MODE_WORDS[mode] if mode is not None else "",
    )


def version_range(versions: Iterable[int]) -> str:
    """Weight versions as "v3" or "v3–v5"; "" when there are none."""
    found = sorted(set(versions))
    if not found:
        return ""
    return f"v{found[0]}" if len(found) == 1 else f"v{found[0]}–v{found[-1]}"


def _fold(steps: Sequence[TimeStep]) -> list[list[TimeStep]]:
    groups: list[list[TimeStep]] = []
    for step in steps:
        before = groups[-1][-1] if groups else None
        unchanged = before is not None and before.observation.image == step.observation.image
        if before is not None and unchanged and same_action(before.action, step.action):
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _step_view(
    group: Sequence[TimeStep],
    number: int,
    images: Mapping[str, bytes],
    max_width: int,
    token_names: TokenNames | None,
    weights: str | None,
) -> StepView:
    step = group[0]
    seen = step.observation
    shot = picture(images.get(seen.image), seen.width, seen.height, max_width)
    calls = tuple(_call(chat, token_names) for chat in step.chats)
    logprobs = [call.logprob for call in calls if call.logprob is not None]
    return StepView(
        number=number,
        times=len(group),
        shot=shot,
        mark=mark(step.action, shot),
        kind=step.action.kind,
        action=describe(step.action),
        detail=_detail(group),
        app=seen.app,
        probability=math.exp(min(0.0, sum(logprobs))) if logprobs else None,
        versions=_weights(group, weights),
        rewards=_rewards(group),
        calls=calls,
        seconds=_seconds(step),
    )


def _detail(group: Sequence[TimeStep]) -> str:
    """Why the action is invalid, or what the device's guard closed after it."""
    guarded = dict.fromkeys(step.guard for step in group if step.guard)
    return group[0].action.reason or (f"the guard left {', '.join(guarded)}" if guarded else "")


def _seconds(step: TimeStep) -> tuple[tuple[str, float], ...]:
    timing = step.timing
    parts = (
        ("observe", timing.observe_s),
        ("think", timing.think_s),
        ("act", timing.act_s),
        ("settle", timing.settle_s),
    )
    return tuple((name, value) for name, value in parts if value)


def _rewards(group: Sequence[TimeStep]) -> tuple[tuple[str, float], ...]:
    names = ("outcome", "repetition", "invalid", "shaping")
    sums = ((name, math.fsum(getattr(step.reward, name) for step in group)) for name in names)
    return tuple((name, value) for name, value in sums if value)


def _weights(steps: Sequence[TimeStep], name: str | None) -> str:
    chats = [chat for step in steps for chat in step.chats]
    versions = version_range(v for chat in chats for v in chat.completion.weight_versions)
    return name if name is not None and versions else versions


def _call(chat: Chat, token_names: TokenNames | None) -> Call:
    completion = chat.completion
    texts = [part.text for message in chat.messages for part in message.parts if isinstance(part, TextPart)]
    tokens = []
    for i, token in enumerate(completion.token_ids):
        logprob = completion.logprobs[i] if i < len(completion.logprobs) else None
        version = completion.weight_versions[i] if i < len(completion.weight_versions) else None
        name = token_names(token) if token_names is not None else str(token)
        tokens.append(Token(name, logprob, version, _shade(logprob)))
    return Call(
        prompt="\n".join(texts),
        text=completion.text,
        tokens=tuple(tokens),
        logprob=math.fsum(completion.logprobs) if completion.logprobs else None,
        num_prompt_tokens=len(completion.prompt_token_ids),
        continues=chat.continues,
    )


def _shade(logprob: float | None) -> int:
    """0 for a certain token to 10 for one of probability 0."""
    return 0 if logprob is None else round(10 * (1.0 - math.exp(min(0.0, logprob))))


def _verdict_word(trajectory: Trajectory, verdict: Verdict) -> str:
    if trajectory.fault is not Fault.NONE:
        return f"{trajectory.fault.value} fault"
    if verdict.success:
        return OUTCOME_WORDS[Outcome.SUCCESS]
    # A judge may contradict the worker's outcome.
    outcome = Outcome.FAILURE if trajectory.outcome is Outcome.SUCCESS else trajectory.outcome
    return OUTCOME_WORDS[outcome]


def _reason(trajectory: Trajectory, verdict: Verdict) -> str:
    if trajectory.fault is not Fault.NONE:
        return trajectory.fault_detail or "The episode is not counted."
    return verdict.reason


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


def _tone(trajectory: Trajectory, verdict: Verdict) -> str:
    if trajectory.fault is not Fault.NONE:
        return "fault"
    return "good" if verdict.success else "bad"


def _meta(trajectory: Trajectory) -> tuple[tuple[str, str], ...]:
    pairs = (
        ("purpose", trajectory.purpose.value),
        ("worker", f"{trajectory.worker}, slot {trajectory.slot}" if trajectory.worker else ""),
        ("lease", trajectory.lease_id),
        ("group", trajectory.group_id),
    )
    return tuple((name, value) for name, value in pairs if value)


_QUALITY = 72


@dataclass(frozen=True)
class Mark:
    """A mark over a screenshot, in the coordinates of a box of `width` × `height` units.

    Attributes:
        kind: "tap", "long_press", "swipe" or "" (nothing).
        x, y: Where the finger goes down.
        arrow: SVG path data of a swipe's shaft and head.
    """

    kind: str = ""
    x: float = 0.0
    y: float = 0.0
    arrow: str = ""


@dataclass(frozen=True)
class Picture:
    """A screenshot as it is embedded.

    Attributes:
        uri: "data:image/jpeg;base64,…", or "" when the bytes are missing or damaged.
        width, height: Its shape in units for the overlay; the overlay's width is always 100.
    """

    uri: str
    width: float
    height: float


def picture(data: bytes | None, width: int, height: int, max_width: int) -> Picture:
    """Embeds an encoded image, never wider than `max_width` pixels.

    Args:
        data: The encoded bytes; None if they are missing.
        width, height: The recorded size; it shapes the box if the bytes are missing.
        max_width: Pixels.
    """
    units = 100.0 * height / max(1, width)
    if data is None:
        return Picture("", 100.0, units)
    try:
        with Image.open(io.BytesIO(data)) as image:
            shrunk = image.convert("RGB")
    except (UnidentifiedImageError, OSError):
        return Picture("", 100.0, units)
    if shrunk.width > max_width:
        size = (max_width, max(1, round(shrunk.height * max_width / shrunk.width)))
        shrunk = shrunk.resize(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shrunk.save(buffer, "JPEG", quality=_QUALITY, optimize=True)
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return Picture(f"data:image/jpeg;base64,{encoded}", 100.0, units)


def mark(action: ActionRecord, shot: Picture) -> Mark:
    """The mark of `action` over `shot`."""
    if action.point is None or action.kind not in ("tap", "double_tap", "long_press", "swipe"):
        return Mark()
    x, y = action.point[0] * shot.width, action.point[1] * shot.height
    if action.kind != ActionKind.SWIPE.value or action.to is None:
        return Mark("tap" if action.kind == "double_tap" else action.kind, x, y)
    return Mark("swipe", x, y, _arrow(x, y, action.to[0] * shot.width, action.to[1] * shot.height))


def _arrow(x0: float, y0: float, x1: float, y1: float, head: float = 7.0) -> str:
    angle = math.atan2(y1 - y0, x1 - x0)
    path = f"M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}"
    for turn in (math.pi * 5 / 6, -math.pi * 5 / 6):
        path += (
            f"M{x1:.1f} {y1:.1f}"
            f"L{x1 + head * math.cos(angle + turn):.1f} {y1 + head * math.sin(angle + turn):.1f}"
        )
    return path


def describe(action: ActionRecord) -> str:
    """An action in a few words."""
    if action.kind == "tap":
        return f"Tap {_at(action.point)}"
    if action.kind == "double_tap":
        return f"Double tap {_at(action.point)}"
    if action.kind == "long_press":
        return f"Long press {_at(action.point)}"
    if action.kind == "swipe":
        return f"Swipe {_direction(action)}"
    if action.kind == "type":
        return f"Type “{action.text}”"
    if action.kind in ("open_app", "answer"):
        return f"{'Open' if action.kind == 'open_app' else 'Answer'} “{action.text}”"
    words = {
        "back": "Press Back",
        "home": "Press Home",
        "enter": "Press Enter",
        "wait": "Wait",
        "complete": "Says: done",
        "impossible": "Says: impossible",
        "invalid": "Not an action",
    }
    return words.get(action.kind, f"Unknown action “{action.kind}”")


def _at(point: tuple[float, float] | None) -> str:
    return "" if point is None else f"{100 * point[0]:.0f}%, {100 * point[1]:.0f}%"


def _direction(action: ActionRecord) -> str:
    if action.point is None or action.to is None:
        return ""
    dx, dy = action.to[0] - action.point[0], action.to[1] - action.point[1]
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "down" if dy > 0 else "up"
