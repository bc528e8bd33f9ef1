"""The record: what is stored and sent of an episode (ChatMessage → Chat → TimeStep → Trajectory).

Screenshots are content-addressed: a message part and an observation name the BLAKE2b digest of an encoded
image, and the bytes (those that the policy saw) travel and are stored once beside the record.
Token ids are those that were sampled; nothing here is ever re-derived from text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of all records: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Number = Annotated[float, Field(allow_inf_nan=False)]
Item = TypeVar("Item")
Many = Annotated[tuple[Item, ...], Field(fail_fast=True)]
"""Items of a record. Reading ends at the first wrong one: the errors of all of them would take a thousand
times the memory of a hostile message."""


class Spent(Record):
    """What requests to a model behind an endpoint took, failed ones included.

    Tokens are as the endpoint counted them, 0 where it does not say; the cost is by the prices that are
    configured, 0 without prices.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Number = 0.0

    @classmethod
    def total(cls, parts: Iterable[Spent]) -> Spent:
        """The sum of all."""
        found = list(parts)
        return cls(**{name: sum(getattr(one, name) for one in found) for name in cls.model_fields})

    def describe(self) -> str:
        """In a few words; the cost only where there are prices."""
        cost = f", cost {self.cost:.4g}" if self.cost else ""
        return f"{self.calls:,} calls, {self.input_tokens:,} + {self.output_tokens:,} tokens{cost}"


class Verdict(Record):
    """A judge's verdict on an episode, and how it was reached.

    Attributes:
        score: Credit in [0, 1]; of a judge that is unsure, the probability of success.
        is_decided: False if the judge reached no verdict: the episode is unjudged, whatever `success` says.
        judge, model: The judge's kind, and a model's name or a trained judge's directory.
        step: The number of steps that were looked at, counted from 1; 0 for all.
        prompt, answers: What a model was asked, without its pictures, and its answers, one text per vote.
        calls, input_tokens, output_tokens, cost: As in `Spent`.
    """

    success: bool
    score: Number = Field(ge=0.0, le=1.0)
    reason: str
    is_decided: bool = True
    judge: str = ""
    model: str = ""
    step: int = 0
    prompt: str = ""
    answers: Many[str] = ()
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Number = 0.0

    @classmethod
    def none(cls, judge: str, reason: str, asked: Verdict | None = None) -> Verdict:
        """That of a judge that came to no verdict, with what is known of how it was asked."""
        if asked is not None:
            return asked.model_copy(update={"reason": reason, "is_decided": False, "success": False})
        return cls(success=False, score=0.0, reason=reason, is_decided=False, judge=judge)

    @property
    def spent(self) -> Spent:
        """What it took to ask."""
        return Spent(**{name: getattr(self, name) for name in Spent.model_fields})

    def after(self, *earlier: Spent) -> Verdict:
        """The verdict with what was spent before it came."""
        return self.model_copy(update=dict(Spent.total([*earlier, self.spent])))


def image_digest(data: bytes) -> str:
    """The content address of encoded image bytes: 32 hex digits of BLAKE2b."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class TextPart(Record):
    """Text inside a chat message."""

    type: Literal["text"] = "text"
    text: str


class ImagePart(Record):
    """An image inside a chat message, by content address."""

    type: Literal["image"] = "image"
    digest: str


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ChatMessage(Record):
    """One message of a chat; `parts` keep the order of text and images."""

    role: Literal["system", "user", "assistant", "tool"]
    parts: Many[Part]


class Sampling(Record):
    """How tokens are drawn. `temperature` 0 is greedy. Truncation (top_p, top_k) is off by default, since it
    biases importance ratios."""

    temperature: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    top_k: int = Field(0, ge=0)
    max_new_tokens: int = Field(32, ge=1, le=2**17)
    top_logprobs: int = Field(0, ge=0, le=20, exclude=True)  # for HTTP clients; neither sent nor stored


class Completion(Record):
    """The policy's answer.

    Attributes:
        prompt_token_ids: The prompt exactly as the policy saw it; of a chat that continues, what was added to
            the sequence before it.
        token_ids: Sampled tokens, end-of-sequence included when it was sampled.
        logprobs: log μ of each sampled token under the sampling temperature.
        queue_s, run_s: Seconds that its request waited at the server, and that it ran.
        batch: The number at its server of what ran together; with vLLM of what was started together.
        top_logprobs: For each token the `sampling.top_logprobs` most probable ones and their
            log-probabilities; neither sent nor stored.
    """

    text: str
    prompt_token_ids: Many[int] = ()
    token_ids: Many[int] = ()
    logprobs: Many[Number] = ()
    weight_versions: Many[int] = ()
    sampling: Sampling = Sampling()
    server: str = ""
    queue_s: Number = 0.0
    run_s: Number = 0.0
    batch: int = 0
    top_logprobs: Many[Many[tuple[int, float]]] = Field((), exclude=True)


class Chat(Record):
    """One language-model call: the messages and what came back.

    A chat that `continues` extends the token sequence of the chat before it in the episode: what the
    policy saw is that chat's whole sequence (its own prompt, its sampled tokens) and then
    `completion.prompt_token_ids`. Its `messages` are the new ones only. So a sequence is stored once, however
    many chats it has; `Prefix` puts it together.

    Of a demonstration, `executed` is False where the completion is the expert's and another action was
    executed.
    """

    messages: Many[ChatMessage]
    completion: Completion
    continues: bool = False
    executed: bool = True

    @property
    def images(self) -> tuple[str, ...]:
        """The images of its messages, in order of appearance."""
        return shown_images(self.messages)


class Prefix(Record):
    """What a chat continues: a sequence of token ids, and the images whose placeholders are in it."""

    token_ids: Many[int] = ()
    images: Many[str] = ()

    def before(self, chat: Chat) -> Prefix:
        """What the policy saw before the chat's own tokens, where `self` is the sequence so far."""
        return self if chat.continues else Prefix()

    def after(self, chat: Chat) -> Prefix:
        """The sequence with what `chat` added to it, where `self` is the sequence so far."""
        start = self.before(chat)
        tokens = (*start.token_ids, *chat.completion.prompt_token_ids, *chat.completion.token_ids)
        return Prefix(token_ids=tokens, images=(*start.images, *chat.images))


NO_PREFIX = Prefix()


def shown_images(messages: Iterable[ChatMessage]) -> tuple[str, ...]:
    """The images that a chat shows, in order of appearance; one that is shown twice is there twice."""
    return tuple(part.digest for message in messages for part in message.parts if isinstance(part, ImagePart))


class ActionRecord(Record):
    """The action of a step, as the environment executed it. Same fields as `distrl.core.actions.Action`."""

    kind: str
    point: tuple[Number, Number] | None = None
    to: tuple[Number, Number] | None = None
    text: str = ""
    reason: str = ""
    motion: Many[Many[Number]] = ()


Flag = Literal[
    "checked", "unchecked", "selected", "focused", "disabled",
    "clickable", "long_clickable", "editable", "scrollable",
]  # fmt: skip


class Element(Record):
    """An element on a screen, of a phone's accessibility tree or of a page.

    Attributes:
        text, description: What it shows, and what it is called where it shows no text; "" for none.
        bounds: Left, top, right, bottom as fractions of the screen.
        class_name: The last part of its class, such as Switch, or the tag of a page's element.
        resource_id: Its id in the app, without the package, or on the page.
        flags: Its state and what can be done with it; one that cannot be checked is neither checked nor
            unchecked.
        parent: The index in the list of the nearest listed element that it is in, -1 for none.
    """

    text: str = ""
    bounds: tuple[Number, Number, Number, Number]
    description: str = ""
    class_name: str = ""
    resource_id: str = ""
    flags: Many[Flag] = ()
    parent: int = -1

    @property
    def texts(self) -> tuple[str, str, str, str]:
        """Everything about it that is text."""
        return self.text, self.description, self.class_name, self.resource_id

    @property
    def label(self) -> str:
        """Its text, else its description; "" if it has neither."""
        return self.text or self.description


class Observation(Record):
    """What the agent saw.

    Attributes:
        image: Content address of the encoded screenshot, of `width` × `height` pixels.
        marked: Content address of the screenshot with a numbered box around each element, if the agent's
            prompts show that one; else "".
        app: The app or page in front, if the environment reports it.
        distance: Steps that a scripted expert would still take; None when not requested, or unknown. For
            measurements only: no agent sees it.
        elements: What is on the screen, if the agent reads it or `worker.elements` records it; None where not
            requested or not readable.
        state: What an arm measures of itself (proprioception), if the environment reports it.
    """

    image: str
    width: int
    height: int
    app: str = ""
    distance: int | None = None
    elements: Many[Element] | None = None
    marked: str = ""
    state: Many[Number] = ()

    @property
    def shown(self) -> str:
        """The picture that a prompt shows, if it shows one."""
        return self.marked or self.image


class RewardParts(Record):
    """The parts of a step's reward. They are summed in one place: `total`."""

    outcome: Number = 0.0
    repetition: Number = 0.0
    invalid: Number = 0.0
    shaping: Number = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts."""
        return self.outcome + self.repetition + self.invalid + self.shaping


class Timing(Record):
    """Seconds that the parts of a step took, and when it started (Unix time).

    `settle_s` is what waiting for a still screen took after the action; it is not part of `act_s`.
    """

    started_at: Number = 0.0
    observe_s: Number = 0.0
    think_s: Number = 0.0
    act_s: Number = 0.0
    settle_s: Number = 0.0


class TimeStep(Record):
    """One step. `guard` says what the device's guard ended after the action, "" for nothing."""

    observation: Observation
    chats: Many[Chat]
    action: ActionRecord
    reward: RewardParts = RewardParts()
    done: bool = False
    timing: Timing = Timing()
    guard: str = ""


class Outcome(str, Enum):
    """How an episode ended, as the judge sees it."""

    SUCCESS = "success"
    FAILURE = "failure"
    IMPOSSIBLE_CLAIMED = "impossible-claimed"
    STEP_LIMIT = "step-limit"
    UNJUDGED = "unjudged"


class Fault(str, Enum):
    """Whose failure ended an episode that therefore counts for nothing."""

    NONE = "none"
    DEVICE = "device"
    ENV = "env"
    INFERENCE = "inference"


class Task(Record):
    """One task instance.

    Attributes:
        id: Stable id, unique within its suite, e.g. "quickstart/toggle/train/0007".
        split: "train", "val", "test" or a suite's own.
        params: The template's parameters, plain data.
        seed: Seed of everything random in the environment.
    """

    id: str
    suite: str
    template: str
    split: str
    goal: str
    params: dict[str, Any] = {}
    seed: int = 0
    max_steps: int = Field(15, ge=1)


class Purpose(str, Enum):
    """What an episode is for: `train` feeds replay, `eval` is only measured, `demo` is the expert's.

    `imagined` feeds replay too, but a model has taken the environment's place: it counts in no success rate.
    """

    TRAIN = "train"
    EVAL = "eval"
    DEMO = "demo"
    IMAGINED = "imagined"


class PastStep(Record):
    """A real step before an imagined episode: its action, and what the policy answered, chat by chat."""

    action: ActionRecord
    answers: Many[str] = ()


class Branch(Record):
    """Where an imagined episode leaves a real one, and how it is played.

    Attributes:
        trajectory: The real episode's id.
        past: Its steps before the branch.
        horizon: The most steps of the branch.
        start: The prompt of its first step, for a learned model; empty where the past is played again.
        potential: What M(o) is, the promise of a screen: 0, the task's score, or γ to the power of the
            expert's distance.
        discount: γ.
    """

    trajectory: str = Field(max_length=200)
    past: Many[PastStep] = ()
    start: Many[ChatMessage] = ()
    horizon: int = Field(ge=1)
    potential: Literal["none", "score", "distance"] = "none"
    discount: Number = Field(1.0, ge=0.0, le=1.0)

    @classmethod
    def of(cls, trajectory: Trajectory, step: int, **how: Any) -> Branch:
        """The branch that leaves `trajectory` before its step `step`, counted from 0."""
        past = [
            PastStep(action=one.action, answers=tuple(chat.completion.text for chat in one.chats))
            for one in trajectory.steps[:step]
        ]
        return cls(trajectory=trajectory.id, past=tuple(past), **how)


class Trajectory(Record):
    """One complete episode.

    Attributes:
        id: Unique id (UUID hex), chosen by the worker: the key of exactly-once delivery.
        group_id: The group (GRPO) that the lease belonged to, or "".
        steps: The steps, at least one unless `fault` is set.
        final: The observation after the last action (bootstraps a truncated episode).
        success: The score in [0, 1] that counts: the environment's, or with `worker.rewards.source` judge the
            judge's.
        shortfall: What the environment says is lacking, in a sentence, or "".
        truth: The environment's score where a judge gives the one that counts, for measurements only; None
            where `success` is the environment's, or it has none.
        truncated: Whether the step limit, a full token sequence or the horizon of a branch, rather than the
            agent or the environment, ended it.
        branch: Where an imagined episode begins; None of all others.
        next_prompt: What the agent would have asked next, where a horizon or the step limit ended the episode
            and prompts are single; else empty.
        started_at, duration_s: Unix time; seconds.
    """

    id: str
    task: Task
    purpose: Purpose = Purpose.TRAIN
    lease_id: str = ""
    group_id: str = ""
    worker: str = ""
    slot: int = 0
    steps: Many[TimeStep] = ()
    final: Observation | None = None
    outcome: Outcome = Outcome.UNJUDGED
    fault: Fault = Fault.NONE
    fault_detail: str = ""
    success: Number = 0.0
    shortfall: str = ""
    truth: Number | None = None
    verdict: Verdict | None = None
    truncated: bool = False
    branch: Branch | None = None
    next_prompt: Many[ChatMessage] = ()
    started_at: Number = 0.0
    duration_s: Number = 0.0

    @property
    def ground_truth(self) -> float | None:
        """The environment's own score in [0, 1]; None if it has none, or the episode faulted."""
        if self.fault is not Fault.NONE or self.truth is not None:
            return self.truth
        return None if self.verdict is not None or self.outcome is Outcome.UNJUDGED else self.success

    @property
    def oldest_version(self) -> int:
        """The oldest weight version that sampled a token of this episode; -1 when no policy acted."""
        versions = [v for step in self.steps for chat in step.chats for v in chat.completion.weight_versions]
        return min(versions, default=-1)

    @property
    def image_digests(self) -> tuple[str, ...]:
        """The distinct screenshots of this episode, in order of first use."""
        shown: list[str] = []
        for step in self.steps:
            shown += (step.observation.image, step.observation.shown)
            for chat in step.chats:
                shown += chat.images
        if self.final is not None:
            shown += (self.final.image, self.final.shown)
        shown += shown_images(self.next_prompt)
        return tuple(dict.fromkeys(shown))

    @property
    def reward_parts(self) -> RewardParts:
        """The undiscounted sum of each part of the steps' rewards."""
        names = RewardParts.model_fields
        return RewardParts(**{name: sum(getattr(step.reward, name) for step in self.steps) for name in names})

    @property
    def total_reward(self) -> float:
        """The undiscounted sum of all step rewards."""
        return sum(step.reward.total for step in self.steps)
